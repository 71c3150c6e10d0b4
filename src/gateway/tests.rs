//! The road of a call through the gateway, with an upstream under the test's control.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

mod deadlines;
mod explain;
use crate::config::{CallLimits, Filter, Pattern, Rate, RoleConfig, Rules, for_test};
use crate::exchange::{Answer, EventSink, Hop, Principal, ResultForm};
use crate::mcp::{Body, ListKind, Message, Method, PerKind, Raw, Request};
use crate::wire::json;

/// Answers `ok` at once, and the tool `slow` never.
struct Scripted {
    name: Arc<str>,
    offer: watch::Sender<Arc<Offer>>,
    followed: Arc<Followed>,
    calls: AtomicUsize,
    dropped_with: Arc<std::sync::Mutex<Vec<Option<String>>>>,
}

/// Notes the reason of a call that is dropped before its end.
struct NoteReason(Cancel, Arc<std::sync::Mutex<Vec<Option<String>>>>);

impl Drop for NoteReason {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.reason().map(str::to_owned));
    }
}

impl Upstream for Scripted {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let dropped = Arc::clone(&self.dropped_with);
        async move {
            if &*call.target().native == "slow" {
                let _note = NoteReason(call.call().cancel.clone(), dropped);
                std::future::pending::<()>().await;
            }
            let text = Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[],"tool":"{}"}}}}"#,
                call.target().native
            ));
            let Ok(Message::Response(response)) = json::parse(text) else { unreachable!() };
            Ok(Outcome::Complete(Answer { response, form: ResultForm::Bare }))
        }
        .boxed()
    }
}

fn tools(names: &[&str]) -> Vec<Listed> {
    let text = |name: &str| Raw::from_value(&serde_json::json!({"name": name, "inputSchema": {}}));
    names.iter().map(|name| Listed { name: (*name).into(), text: text(name) }).collect()
}

fn scripted(name: &str, offer: Offer) -> Arc<Scripted> {
    Arc::new(Scripted {
        name: name.into(),
        offer: watch::Sender::new(Arc::new(offer)),
        followed: Arc::default(),
        calls: AtomicUsize::new(0),
        dropped_with: Arc::default(),
    })
}

fn ready(names: &[&str]) -> Offer {
    let list = List { entries: tools(names), is_served: true, ..List::default() };
    Offer { health: Health::Ready, lists: PerKind { tools: list, ..PerKind::default() }, ..Offer::default() }
}

fn request(name: &str) -> Request {
    let text =
        serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}});
    match json::parse(Bytes::from(text.to_string())) {
        Ok(Message::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn call(client: usize, name: &str) -> Call {
    Call {
        method: Method::ToolsCall,
        request: request(name),
        hop: Hop::default(),
        principal: Principal::new(client, "alice"),
        session: None,
        events: EventSink::new().0,
        cancel: Cancel::default(),
    }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::from(*text)).collect()
}

/// A gateway over `a` (with a deny rule on `drop`) and `b`, for an open client and one that may read only.
fn gateway(upstreams: Vec<Arc<dyn Upstream>>, change: impl FnOnce(&mut Config)) -> Arc<Gateway> {
    let mut config = for_test::config(&["a", "b"], &["open", "reader"]);
    let first = Arc::make_mut(config.upstreams.first_mut().unwrap());
    first.rules.tools.deny = patterns(&["drop"]);
    config.clients[1].rules.tools =
        Filter { allow: Some(patterns(&["a__read"])), deny: vec![], ..Filter::default() };
    change(&mut config);
    Gateway::new(Arc::new(config), Arc::new(Metrics::default()), upstreams)
}

async fn refreshed(gateway: &Arc<Gateway>) {
    tokio::task::yield_now().await;
    let stop = CancellationToken::new();
    let refresh = Arc::clone(gateway).refresh(stop.clone());
    let ((), ()) = tokio::join!(refresh, async { stop.cancel() });
}

fn names_seen(gateway: &Gateway, client: usize) -> Vec<String> {
    let principal = Principal::new(client, "x");
    let page = gateway.list(ListKind::Tools, &principal, None).unwrap();
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&page.entries).unwrap();
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn what_is_listed_is_callable_and_what_is_not_never_reaches_the_upstream() {
    let a = scripted("a", ready(&["read", "write", "drop"]));
    let b = scripted("b", ready(&["read"]));
    let gateway = gateway(vec![a.clone(), b.clone()], |_| {});
    refreshed(&gateway).await;
    assert_eq!(names_seen(&gateway, 0), ["a__read", "a__write", "b__read"]);
    assert_eq!(names_seen(&gateway, 1), ["a__read"]);

    let everything = ["a__read", "a__write", "a__drop", "b__read", "read", "drop", "a__read ", "A__read", ""];
    for client in [0, 1] {
        let listed = names_seen(&gateway, client);
        for name in everything {
            let before = a.calls.load(Ordering::SeqCst) + b.calls.load(Ordering::SeqCst);
            let result = gateway.call(call(client, name)).await;
            let reached = a.calls.load(Ordering::SeqCst) + b.calls.load(Ordering::SeqCst) - before;
            let is_listed = listed.iter().any(|listed| listed == name);
            assert_eq!(result.is_ok(), is_listed, "{client} {name:?}");
            assert_eq!(reached, usize::from(is_listed), "{client} {name:?}");
        }
    }
}

#[tokio::test]
async fn roles_only_narrow() {
    let rules = |allow: Option<&[&str]>, deny: &[&str]| Rules {
        tools: Filter { allow: allow.map(patterns), deny: patterns(deny), ..Filter::default() },
        ..Rules::default()
    };
    let role = |name: &str, rules: Rules| Arc::new(RoleConfig { name: name.into(), rules });
    let (readers, quiet) =
        (role("readers", rules(Some(&["*read", "b__*"]), &[])), role("quiet", rules(None, &["b__read"])));
    let upstreams = || -> Vec<Arc<dyn Upstream>> {
        vec![scripted("a", ready(&["read", "write", "drop"])), scripted("b", ready(&["read", "x"]))]
    };
    for (roles, seen) in [
        (vec![], vec!["a__read", "a__write", "b__read", "b__x"]),
        (vec![&readers], vec!["a__read", "b__read", "b__x"]),
        (vec![&quiet], vec!["a__read", "a__write", "b__x"]),
        (vec![&readers, &quiet], vec!["a__read", "b__x"]),
    ] {
        let gateway = gateway(upstreams(), |config| {
            let roles: Vec<_> = roles.into_iter().cloned().collect();
            config.clients.iter_mut().for_each(|client| client.roles.clone_from(&roles));
        });
        refreshed(&gateway).await;
        assert_eq!(names_seen(&gateway, 0), seen);
        assert_eq!(
            names_seen(&gateway, 1),
            ["a__read"],
            "a role gives nothing that the client's own rules do not"
        );
        for name in ["a__read", "a__write", "a__drop", "b__read", "b__x"] {
            assert_eq!(gateway.call(call(0, name)).await.is_ok(), seen.contains(&name), "{name}");
        }
    }
}

#[tokio::test]
async fn denied_sounds_like_unknown_unless_revealed() {
    let quiet = gateway(vec![scripted("a", ready(&["drop"])), scripted("b", ready(&[]))], |_| {});
    refreshed(&quiet).await;
    let denied = quiet.call(call(0, "a__drop")).await.unwrap_err();
    let unknown = quiet.call(call(0, "a__nope")).await.unwrap_err();
    assert_eq!((denied.kind, unknown.kind), (GatewayErrorKind::Denied, GatewayErrorKind::Unknown));
    assert_eq!(denied.text.replace("drop", "nope"), unknown.text);

    let open = gateway(vec![scripted("a", ready(&["drop"])), scripted("b", ready(&[]))], |config| {
        config.reveal_denied = true;
    });
    refreshed(&open).await;
    assert!(open.call(call(0, "a__drop")).await.unwrap_err().text.contains("Denied by policy"));
}

#[tokio::test]
async fn an_absent_upstream_says_so_but_only_to_who_may_use_it() {
    let down = Offer {
        health: Health::Down {
            reason: "the process exited with code 1".into(),
            since: Instant::now(),
            retry_at: Instant::now() + Duration::from_secs(7),
            failures: 1,
        },
        ..Offer::default()
    };
    let gateway = gateway(vec![scripted("a", down), scripted("b", Offer::default())], |_| {});
    refreshed(&gateway).await;
    let error = gateway.call(call(0, "a__read")).await.unwrap_err();
    assert_eq!(error.kind, GatewayErrorKind::Unavailable);
    assert_eq!(error.upstream.as_deref(), Some("a"));
    assert!(error.text.contains("exited with code 1") && error.retry_after.is_some(), "{error:?}");
    assert_eq!(gateway.call(call(0, "b__x")).await.unwrap_err().kind, GatewayErrorKind::Unavailable);
    for (client, name) in [(0, "a__drop"), (1, "a__write"), (1, "b__x"), (0, "c__x")] {
        let refused = gateway.call(call(client, name)).await.unwrap_err();
        assert_eq!(refused.kind, GatewayErrorKind::Unknown, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_call_and_the_upstream_hears_why() {
    let a = scripted("a", ready(&["slow"]));
    let gateway = gateway(vec![a.clone(), scripted("b", ready(&[]))], |config| {
        Arc::make_mut(&mut config.upstreams[0]).timeout = Duration::from_secs(2);
    });
    refreshed(&gateway).await;
    let started = tokio::time::Instant::now();
    let error = gateway.call(call(0, "a__slow")).await.unwrap_err();
    assert_eq!(error.kind, GatewayErrorKind::Timeout);
    assert_eq!(error.executed, Executed::Unknown);
    assert!(error.text.contains("2 s"), "{error}");
    assert_eq!(started.elapsed().as_secs(), 2, "by the paused clock");
    let reasons = a.dropped_with.lock().unwrap().clone();
    assert!(reasons[0].as_deref().unwrap().contains("timed out"), "{reasons:?}");
}

#[tokio::test]
async fn a_cancelled_call_ends_with_the_reason_of_its_caller() {
    let a = scripted("a", ready(&["slow"]));
    let gateway = gateway(vec![a.clone(), scripted("b", ready(&[]))], |_| {});
    refreshed(&gateway).await;
    let slow = call(0, "a__slow");
    let cancel = slow.cancel.clone();
    let (result, ()) = tokio::join!(gateway.call(slow), async { cancel.cancel("r") });
    assert_eq!(result.unwrap_err().kind, GatewayErrorKind::Cancelled);
    assert_eq!(*a.dropped_with.lock().unwrap(), [Some("r".to_owned())]);
}

#[tokio::test]
async fn a_limited_call_never_reaches_the_upstream() {
    let a = scripted("a", ready(&["read"]));
    let gateway = gateway(vec![a.clone(), scripted("b", ready(&[]))], |config| {
        let rate = Some(Rate { count: 2, period: Duration::from_secs(3600) });
        config.clients[0].limits = CallLimits { rate, ..CallLimits::default() };
    });
    refreshed(&gateway).await;
    for _ in 0..2 {
        gateway.call(call(0, "a__read")).await.unwrap();
    }
    for _ in 0..2 {
        // Lists and unknown names are free.
        let _page = names_seen(&gateway, 0);
        gateway.call(call(0, "nope")).await.unwrap_err();
    }
    let refused = gateway.call(call(0, "a__read")).await.unwrap_err();
    assert_eq!(refused.kind, GatewayErrorKind::RateLimited);
    assert_eq!(a.calls.load(Ordering::SeqCst), 2);
    gateway.call(call(1, "a__read")).await.unwrap();
}

#[tokio::test]
async fn an_answer_is_passed_on_as_it_came() {
    let gateway = gateway(vec![scripted("a", ready(&["read"])), scripted("b", ready(&[]))], |_| {});
    refreshed(&gateway).await;
    let outcome = gateway.call(call(0, "a__read")).await.unwrap();
    let Body::Result(view) = &outcome.answer().response.body else { panic!() };
    assert_eq!(view.string(&outcome.answer().response.text, "tool").unwrap(), "read");
}

#[tokio::test]
async fn a_changed_offer_changes_the_list() {
    let a = scripted("a", ready(&["v1"]));
    let gateway = gateway(vec![a.clone(), scripted("b", ready(&["x"]))], |_| {});
    let stop = CancellationToken::new();
    let tracker = TaskTracker::new();
    tracker.spawn(Arc::clone(&gateway).refresh(stop.clone()));
    a.offer.send_replace(Arc::new(ready(&["v2"])));
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if names_seen(&gateway, 0) == ["a__v2", "b__x"] {
            stop.cancel();
            return;
        }
    }
    panic!("the list is still {:?}", names_seen(&gateway, 0));
}

#[tokio::test]
async fn lists_are_private_as_soon_as_a_policy_or_a_private_part_has_a_say() {
    let fresh = |is_private: bool| {
        let mut offer = ready(&["x"]);
        offer.lists.tools.ttl = Some(Duration::from_secs(9));
        offer.lists.tools.is_private = is_private;
        offer
    };
    let scope = async |gateway: Arc<Gateway>| {
        refreshed(&gateway).await;
        let principal = Principal::new(0, "x");
        let page = gateway.list(ListKind::Tools, &principal, None).unwrap();
        (page.scope, page.ttl)
    };
    let with = |private: bool, change: fn(&mut Config)| {
        gateway(vec![scripted("a", fresh(false)), scripted("b", fresh(private))], change)
    };
    let alone: fn(&mut Config) = |config| {
        config.clients.truncate(1);
        config.clients[0].is_anonymous = true;
    };
    assert_eq!(scope(with(false, alone)).await, (CacheScope::Public, Duration::from_secs(9)));
    assert_eq!(scope(with(true, alone)).await.0, CacheScope::Private);
    assert_eq!(scope(with(false, |_| {})).await.0, CacheScope::Private);
}

#[tokio::test]
async fn instructions_name_only_what_the_client_sees() {
    let with = |text: &str, names: &[&str]| Offer { instructions: Some(text.into()), ..ready(names) };
    let a = scripted("a", with("read with care", &["read"]));
    let b = scripted("b", with(&"long ".repeat(2000), &["x"]));
    let gateway = gateway(vec![a, b], |_| {});
    refreshed(&gateway).await;
    let of = |client| gateway.instructions(&Principal::new(client, "x")).unwrap();
    assert_eq!(of(1), "## a\nread with care");
    assert!(of(0).contains("## b\nlong") && of(0).len() < 5000 && of(0).ends_with('…'));
}

/// A gateway that keeps its snapshot true, over `a`; its clock is paused.
fn watched(a: &Arc<Scripted>) -> Arc<Gateway> {
    let gateway = gateway(vec![a.clone(), scripted("b", ready(&[]))], |_| {});
    TaskTracker::new().spawn(Arc::clone(&gateway).refresh(CancellationToken::new()));
    gateway
}

fn watch(gateway: &Arc<Gateway>, client: usize) -> Watch {
    gateway.watch(
        (&Principal::new(client, "x"), &Credentials::default()),
        &ListKind::ALL,
        None,
        Arc::default(),
    )
}

/// The changes that come within a second.
async fn changes(watch: &mut Watch) -> usize {
    let mut count = 0;
    while tokio::time::timeout(Duration::from_secs(1), watch.next()).await.is_ok() {
        count += 1;
    }
    count
}

#[tokio::test(start_paused = true)]
async fn chg_01_a_change_is_told_to_all_who_may_see_it_and_nobody_else() {
    let a = scripted("a", ready(&["read", "write"]));
    let gateway = watched(&a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (mut open, mut reader) = (watch(&gateway, 0), watch(&gateway, 1));
    assert_eq!((changes(&mut open).await, changes(&mut reader).await), (0, 0), "nothing has changed");
    a.offer.send_replace(Arc::new(ready(&["read", "write", "fresh"])));
    assert_eq!((changes(&mut open).await, changes(&mut reader).await), (1, 0), "only one of them sees it");
    a.offer.send_replace(Arc::new(ready(&["write"])));
    assert_eq!((changes(&mut open).await, changes(&mut reader).await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_told_after_it_is_served_and_many_are_one() {
    let a = scripted("a", ready(&["v0"]));
    let gateway = watched(&a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut watch = watch(&gateway, 0);
    for version in 1..=20 {
        a.offer.send_replace(Arc::new(ready(&[&format!("v{version}")])));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(watch.next().await, Some(Change::List(ListKind::Tools)));
    assert_eq!(names_seen(&gateway, 0), ["a__v20"]);
    assert_eq!(changes(&mut watch).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_only_looks_like_a_change_is_not_told() {
    let a = scripted("a", ready(&["v0"]));
    let gateway = watched(&a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut watch = watch(&gateway, 0);
    a.offer.send_replace(Arc::new(ready(&["v0"])));
    assert_eq!(changes(&mut watch).await, 0, "read again, and the same");
    a.offer.send_replace(Arc::new(ready(&["v1"])));
    tokio::time::sleep(Duration::from_millis(20)).await;
    a.offer.send_replace(Arc::new(ready(&["v0"])));
    assert_eq!(changes(&mut watch).await, 0, "there and back before anybody was told");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_misses_nothing_and_hears_it_once() {
    let a = scripted("a", ready(&["v0"]));
    let gateway = watched(&a);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut slow = watch(&gateway, 0);
    let seen = slow.seen().clone();
    for version in 1..=5 {
        a.offer.send_replace(Arc::new(ready(&[&format!("v{version}")])));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(changes(&mut slow).await, 1);
    let principal = Principal::new(0, "x");
    let mut back =
        gateway.watch((&principal, &Credentials::default()), &ListKind::ALL, Some(seen), Arc::default());
    assert_eq!(changes(&mut back).await, 1, "who comes back hears what happened meanwhile");
    let mut told = gateway.watch(
        (&principal, &Credentials::default()),
        &ListKind::ALL,
        Some(back.seen().clone()),
        Arc::default(),
    );
    assert_eq!(changes(&mut told).await, 0, "once");
    let mut deaf = gateway.watch((&principal, &Credentials::default()), &[], None, Arc::default());
    a.offer.send_replace(Arc::new(ready(&["v9"])));
    assert_eq!(changes(&mut deaf).await, 0, "nothing that was not asked for");
}
