//! Places of names, and what is kept.

use super::*;
use crate::config::{Isolation, for_test, parse};

fn parsed(text: &str) -> Config {
    parse(text, "x", &|_| Some("0123456789abcdef".to_owned()))
        .unwrap_or_else(|problems| panic!("{problems}"))
        .config
}

fn names(config: &Config) -> Vec<&str> {
    config.upstreams.iter().map(|upstream| &*upstream.name).collect()
}

#[test]
fn what_keeps_its_name_keeps_its_place_and_the_order_is_that_of_the_file() {
    let before = for_test::config(&["a", "b", "c"], &["alice", "bob"]);
    let next = for_test::config(&["new", "c", "a"], &["bob", "carol"]);
    let (next, kept) = next.in_place_of(&before).unwrap();
    assert!(kept.is_empty());
    assert_eq!(names(&next), ["a", "", "c", "new"]);
    let order: Vec<&str> = next.upstreams_in_order().map(|upstream| &*upstream.name).collect();
    assert_eq!(order, ["new", "c", "a"]);
    assert!(next.upstreams.iter().enumerate().all(|(place, upstream)| upstream.index == place));
    let clients: Vec<(usize, &str)> =
        next.clients_there().map(|(place, client)| (place, &*client.name)).collect();
    assert_eq!(clients, [(1, "bob"), (2, "carol")]);
    assert!(!next.clients[0].is_anonymous && next.clients[0].tokens.is_empty());
    assert!(!next.clients[0].rules.tools.admits("anything"), "who is no more may nothing");
    assert!(!next.endpoints[0].has(1) && next.endpoints[0].has(3), "no endpoint has what is no more");

    let (last, _) = for_test::config(&["a", "b"], &["alice"]).in_place_of(&next).unwrap();
    assert_eq!(names(&last), ["a", "", "", "", "b"], "a place is not given away again");
    assert_eq!(last.clients_there().map(|(place, _)| place).collect::<Vec<_>>(), [3]);
}

#[test]
fn endpoints_and_issuers_go_with_the_places() {
    let text = |upstreams: &str, endpoints: &str| {
        parsed(&format!(
            "upstreams: {{{upstreams}}}\nendpoints: {{{endpoints}}}\nauth: {{jwt: [{{issuer: \"https://as.example\", \
             audience: x}}]}}\nclients: {{c: {{tokens: ['${{T}}']}}}}\npublic_url: https://gw.example/mcp\n"
        ))
    };
    let before = text("a: {command: x}, b: {command: y}", "/mcp: {}, /old: {}");
    let next =
        text("b: {command: y}, c: {command: z}", "/new: {upstreams: [c, b], prefixes: {c: q}}, /mcp: {}");
    let (next, _) = next.in_place_of(&before).unwrap();
    let paths: Vec<&str> = next.endpoints.iter().map(|endpoint| &*endpoint.path).collect();
    assert_eq!(paths, ["/mcp", "", "/new"]);
    assert_eq!(next.endpoints[2].upstreams, Some(vec![2, 1]));
    assert_eq!(next.endpoints[2].prefix(&next.upstreams[2]), "q__");
    assert_eq!(
        (next.endpoint(None), next.endpoint(Some("/old")), next.endpoint(Some(""))),
        (Some(0), None, None)
    );
    let group = &next.jwt[0].group;
    assert_eq!(next.clients[group.0].name, group.1);
    assert!(next.jwt[0].has_keys_of(&before.jwt[0]));
}

#[test]
fn what_only_a_start_changes_is_kept_and_named() {
    let before = parsed("upstreams: {}\nlimits: {body: 1MiB, edge: {rate: 5/s}}\nsessions: {key: '${K}'}\n");
    let next = parsed(
        "listen: 9999\nadmin: false\nupstreams: {}\nlimits: {body: 2MiB, edge: {rate: 6/s}}\ndrain_timeout: 1s\n",
    );
    let (next, kept) = next.in_place_of(&before).unwrap();
    assert_eq!(kept, ["listen", "admin", "limits", "sessions"]);
    assert_eq!((next.listen, next.admin, next.limits.body), (before.listen, before.admin, 1 << 20));
    assert_ne!(next.limits.edge, before.limits.edge, "this one can change");
    assert_eq!(next.drain_timeout.as_secs(), 1);
}

#[test]
fn a_connection_is_kept_for_what_is_the_gateways_own_business_only() {
    let config = for_test::config(&["a"], &[]);
    let first = UpstreamConfig::clone(&config.upstreams[0]);
    let own = UpstreamConfig {
        prefix: "other__".to_owned(),
        rules: nothing(),
        index: 7,
        limits: crate::config::CallLimits { concurrency: Some(1), ..first.limits.clone() },
        ..first.clone()
    };
    assert!(own.has_connection_of(&first));
    let header = |value: &str| {
        let mut upstream = first.clone();
        if let Transport::Http(http) = &mut upstream.transport {
            http.headers = vec![(http::header::AUTHORIZATION, value.to_owned().into())];
        }
        upstream
    };
    assert!(header("x").has_connection_of(&header("x")));
    assert!(!header("x").has_connection_of(&header("y")), "a secret is compared, too");
    let mut isolated = first.clone();
    isolated.sharing.isolation = Isolation::PerClient;
    assert!(!isolated.has_connection_of(&first));
    let later = UpstreamConfig { connect_timeout: first.connect_timeout * 2, ..first.clone() };
    assert!(!later.has_connection_of(&first));
}

#[test]
fn places_run_out_with_a_clear_word() {
    let before = for_test::config(&["a"], &[]);
    let many: Vec<String> = (0..MOST).map(|number| format!("u{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = for_test::config(&many, &[]).in_place_of(&before).unwrap_err();
    assert!(error.to_string().contains("upstreams"), "{error}");
}
