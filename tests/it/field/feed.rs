//! Changes of lists, from every kind of server to every client that listens.

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::{BOTH, Client, Open};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::{Script, plain_entry};
use crate::support::upstream::{CHANGED, Upstream};
use crate::support::{at_once, eventually, process, scaled};

crate::matrix! {
    chg_01_a_change_reaches_the_client_that_listens
    chg_01_prompts_and_resources_change_likewise
    chg_05_a_server_that_comes_back_as_another_is_announced
}

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// A server that echoes, tells of changes, and answers `fresh` once it lists it.
fn telling(era: Era) -> Script {
    Script::echo(era).telling().handled("fresh", |turn| turn.text("fresh"))
}

fn entries(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| plain_entry(name)).collect()
}

fn expect_changed(open: &mut Open) {
    let message = open.message().expect("a notification, not the end of the stream");
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
    assert!(message.get("id").is_none(), "{message}");
}

fn open_streams(gateway: &Gateway, count: f64) {
    gateway.wait_metric("waypost_streams_open", &[], count);
}

fn chg_01_a_change_reaches_the_client_that_listens(cell: Cell) {
    let up = telling(cell.server).over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let mut open = client.listening();
    up.wait_heard();
    up.change_tools(entries(&["echo", "fresh"]));
    expect_changed(&mut open);
    assert_eq!(client.tool_names(), ["up__echo", "up__fresh"], "served by then");
    assert_eq!(client.echo("up__fresh", ""), "fresh");
    up.change_tools(entries(&["echo", "fresh"]));
    assert!(open.is_silent(scaled(1_200)), "said to have changed, and the same");
    up.change_tools(entries(&["echo"]));
    expect_changed(&mut open);
    assert_eq!(client.tool_names(), ["up__echo"]);
}

fn chg_01_prompts_and_resources_change_likewise(cell: Cell) {
    let script = telling(cell.server).prompt("ask").resources("up", ["file:///a"]).template("file:///{x}");
    let up = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let mut open = client.listening();
    up.wait_heard();
    let mut expect = |list: &str| {
        let message = open.message().expect("a notification, not the end of the stream");
        assert_eq!(message["method"], format!("notifications/{list}/list_changed"), "{message}");
        assert!(open.is_silent(scaled(300)), "nothing else has changed");
    };
    up.change_list("prompts/list", vec![r#"{"name":"other"}"#.to_owned()]);
    expect("prompts");
    assert_eq!(client.prompt_names(), ["up__other"]);
    up.change_list("resources/list", vec![r#"{"uri":"file:///b","name":"b"}"#.to_owned()]);
    expect("resources");
    assert_eq!(client.resource_uris(), ["file:///b"]);
    up.change_list("resources/templates/list", Vec::new());
    expect("resources");
    assert_eq!(client.template_uris(), Vec::<String>::new());
}

/// A server may say it on the stream of a call.
#[test]
fn chg_01_a_change_told_on_the_stream_of_a_call_reaches_those_who_listen() {
    for transport in Transport::LEGACY {
        let script = Script::echo(Era::Legacy).tool("grow", |turn| {
            turn.send(CHANGED);
            turn.text("grown");
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let [mut legacy, mut modern] = ERAS.map(|era| Client::of(&gateway, era).listening());
        up.set_tools(entries(&["echo", "grow", "fresh"]));
        let answer = Client::modern(&gateway).calling("up__grow", "{}").send();
        assert_eq!(answer.messages().len(), 1, "the caller hears of it on its own stream: {}", answer.text());
        expect_changed(&mut legacy);
        expect_changed(&mut modern);
    }
}

#[test]
fn chg_01_only_who_may_see_the_difference_is_told() {
    let up = telling(Era::Legacy).stdio();
    let clients = json!({
        "all": {"tokens": [{"env": "A"}]},
        "few": {"tokens": [{"env": "F"}], "tools": {"allow": ["up__echo"]}},
    });
    let config = Config::new().upstream("up", &up).clients(clients);
    let gateway = config.env("A", "t-all").env("F", "t-few").ready();
    let of = |token: &str| {
        let (legacy, modern) = (Client::legacy_with(&gateway, token), Client::modern_with(&gateway, token));
        [legacy.listening(), modern.listening()]
    };
    let (all, few) = (of("t-all"), of("t-few"));
    up.change_tools(entries(&["echo", "fresh"]));
    for mut open in all {
        expect_changed(&mut open);
    }
    for mut open in few {
        assert!(open.is_silent(scaled(500)), "of a tool that it may not know");
    }
}

/// A modern subscriber that asked for something else hears nothing.
#[test]
fn a_subscription_brings_what_it_asked_for() {
    let up = telling(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::modern(&gateway);
    for filter in ["{}", r#"{"toolsListChanged":false}"#, r#"{"promptsListChanged":true}"#] {
        let params = format!(r#"{{"notifications":{filter}}}"#);
        let mut open = client.request("subscriptions/listen", &params).open();
        assert_eq!(open.message().unwrap()["params"]["notifications"]["toolsListChanged"], json!(null));
        up.wait_heard();
        up.change_tools(entries(&["echo", filter]));
        eventually("the change is there", || (client.tool_names().len() == 2).then_some(()));
        assert!(open.is_silent(scaled(400)), "{filter}");
        up.change_tools(entries(&["echo"]));
        eventually("and gone", || (client.tool_names().len() == 1).then_some(()));
    }
}

/// No word from the server: its process is another one, its session is lost, or its connection was cut.
fn chg_05_a_server_that_comes_back_as_another_is_announced(cell: Cell) {
    let up = telling(cell.server).over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::of(&gateway, cell.client);
    let mut open = client.listening();
    up.wait_heard();
    let before = (up.processes().len(), up.listened());
    up.set_tools(entries(&["fresh"]));
    match (cell.transport, cell.server) {
        (Transport::Stdio, _) => up.process().exit(1),
        (Transport::Http, Era::Legacy) => {
            // Calls go in a session of their client's own, which must be there to be lost.
            assert_eq!(client.echo("up__echo", "x"), "x");
            up.forget_sessions();
            assert_eq!(client.echo("up__echo", "x"), "x");
        }
        (Transport::Http, Era::Modern) | (Transport::Sse, _) => {
            up.go_down();
            up.come_back();
        }
    }
    expect_changed(&mut open);
    assert_eq!(client.tool_names(), ["up__fresh"]);
    assert_eq!(client.call("up__echo", json!({}))["error"]["code"], -32602, "the old one is unknown");
    // It is listened to again.
    if cell.transport == Transport::Stdio {
        eventually("another process", || (up.processes().len() > before.0).then_some(()));
    }
    eventually("it is listened to", || (up.listened() >= before.1).then_some(()));
    up.wait_heard();
    up.change_tools(entries(&["fresh", "echo"]));
    expect_changed(&mut open);
}

#[test]
fn agg_05_a_server_that_comes_late_is_announced() {
    let late = telling(Era::Legacy).http();
    let there = Script::echo(Era::Modern).stdio();
    late.go_down();
    let gateway = Config::new().upstream("late", &late).upstream("there", &there).start();
    let clients = ERAS.map(|era| Client::of(&gateway, era));
    clients[0].wait_tools(&["there__echo"]);
    let opens = clients.each_ref().map(Client::listening);
    late.come_back();
    for (client, mut open) in clients.iter().zip(opens) {
        // The session began before the other server was there: that is told first, if it came in between.
        while !client.tool_names().contains(&"late__echo".to_owned()) {
            expect_changed(&mut open);
        }
        assert_eq!(client.echo("late__echo", "x"), "x");
    }
}

/// A client that is faster than the servers is told when they are there.
#[test]
fn a_session_that_is_older_than_the_servers_hears_of_them() {
    let up = Script::echo(Era::Legacy).http();
    up.go_down();
    let gateway = Config::new().upstream("up", &up).start();
    let client = Client::legacy(&gateway);
    assert_eq!(client.tool_names(), Vec::<String>::new());
    assert_eq!(
        client.hello.as_ref().unwrap()["result"]["capabilities"]["tools"],
        json!({"listChanged": true})
    );
    up.come_back();
    gateway.wait_ready();
    std::thread::sleep(scaled(300));
    let mut open = client.listening();
    expect_changed(&mut open);
    drop(open);
    assert!(client.listening().is_silent(scaled(300)), "once");
}

#[test]
fn ses_06_a_lost_upstream_session_takes_its_stream_along() {
    let up = telling(Era::Legacy).http();
    let gateway = Config::new().upstream_with("up", &up, json!({"isolation": "shared"})).ready();
    let client = Client::legacy(&gateway);
    let mut open = client.listening();
    up.wait_heard();
    up.forget_sessions();
    for index in 0..20 {
        assert_eq!(client.echo("up__echo", &index.to_string()), index.to_string());
    }
    let jobs: Vec<_> = (0..20)
        .map(|index: usize| {
            let client = &client;
            move || assert_eq!(client.echo("up__echo", &index.to_string()), index.to_string())
        })
        .collect();
    at_once(jobs);
    eventually("the stream of the new session", || (up.gets() == 2 && up.listened() == 1).then_some(()));
    up.change_tools(entries(&["echo", "fresh"]));
    expect_changed(&mut open);
}

#[test]
fn str_03_idle_streams_are_kept_alive() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("sessions", json!({"keep_alive": "1s"})).ready();
    for era in ERAS {
        let mut open = Client::of(&gateway, era).listening();
        for _ in 0..3 {
            let from = std::time::Instant::now();
            open.wait_comment();
            assert!(from.elapsed() < scaled(5_000), "{era:?}: {:?}", from.elapsed());
        }
    }
}

#[test]
fn str_04_get_is_a_stream_or_405() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    for accept in ["text/event-stream", BOTH, "*/*"] {
        let open = client.bodyless("GET").header("Accept", accept).open();
        assert_eq!((open.status, open.head.header("content-type")), (200, Some("text/event-stream")));
    }
    let json_only = client.bodyless("GET").header("Accept", "application/json").send();
    assert_eq!(json_only.status, 406, "{}", json_only.text());
    let stranger = Client::bare(&gateway, Era::Legacy);
    let refused = stranger.bodyless("GET").header("Accept", "text/event-stream").send();
    assert_eq!(refused.status, 405);
    assert!(refused.header("allow").unwrap().contains("POST"), "{:?}", refused.head);
    let unknown = stranger.bodyless("GET").header("Mcp-Session-Id", "made-up").send();
    assert_eq!(unknown.status, 404);
    assert_eq!(client.echo("up__echo", "alive"), "alive");
}

#[test]
fn str_05_a_server_without_a_stream_is_left_in_peace() {
    let refusing = Script::echo(Era::Legacy).http();
    let healthy = telling(Era::Legacy).http();
    let gateway = Config::new().upstream("refusing", &refusing).upstream("healthy", &healthy).ready();
    let mut open = Client::legacy(&gateway).listening();
    healthy.wait_heard();
    let lists = healthy.of_method("tools/list").len();
    assert!(open.is_silent(scaled(4_000)));
    assert!(refusing.gets() <= 2, "{} GETs", refusing.gets());
    assert_eq!(healthy.of_method("tools/list").len(), lists);
    assert_eq!(healthy.gets(), 1);
}

#[test]
fn two_hundred_streams_hear_one_change() {
    let up = telling(Era::Modern).http();
    let gateway = Config::new().upstream("up", &up).ready();
    let mut opens: Vec<Open> =
        (0..200).map(|index| Client::of(&gateway, ERAS[index % 2]).listening()).collect();
    open_streams(&gateway, 200.0);
    gateway.wait_metric("waypost_streams_open", &[("kind", "subscription")], 100.0);
    up.wait_heard();
    up.change_tools(entries(&["echo", "fresh"]));
    opens.iter_mut().for_each(expect_changed);
    opens.into_iter().for_each(Open::hang_up);
    open_streams(&gateway, 0.0);
}

#[test]
fn a_client_has_so_many_streams_and_no_more() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = Config::new().upstream("up", &up).set("limits", json!({"streams": 2})).ready();
    let (legacy, modern) = (Client::legacy(&gateway), Client::modern(&gateway));
    let opens = [legacy.listening(), modern.listening()];
    let one_more = modern.request("subscriptions/listen", r#"{"notifications":{}}"#).send();
    assert_eq!(one_more.status, 429, "{}", one_more.text());
    assert!(one_more.text().contains("limits.streams"), "{}", one_more.text());
    // The stream of a session that comes again takes the place of the one before.
    let again = legacy.listening();
    assert_eq!(legacy.echo("up__echo", "calls go on"), "calls go on");
    opens.into_iter().chain([again]).for_each(Open::hang_up);
    open_streams(&gateway, 0.0);
    modern.listening();
}

/// The stream keeps its session for as long as somebody is there to read it.
#[test]
fn ses_01_a_session_lives_with_its_stream_and_is_collected_after_it() {
    let up = Script::echo(Era::Legacy).stdio();
    let sessions = json!({"idle_timeout": "1s", "keep_alive": "1s"});
    let gateway = Config::new().upstream("up", &up).set("sessions", sessions).ready();
    let client = Client::legacy(&gateway);
    let open = client.listening();
    std::thread::sleep(scaled(2_500));
    assert_eq!(client.echo("up__echo", "x"), "x");
    open.hang_up();
    gateway.wait_metric("waypost_sessions", &[], 0.0);
    assert_eq!(client.request("tools/list", "{}").send().status, 404);
    let other = Client::legacy(&gateway);
    let mut open = other.listening();
    assert!(matches!(other.bodyless("DELETE").send().status, 200 | 204));
    assert!(open.message().is_none(), "the stream ends with its session");
}

#[test]
fn dep_01_open_streams_end_well() {
    let script = telling(Era::Legacy).tool("slow", |turn| {
        std::thread::sleep(scaled(1_000));
        turn.text("ended well");
    });
    let up: Upstream = script.stdio();
    let mut gateway = Config::new().upstream("up", &up).ready();
    let (legacy, modern) = (Client::legacy(&gateway), Client::modern(&gateway));
    let (mut get, mut listen) = (legacy.listening(), modern.listening());
    let child = up.process().pid();
    let slow = legacy.calling("up__slow", "{}");
    std::thread::scope(|scope| {
        let running = scope.spawn(move || slow.send().json());
        eventually("the slow call is there", || (up.calls().len() == 1).then_some(()));
        gateway.signal(Signal::TERM);
        assert!(get.message().is_none(), "a clean end");
        let end = listen.message().expect("a result");
        assert_eq!(end["result"]["resultType"], "complete", "{end}");
        assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], end["id"]);
        assert!(listen.message().is_none(), "then the end");
        let answer = running.join().unwrap();
        assert_eq!(answer["result"]["content"][0]["text"], "ended well", "{answer}");
    });
    assert_eq!(gateway.wait_exit(), Some(0));
    eventually("no child is left", || (!process::is_alive(child)).then_some(()));
}
