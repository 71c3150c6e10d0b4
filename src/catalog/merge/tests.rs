//! What is merged, tagged and left out.

use bytes::Bytes;

use super::*;
use crate::config::{Charset, Naming, Pattern};

fn naming() -> Naming {
    Naming { separator: "__".into(), max_length: 64, charset: Charset::Strict }
}

fn listed(kind: ListKind, name: &str) -> Listed {
    let key = kind.name_key();
    let text = format!(r#"{{ "x-unknown" : 1e2, "{key}":"{name}","big":18446744073709551616 }}"#);
    Listed { name: name.into(), text: Raw::parse(Bytes::from(text)).unwrap() }
}

type Lists<'a> = PerKind<&'a [&'a str]>;

fn merged_with(upstreams: &[(&str, Lists<'_>)], filter: Filter, clients: Vec<PerKind<Filter>>) -> Snapshot {
    let prefixes: Vec<&str> = upstreams.iter().map(|(prefix, _)| *prefix).collect();
    let names: Vec<ExposedNames> = prefixes
        .iter()
        .map(|prefix| ExposedNames::new(prefix, prefixes.iter().copied(), &naming()))
        .collect();
    let lists: Vec<PerKind<Vec<Listed>>> = upstreams
        .iter()
        .map(|(_, lists)| {
            PerKind::of(|kind| lists.kind(kind).iter().map(|name| listed(kind, name)).collect())
        })
        .collect();
    let labels = ["a", "b", "c"];
    let sources = names.iter().zip(&lists).zip(labels).enumerate();
    let sources = sources.map(|(upstream, ((names, lists), label))| Source {
        upstream,
        label,
        names,
        known_names: names,
        filters: PerKind::of(|_| &filter),
        lists: PerKind::of(|kind| lists.kind(kind).as_slice()),
    });
    let layers = |filters: PerKind<Filter>| PerKind::of(|kind| vec![filters.kind(kind).clone()]);
    Snapshot::merge(sources, clients.into_iter().map(layers), std::iter::empty())
}

fn merged(upstreams: &[(&str, &[&str])], clients: Vec<Filter>) -> Snapshot {
    let upstreams: Vec<_> =
        upstreams.iter().map(|(prefix, tools)| (*prefix, Lists { tools, ..Lists::default() })).collect();
    let filter = Filter { allow: None, deny: vec![Pattern::from("secret*")], ..Filter::default() };
    let clients = clients.into_iter().map(|tools| PerKind { tools, ..PerKind::default() }).collect();
    merged_with(&upstreams, filter, clients)
}

fn page(snapshot: &Snapshot, kind: ListKind) -> Bytes {
    snapshot.view(kind, &Principal::new(0, "x")).unwrap().page(None, None).unwrap().0
}

#[test]
fn entries_keep_every_byte_but_the_name() {
    let snapshot = merged(&[("a__", &["x"])], vec![Filter::default()]);
    let expected = r#"[{ "x-unknown" : 1e2, "name":"a__x","big":18446744073709551616 }]"#;
    assert_eq!(page(&snapshot, ListKind::Tools), expected.as_bytes());
}

#[test]
fn a_changed_name_leaves_the_native_one_as_title() {
    let rename = |text: &'static [u8], exposed: &str| {
        let text = Raw::parse(Bytes::from_static(text)).unwrap();
        rewrite_entry(ListKind::Tools, &Listed { name: "a.b".into(), text }, exposed, None)
    };
    let (titled, bare): (&[u8], &[u8]) = (br#"{"name":"a.b","title":"T"}"#, br#"{"name":"a.b"}"#);
    assert_eq!(rename(titled, "u__a_b_1"), br#"{"name":"u__a_b_1","title":"T"}"#.as_slice());
    assert_eq!(rename(bare, "u__a_b_1"), br#"{"name":"u__a_b_1","title":"a.b"}"#.as_slice());
    assert_eq!(rename(bare, "u__a.b"), br#"{"name":"u__a.b"}"#.as_slice());
}

#[test]
fn what_a_filter_denies_is_neither_listed_nor_lost() {
    let only_x = Filter { allow: Some(vec![Pattern::from("*__x")]), deny: vec![], ..Filter::default() };
    let snapshot = merged(&[("a__", &["x", "y", "secret1"])], vec![Filter::default(), only_x]);
    let view = |client| snapshot.view(ListKind::Tools, &Principal::new(client, "x"));
    assert_eq!(view(0).unwrap().len(), 2);
    assert_eq!(view(1).unwrap().len(), 1);
    let (index, entry) = snapshot.find(ListKind::Tools, "a__secret1").unwrap();
    assert!(!entry.is_offered && !view(0).unwrap().shows(index));
    assert!(view(2).is_none());
}

#[test]
fn the_earlier_upstream_keeps_a_name_and_the_other_is_reported() {
    let snapshot = merged(&[("", &["x", "x"]), ("", &["x", "y"])], vec![Filter::default()]);
    let owner = |name| snapshot.find(ListKind::Tools, name).unwrap().1.upstream;
    assert_eq!((owner("x"), owner("y")), (0, 1));
    let found: Vec<usize> = snapshot.findings.iter().map(|finding| finding.upstream).collect();
    assert_eq!(found, [0, 1]);
}

fn two_with_resources() -> Snapshot {
    let of = |resources: &'static [&'static str]| Lists {
        resources,
        templates: &["file:///{path}"],
        tools: &["t"],
        prompts: &["p"],
    };
    let lists = [("a__", of(&["config://app", "x://a"])), ("b__", of(&["config://app", "x://b"]))];
    merged_with(&lists, Filter::default(), vec![PerKind::default()])
}

#[test]
fn the_later_of_two_equal_uris_is_tagged_and_nothing_else() {
    let snapshot = two_with_resources();
    let listed = |kind: ListKind| {
        let entries: Vec<serde_json::Value> = serde_json::from_slice(&page(&snapshot, kind)).unwrap();
        entries.iter().map(|entry| entry[kind.name_key()].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(ListKind::Resources), ["config://app", "x://a", "config://app#@b", "x://b"]);
    assert_eq!(listed(ListKind::Templates), ["file:///{path}", "file:///{path}#@b"]);
    assert_eq!(listed(ListKind::Prompts), ["a__p", "b__p"]);
    assert!(snapshot.tags(0).is_none());
    let tags = snapshot.tags(1).unwrap();
    assert_eq!(tags.expose("config://app").as_deref(), Some("config://app#@b"));
    assert_eq!(tags.expose("file:///etc").as_deref(), Some("file:///etc#@b"));
    assert_eq!(tags.expose("x://b"), None);
    assert_eq!(tags.expose("y://"), None);
    assert!(snapshot.findings.is_empty());
}

#[test]
fn uris_lead_to_the_list_first_and_to_templates_then() {
    let snapshot = two_with_resources();
    for (uri, wanted) in [
        ("config://app", Some((0, "config://app"))),
        ("config://app#@b", Some((1, "config://app"))),
        ("config://app#@a", Some((0, "config://app"))),
        ("x://b", Some((1, "x://b"))),
        ("x://b#@b", Some((1, "x://b"))),
        ("x://b#@a", None),
        ("file:///y", Some((0, "file:///y"))),
        ("file:///y#@b", Some((1, "file:///y"))),
        ("file:///y#@c", None),
        ("config://other", None),
    ] {
        let found = snapshot.locate(uri);
        let found = found.as_ref().map(|location| (location.upstream, &*location.native));
        assert_eq!(found, wanted, "{uri}");
    }
}

#[test]
fn the_longest_literal_part_wins_then_the_order_of_the_configuration() {
    let of = |templates: &'static [&'static str]| Lists { templates, ..Lists::default() };
    let lists = [("a__", of(&["x://{+any}"])), ("b__", of(&["x://b/{id}"])), ("c__", of(&["x://b/{no}"]))];
    let snapshot = merged_with(&lists, Filter::default(), vec![]);
    let upstream = |uri| snapshot.locate(uri).map(|location| location.upstream);
    assert_eq!(upstream("x://a/b"), Some(0));
    assert_eq!(upstream("x://b/7"), Some(1));
    assert_eq!(upstream("x://b/7/8"), Some(0));
    assert_eq!(upstream("y://"), None);
}

#[test]
fn tagged_uris_are_rewritten_in_their_places_only() {
    let snapshot = two_with_resources();
    let tags = snapshot.tags(1).unwrap();
    for (method, before, after) in [
        (
            Method::ToolsCall,
            r#"{"content":[{"type":"text","text":"see config://app"},{"type":"resource_link","uri":"config:\/\/app","name":"config://app"},{"type":"resource","resource":{"uri":"file:///f","text":"config://app"}},{"type":"resource","resource":{"uri":"x://b"}}],"structuredContent":{"uri":"config://app"},"_meta":{"ui":{"resourceUri":"config://app"},"ui/resourceUri":"config://app","uri":"config://app"}}"#,
            r#"{"content":[{"type":"text","text":"see config://app"},{"type":"resource_link","uri":"config://app#@b","name":"config://app"},{"type":"resource","resource":{"uri":"file:///f#@b","text":"config://app"}},{"type":"resource","resource":{"uri":"x://b"}}],"structuredContent":{"uri":"config://app"},"_meta":{"ui":{"resourceUri":"config://app#@b"},"ui/resourceUri":"config://app#@b","uri":"config://app"}}"#,
        ),
        (
            Method::PromptsGet,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"config://app"}}},{"content":[{"type":"resource_link","uri":"config://app"}]}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"config://app#@b"}}},{"content":[{"type":"resource_link","uri":"config://app#@b"}]}]}"#,
        ),
        (
            Method::ResourcesRead,
            r#"{"contents":[{"uri":"config://app","text":"config://app"},{"uri":"y://"}],"n":1e2}"#,
            r#"{"contents":[{"uri":"config://app#@b","text":"config://app"},{"uri":"y://"}],"n":1e2}"#,
        ),
    ] {
        let text = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let text_before = Bytes::from(text(before));
        let envelope = ObjectView::read(&text(before), Look::Envelope).unwrap();
        let body = Body::Result(envelope.inner(&text_before, "result").unwrap().clone());
        let response = Response { text: text_before, envelope, id: None, body };
        let rewritten = tags.rewrite(method, &response).unwrap();
        assert_eq!(rewritten.text, text(after).as_bytes());
        assert!(rewritten.result("_meta").is_some() == (method == Method::ToolsCall));
        assert!(tags.rewrite(Method::Complete, &response).is_none() || method == Method::ToolsCall);
    }
}

use crate::mcp::{Body, Look, Method, ObjectView, Response};

#[test]
fn roles_of_a_caller_narrow_what_its_client_sees() {
    let tools = |deny: &str| Filter { allow: None, deny: vec![Pattern::from(deny)], ..Filter::default() };
    let mut snapshot = merged(&[("a__", &["x", "y", "z"])], vec![tools("*__z")]);
    for deny in ["*__x", "*__y"] {
        for kind in ListKind::ALL {
            snapshot.lists.kind_mut(kind).add_role(tools(deny));
        }
    }
    let seen = |roles: &[usize]| {
        let principal = Principal { roles: roles.into(), ..Principal::new(0, "x") };
        let view = snapshot.view(ListKind::Tools, &principal)?;
        Some((0..3).filter(|place| view.shows(*place)).collect::<Vec<usize>>())
    };
    assert_eq!(seen(&[]), Some(vec![0, 1]));
    assert_eq!(seen(&[0]), Some(vec![1]));
    assert_eq!(seen(&[1]), Some(vec![0]));
    assert_eq!(seen(&[0, 1]), Some(vec![]));
    assert_eq!(seen(&[0]), Some(vec![1]), "the same from memory");
    assert_eq!(seen(&[2]), None, "a role that is not there shows nothing");
}
