//! The configuration read again while the gateway runs: what has not changed goes on, what has bites at once, and
//! what is wrong changes nothing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::client::{Client, Request};
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Gate;
use crate::support::upstream::Upstream;
use crate::support::{eventually, process, scaled};

fn write(gateway: &Gateway, config: &Config) {
    std::fs::write(gateway.folder().join("gateway.yaml"), config.text()).unwrap();
}

/// Has the configuration read again, and gives what came of it.
fn reload(gateway: &Gateway) -> Value {
    Request::post(gateway.admin, "/api/reload", "").send().json()
}

/// Takes up another configuration.
fn change(gateway: &Gateway, config: &Config) -> Value {
    write(gateway, config);
    let page = reload(gateway);
    assert_eq!(page["outcome"], "applied", "{page}");
    page
}

/// How often a reload ended so.
fn wait_reloads(gateway: &Gateway, outcome: &str, count: f64) {
    gateway.wait_metric("waypost_config_reloads_total", &[("outcome", outcome)], count);
}

fn token(name: &str) -> String {
    format!("a-token-of-{name}")
}

fn tokens(names: &[&str]) -> Value {
    let digests = names.iter().map(|name| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token(name).as_bytes());
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        json!(format!("sha256:{hex}"))
    });
    digests.collect()
}

/// `a`, which is left alone, and `b` with a variable.
fn two(a: &Upstream, b: &Upstream, variable: &str) -> Config {
    let more = json!({"env": {"VARIABLE": variable}});
    Config::new().upstream("a", a).upstream_with("b", b, more).set("reload_interval", json!("100ms"))
}

/// The three ways in which files change: in place, by another one in its place, and by a link that leads elsewhere.
fn write_by(way: &str, folder: &Path, text: &str) {
    let file = folder.join("gateway.yaml");
    match way {
        "in place" => std::fs::write(file, text).unwrap(),
        "renamed over" => {
            std::fs::write(folder.join(".gateway.yaml.swp"), text).unwrap();
            std::fs::rename(folder.join(".gateway.yaml.swp"), file).unwrap();
        }
        "link swapped" => {
            std::fs::create_dir(folder.join("..second")).unwrap();
            std::fs::write(folder.join("..second/gateway.yaml"), text).unwrap();
            std::os::unix::fs::symlink("..second", folder.join("..data_tmp")).unwrap();
            std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        }
        other => unreachable!("{other}"),
    }
}

/// A folder as a mounted configuration map is.
fn mounted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("..first")).unwrap();
    std::fs::write(folder.path().join("..first/gateway.yaml"), "").unwrap();
    std::os::unix::fs::symlink("..first", folder.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/gateway.yaml", folder.path().join("gateway.yaml")).unwrap();
    folder
}

#[test]
fn cfg_03_only_what_changed_begins_anew_however_the_file_changes() {
    for way in ["in place", "renamed over", "link swapped"] {
        let (gate, held) = Gate::new("late");
        let a = Script::echo(Era::Legacy).tool("held", held).stdio();
        let b = Script::echo(Era::Legacy).stdio();
        let folder = if way == "link swapped" { mounted() } else { tempfile::tempdir().unwrap() };
        let gateway = Gateway::start_in(folder, &two(&a, &b, "1").text(), &[]);
        gateway.wait_ready();
        let client = Client::legacy(&gateway);
        let mut stream = client.listening();
        let call = client.calling("a__held", "{}").open();
        eventually("the call is there", || (a.calls().len() == 1).then_some(()));
        write_by(way, &gateway.folder(), &two(&a, &b, "2").text());
        wait_reloads(&gateway, "applied", 1.0);
        eventually("another b", || (b.processes().len() == 2).then_some(()));
        eventually("it works", || (client.echo("b__echo", way) == way).then_some(()));
        gate.open();
        let answer = call.whole();
        assert!(answer.text().contains("late"), "{way}: {}", answer.text());
        assert_eq!(a.processes().len(), 1, "{way}: the other server was left alone");
        assert_eq!(client.echo("a__echo", "x"), "x", "{way}: in the same session");
        assert!(stream.is_silent(scaled(500)), "{way}: nothing changed for the client");

        write_by("in place", &gateway.folder(), &two(&a, &b, "2").text());
        wait_reloads(&gateway, "unchanged", 1.0);
        assert_eq!((a.processes().len(), b.processes().len()), (1, 2), "{way}: nothing begins anew");
    }
}

#[test]
fn cfg_05_what_is_wrong_changes_nothing_and_is_told() {
    let (a, b) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Legacy).stdio());
    let gateway = two(&a, &b, "1").ready();
    let client = Client::legacy(&gateway);
    let text = two(&a, &b, "2").text();
    let file = gateway.folder().join("gateway.yaml");
    let half = text.get(..text.len() / 2).unwrap();
    let bad = two(&a, &b, "2").raw_upstream("c", json!({"comand": "x"})).text();
    for (times, wrong) in [(1.0, Some(half)), (2.0, Some(&*bad)), (3.0, None)] {
        match wrong {
            Some(text) => std::fs::write(&file, text).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        wait_reloads(&gateway, "refused", times);
        gateway.wait_metric("waypost_config_last_reload_successful", &[], 0.0);
        assert_eq!(client.echo("a__echo", "x"), "x");
    }
    eventually("each is told once", || (gateway.events("config_refused").len() == 3).then_some(()));
    let told = gateway.events("config_refused");
    let reason = |place: usize| told[place]["reason"].as_str().unwrap().to_owned();
    assert!(reason(1).contains("comand") && reason(1).contains("gateway.yaml:"), "{}", reason(1));
    assert!(reason(2).contains("cannot read"), "{}", reason(2));
    let page = reload(&gateway);
    assert_eq!((&page["outcome"], &page["cause"]), (&json!("refused"), &json!("admin")));
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).unwrap();
    assert_eq!(status["last_reload"]["outcome"], "refused");
    assert_eq!((a.processes().len(), b.processes().len()), (1, 1));

    std::fs::write(&file, &text).unwrap();
    wait_reloads(&gateway, "applied", 1.0);
    gateway.wait_metric("waypost_config_last_reload_successful", &[], 1.0);
    eventually("another b", || (b.processes().len() == 2).then_some(()));
    for number in 0..50 {
        std::fs::write(&file, two(&a, &b, &format!("burst {number}")).text()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::write(&file, two(&a, &b, "at last").text()).unwrap();
    eventually("the last one is in force", || (reload(&gateway)["outcome"] == "unchanged").then_some(()));
    eventually("one server each", || (process::servers(gateway.pid()).len() == 2).then_some(()));
    assert_eq!(client.echo("b__echo", "x"), "x");
    assert_eq!(a.processes().len(), 1);
}

#[test]
fn a_hangup_has_the_file_read() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up).set("reload_interval", json!("0s"));
    let gateway = config.ready();
    let other = Script::echo(Era::Modern).http();
    write(&gateway, &config.upstream("other", &other));
    std::thread::sleep(scaled(300));
    assert!(gateway.events("config_applied").is_empty(), "nobody looks");
    gateway.signal(Signal::HUP);
    let line = gateway.wait_event("config_applied");
    assert_eq!((&line["cause"], &line["upstreams_started"]), (&json!("SIGHUP"), &json!("other")));
    let client = Client::legacy(&gateway);
    client.wait_tools(&["up__echo", "other__echo"]);
    assert_eq!(client.echo("other__echo", "x"), "x");
}

fn expect_changed(open: &mut crate::support::client::Open) {
    let message = open.message().expect("a notification, not the end of the stream");
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
}

#[test]
fn chg_03_who_sees_something_else_is_told_and_a_denial_bites_at_once() {
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::legacy().tools(["read", "write"]).stdio();
        let clients = |deny: Value| json!({"alice": {"tokens": tokens(&["alice"]), "tools": {"deny": deny}}, "bob": {"tokens": tokens(&["bob"])}});
        let config = |deny| Config::new().upstream("up", &up).clients(clients(deny));
        let gateway = config(json!([])).ready();
        let [alice, bob] = ["alice", "bob"].map(|name| Client::bare(&gateway, era).bearer(&token(name)));
        let [alice, bob] = [alice, bob].map(|client| match era {
            Era::Legacy => client.connected("2025-11-25"),
            Era::Modern => client,
        });
        let (mut to_alice, mut to_bob) = (alice.listening(), bob.listening());
        let more = Script::legacy().tools(["more"]).http();
        change(&gateway, &config(json!([])).upstream("more", &more));
        expect_changed(&mut to_alice);
        expect_changed(&mut to_bob);
        assert_eq!(bob.tool_names(), ["more__more", "up__read", "up__write"]);

        change(&gateway, &config(json!(["*write"])).upstream("more", &more));
        let before = up.calls().len();
        assert_eq!(alice.call("up__write", json!({}))["error"]["message"], "Unknown tool: up__write");
        assert_eq!(up.calls().len(), before, "at once, listed again or not");
        expect_changed(&mut to_alice);
        assert_eq!(alice.tool_names(), ["more__more", "up__read"]);
        assert!(to_bob.is_silent(scaled(500)), "nothing changed for the other one");
        assert_eq!(bob.call("up__write", json!({}))["result"]["isError"], Value::Null);
    }
}

#[test]
fn aut_10_a_token_that_is_taken_away_is_good_for_nothing_and_the_session_stays() {
    let up = Script::echo(Era::Legacy).http();
    let config = |names: &[&str]| {
        Config::new()
            .upstream("up", &up)
            .clients(json!({"c": {"tokens": tokens(names)}, "d": {"tokens": tokens(&["d"])}}))
    };
    let gateway = config(&["old", "new"]).ready();
    let old = Client::legacy_with(&gateway, &token("old"));
    assert_eq!(old.echo("up__echo", "x"), "x");
    let mut stream = old.listening();
    let mut other = Client::legacy_with(&gateway, &token("d")).listening();
    change(&gateway, &config(&["new"]));
    assert_eq!(old.request("tools/list", "{}").send().status, 401);
    assert!(stream.message().is_none(), "its stream ends");
    assert!(other.is_silent(scaled(300)), "another client's does not");
    let mut new = Client::bare(&gateway, Era::Legacy).bearer(&token("new"));
    new.headers.extend(old.headers.iter().filter(|(name, _)| name != "Authorization").cloned());
    assert_eq!(new.echo("up__echo", "y"), "y", "the session is the client's, not the token's");
}

#[test]
fn a_client_that_is_no_more_is_nobody() {
    let up = Script::echo(Era::Legacy).http();
    let config = |clients: Value| Config::new().upstream("up", &up).clients(clients);
    let both = json!({"first": {"tokens": tokens(&["first"])}, "second": {"tokens": tokens(&["second"])}});
    let gateway = config(both.clone()).ready();
    let first = Client::legacy_with(&gateway, &token("first"));
    let second = Client::legacy_with(&gateway, &token("second"));
    let mut stream = first.listening();
    let third = json!({
        "third": {"tokens": tokens(&["third"]), "tools": {"deny": ["*"]}},
        "second": {"tokens": tokens(&["second"])},
    });
    change(&gateway, &config(third));
    assert!(stream.message().is_none(), "its stream ends");
    assert_eq!(first.request("tools/list", "{}").send().status, 401);
    assert_eq!(second.echo("up__echo", "x"), "x", "in its session");
    assert!(Client::legacy_with(&gateway, &token("third")).tool_names().is_empty(), "by rules of its own");
    let who = gateway.admin("/api/who?tool=up__echo").1;
    assert!(who.contains("third") && !who.contains("first"), "{who}");
    change(&gateway, &config(both));
    assert_eq!(Client::legacy_with(&gateway, &token("first")).echo("up__echo", "x"), "x");
}

#[test]
fn std_10_an_upstream_that_is_no_more_leaves_nothing_once_its_calls_have_ended() {
    let (gate, held) = Gate::new("late");
    let (kept, gone) =
        (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Legacy).tool("held", held).stdio());
    let config = Config::new().upstream("kept", &kept);
    let gateway = config.clone().upstream("gone", &gone).ready();
    let client = Client::legacy(&gateway);
    let call = client.calling("gone__held", "{}").open();
    eventually("the call is there", || (gone.calls().len() == 1).then_some(()));
    let process = gone.process().pid();
    let page = change(&gateway, &config);
    assert_eq!(page["upstreams"], json!({"started": [], "replaced": [], "ended": ["gone"]}));
    assert_eq!(client.tool_names(), ["kept__echo"]);
    assert_eq!(client.call("gone__echo", json!({}))["error"]["code"], -32602);
    std::thread::sleep(scaled(1_500));
    assert!(process::is_alive(process), "it has a call");
    gate.open();
    assert!(call.whole().text().contains("late"));
    eventually("its process ends", || (!process::is_alive(process)).then_some(()));
    eventually("its series are gone", || {
        let text = gateway.admin("/metrics").1;
        (!text.contains("upstream=\"gone\"") && text.contains("upstream=\"kept\"")).then_some(())
    });
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).unwrap();
    assert_eq!(status["upstreams"].as_array().map(Vec::len), Some(1), "{status}");
}

#[test]
fn what_was_used_up_of_a_limit_stays_so() {
    let up = Script::echo(Era::Legacy).http();
    let client = |rate: &str| json!({"c": {"tokens": tokens(&["c"]), "limits": {"rate": rate}}});
    let config = Config::new().upstream("up", &up);
    let gateway = config.clone().clients(client("3/h")).ready();
    let caller = Client::modern_with(&gateway, &token("c"));
    let is_limited = || caller.call("up__echo", json!({"text": "x"}))["result"]["isError"] == true;
    assert_eq!([is_limited(), is_limited(), is_limited(), is_limited()], [false, false, false, true]);
    change(&gateway, &config.clone().clients(client("3/h")).set("instructions", json!("something else")));
    assert!(is_limited(), "the same limit");
    change(&gateway, &config.clients(client("5/h")));
    assert!(!is_limited(), "another limit");
}

#[test]
fn what_only_a_restart_can_change_is_named_and_the_rest_is_in_force() {
    let (up, more) = (Script::echo(Era::Legacy).http(), Script::echo(Era::Legacy).http());
    let config = Config::new().upstream("up", &up);
    let gateway = config.ready();
    let another = config.clone().upstream("more", &more).set("limits", json!({"body": "1KiB"}));
    let page = change(&gateway, &another.clone().set("sessions", json!({"idle_timeout": "1m"})));
    assert_eq!(page["restart_needed"], json!(["limits", "sessions"]));
    gateway.wait_metric("waypost_config_restart_needed", &[], 1.0);
    gateway.wait_warning("restart_needed");
    let client = Client::legacy(&gateway);
    client.wait_tools(&["up__echo", "more__echo"]);
    let long = "x".repeat(4_096);
    assert_eq!(client.echo("up__echo", &long), long, "the limit is that of the start");
    change(&gateway, &config.upstream("more", &more));
    gateway.wait_metric("waypost_config_restart_needed", &[], 0.0);
}

#[test]
fn endpoints_come_and_go() {
    let (a, b) = (Script::echo(Era::Legacy).http(), Script::echo(Era::Legacy).http());
    let config = Config::new().upstream("a", &a).upstream("b", &b);
    let gateway = config.ready();
    let client = Client::legacy(&gateway);
    let ask = |path: &str| {
        let mut client = Client::modern(&gateway);
        client.path = path.to_owned();
        client.request("tools/list", "{}").send()
    };
    assert_eq!(ask("/only").status, 404);
    let endpoints = json!({"/mcp": {}, "/only": {"upstreams": ["b"], "prefixes": {"b": ""}}});
    change(&gateway, &config.clone().set("endpoints", endpoints));
    let listed = ask("/only").json();
    assert_eq!(listed["result"]["tools"][0]["name"], "echo", "{listed}");
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1));
    assert_eq!(client.echo("a__echo", "x"), "x", "the session goes on where it began");
    change(&gateway, &config);
    assert_eq!(ask("/only").status, 404);
    assert_eq!(client.echo("b__echo", "x"), "x");
}

#[test]
fn what_is_followed_is_followed_at_the_next_server_too() {
    for transport in [Transport::Stdio, Transport::Http] {
        let up = Script::legacy().telling_of_resources([]).resources("up", ["file:///a"]).over(transport);
        let config = |timeout: &str| Config::new().upstream_with("up", &up, json!({"timeout": timeout}));
        let gateway = config("20s").ready();
        let client = Client::legacy(&gateway);
        let mut stream = client.listening();
        let answer = client.request("resources/subscribe", r#"{"uri":"file:///a"}"#).send().json();
        assert!(answer["result"].is_object(), "{answer}");
        up.wait_subscribed(&["file:///a"]);
        let asked = up.of_method("resources/subscribe").len();
        change(&gateway, &config("21s"));
        eventually("it is asked again", || (up.of_method("resources/subscribe").len() > asked).then_some(()));
        eventually("an update arrives", || {
            up.update("file:///a");
            stream.patience(scaled(500));
            let message = stream.try_event().ok().flatten()?;
            message.data.contains("notifications/resources/updated").then_some(())
        });
    }
}

#[test]
fn a_hundred_reloads_under_load_fail_no_call_and_leave_nothing_behind() {
    let a = Script::echo(Era::Legacy).stdio();
    let b = Script::echo(Era::Modern).http();
    let c = Script::echo(Era::Legacy).stdio();
    let config = |number: usize| {
        let config = Config::new().upstream("a", &a);
        let config = config.upstream_with("b", &b, json!({"headers": {"X-Number": number.to_string()}}));
        let config = if number % 10 < 5 { config.upstream("c", &c) } else { config };
        let config = config.set("instructions", json!(format!("the {number}th")));
        match number % 3 {
            0 => config.set("page_size", json!(1 + number)),
            1 => config.set("policy", json!({"reveal_denied": true})),
            _ => config,
        }
    };
    let gateway = config(0).ready();
    let (is_over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (gateway, is_over, calls) = (&gateway, &is_over, &calls);
            scope.spawn(move || {
                let client = if number % 2 == 0 { Client::legacy(gateway) } else { Client::modern(gateway) };
                while !is_over.load(Ordering::Relaxed) {
                    for name in ["a__echo", "b__echo"] {
                        let text = calls.fetch_add(1, Ordering::Relaxed).to_string();
                        assert_eq!(client.echo(name, &text), text, "{name}");
                    }
                }
            });
        }
        for number in 1..=100 {
            change(&gateway, &config(number));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 100);
    assert_eq!(a.processes().len(), 1, "what never changed was never touched");
    eventually("one server is left of each", || {
        (process::servers(gateway.pid()).len() == 1 + usize::from(100 % 10 < 5)).then_some(())
    });
    eventually("few descriptors are open", || {
        (gateway.metrics().sum("waypost_process_open_fds", &[]) < 60.0).then_some(())
    });
    wait_reloads(&gateway, "applied", 100.0);
}

#[test]
fn a_launched_gateway_reads_its_file_again_too() {
    let up = Script::echo(Era::Legacy).stdio();
    let config = Config::new().upstream("up", &up).set("reload_interval", json!("100ms"));
    let mut pipe = crate::support::pipe::Pipe::launch(&config, &[]);
    pipe.open(Era::Legacy, "{}");
    pipe.ask(Era::Legacy, 7, "tools/list", "{}");
    let listed = pipe.message();
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1), "{listed}");
    let denied = config.set("upstreams", json!({"up": {"tools": {"deny": ["*"]}}}));
    std::fs::write(pipe.folder().join("gateway.yaml"), denied.text()).unwrap();
    assert_eq!(pipe.message()["method"], "notifications/tools/list_changed");
    pipe.ask(Era::Legacy, 8, "tools/list", "{}");
    assert_eq!(pipe.message()["result"]["tools"], json!([]));
    assert_eq!(up.processes().len(), 1, "its server was left alone");
}
