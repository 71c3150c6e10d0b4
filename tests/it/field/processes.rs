//! When the processes of upstreams run, and what they may take: as few as are used, and none that takes the machine.

use std::fs;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::{Config, Gateway};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::turn::Gate;
use crate::support::upstream::Upstream;
use crate::support::{at_once, eventually, process, scaled};

const UP: [(&str, &str); 1] = [("upstream", "up")];

fn kept(up: &Upstream, process: Value) -> Config {
    Config::new().upstream_with("up", up, json!({"process": process}))
}

fn status(gateway: &Gateway) -> Value {
    let status: Value = serde_json::from_str(&gateway.admin("/api/status").1).expect("JSON");
    status["upstreams"][0].clone()
}

fn wait_servers(gateway: &Gateway, wanted: usize) {
    let what = format!("{wanted} servers");
    eventually(&what, || (process::servers(gateway.pid()).len() == wanted).then_some(()));
}

/// Waits until it is idle: no process, and said so.
fn wait_idle(gateway: &Gateway) {
    eventually("it is idle", || (status(gateway)["state"] == "idle").then_some(()));
    wait_servers(gateway, 0);
    gateway.wait_metric("waypost_upstream_idle", &UP, 1.0);
}

fn told(answer: &Value) -> String {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    answer["result"]["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[test]
fn what_a_lazy_server_offers_is_there_while_its_process_is_not() {
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::echo(era).resources("up", ["file:///a"]).stdio();
        let gateway = kept(&up, json!({"start": "lazy"})).ready();
        wait_idle(&gateway);
        assert_eq!(gateway.admin("/readyz?upstreams=all").0, 200, "it can be called");
        let (legacy, modern) = (Client::legacy(&gateway), Client::modern(&gateway));
        assert_eq!(legacy.tool_names(), ["up__echo"]);
        assert_eq!(modern.resource_uris(), ["file:///a"]);
        assert_eq!(up.processes().len(), 1, "the one that the lists were read from");
        assert_eq!(legacy.echo("up__echo", "a"), "a");
        assert_eq!(modern.echo("up__echo", "b"), "b");
        assert_eq!(up.processes().len(), 2, "the first call has started it, the second has found it");
        assert_eq!(
            (status(&gateway)["state"].as_str(), status(&gateway)["failures"].as_u64()),
            (Some("ready"), None)
        );
        gateway.wait_metric("waypost_upstream_idle", &UP, 0.0);
        assert_eq!(gateway.metrics().sum("waypost_upstream_restarts_total", &UP), 0.0, "nothing was lost");
    }
}

#[test]
fn std_a_stampede_starts_one_process() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = kept(&up, json!({"start": "lazy"})).ready();
    wait_idle(&gateway);
    let clients: Vec<_> = (0..50).map(|index| (Client::modern(&gateway), index.to_string())).collect();
    let echoed = at_once(clients.iter().map(|(client, text)| || client.echo("up__echo", text)).collect());
    assert!(clients.iter().map(|(_, text)| text).eq(&echoed), "{echoed:?}");
    assert_eq!(up.processes().len(), 2, "one for the lists, one for all of them");
}

#[test]
fn lek_a_process_ends_after_its_last_call_and_never_under_one() {
    let (gate, hold) = Gate::new("held");
    let up = Script::echo(Era::Legacy).tool("hold", hold).stdio();
    let gateway = kept(&up, json!({"idle_stop": "300ms"})).ready();
    let client = Client::modern(&gateway);
    std::thread::scope(|scope| {
        let holding = scope.spawn(|| client.echo("up__hold", ""));
        up.wait_method("tools/call");
        std::thread::sleep(scaled(1_000));
        assert_eq!(process::servers(gateway.pid()).len(), 1, "it works on a call");
        gate.open();
        assert_eq!(holding.join().unwrap(), "held");
    });
    assert_eq!(up.processes().len(), 1);
    wait_idle(&gateway);
    assert_eq!(client.echo("up__echo", "x"), "x");
    assert_eq!(gateway.metrics().sum("waypost_upstream_idle_stops_total", &UP), 1.0);
    assert!(up.processes()[0].has_eof(), "it was ended by the end of its input");
}

/// Calls that come just as the process is being ended are not lost with it.
#[test]
fn con_no_call_is_lost_to_the_end_of_an_idle_process() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = kept(&up, json!({"idle_stop": "100ms"})).ready();
    let client = Client::modern(&gateway);
    for round in 0..40_u64 {
        std::thread::sleep(std::time::Duration::from_millis(85 + round));
        assert_eq!(client.echo("up__echo", "x"), "x", "round {round}");
    }
    assert!(up.processes().len() > 2, "it was ended now and then");
    assert_eq!(up.calls().len(), 40, "and each call reached it once");
}

#[test]
fn sub_a_followed_resource_keeps_its_process_running_and_starts_it() {
    const A: &str = "file:///a";
    for era in [Era::Legacy, Era::Modern] {
        let up = Script::echo(era).telling_of_resources([]).resources("up", [A]).stdio();
        let gateway = kept(&up, json!({"start": "lazy", "idle_stop": "200ms"})).ready();
        wait_idle(&gateway);
        let client = Client::modern(&gateway);
        let filter = json!({"notifications": {"resourceSubscriptions": [A]}}).to_string();
        let mut open = client.request("subscriptions/listen", &filter).open();
        assert_eq!(
            open.message().expect("an acknowledgement")["method"],
            "notifications/subscriptions/acknowledged"
        );
        up.wait_subscribed(&[A]);
        std::thread::sleep(scaled(1_000));
        assert_eq!(process::servers(gateway.pid()).len(), 1, "it has to tell of something");
        up.wait_heard();
        up.update(A);
        let update = open.message().expect("an update");
        assert_eq!(update["method"], "notifications/resources/updated", "{update}");
        open.hang_up();
        wait_idle(&gateway);
    }
}

#[test]
fn agg_a_process_that_does_not_start_again_is_down_and_says_why() {
    let up = Script::echo(Era::Legacy).stdio();
    let gateway = kept(&up, json!({"start": "lazy", "idle_stop": "200ms"})).ready();
    wait_idle(&gateway);
    up.go_down();
    let client = Client::modern(&gateway);
    let text = told(&client.call("up__echo", json!({"text": "x"})));
    assert!(text.contains("the process exited"), "{text}");
    eventually("it is down", || (status(&gateway)["state"] == "down").then_some(()));
    assert_eq!(client.tool_names(), ["up__echo"], "for as long as `grace` lasts");
    up.come_back();
    eventually("it works again", || {
        (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
    });
    wait_idle(&gateway);
}

/// The process that the lists are read from is not needed for calls on others.
#[test]
fn ses_07_a_session_starts_its_own_process_and_no_other() {
    let up = Script::echo(Era::Legacy).stdio();
    let more = json!({"isolation": "per_session", "process": {"start": "lazy", "idle_stop": "500ms"}});
    let gateway = Config::new().upstream_with("up", &up, more).ready();
    wait_idle(&gateway);
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("up__echo", "x"), "x");
    assert_eq!(process::servers(gateway.pid()).len(), 1);
    assert_eq!(status(&gateway)["state"], "idle");
    gateway.wait_metric("waypost_upstream_own_connections", &UP, 1.0);
    wait_servers(&gateway, 0);
    gateway.wait_metric("waypost_upstream_own_connections", &UP, 0.0);
}

#[test]
fn std_a_process_that_takes_too_much_is_killed_and_its_calls_are_told_why() {
    let bounds = [("max_memory", json!("80MiB"), "eat"), ("max_cpu_time", json!("1s"), "spin")];
    for isolation in ["shared", "per_session"] {
        for (key, most, deed) in &bounds {
            // The deed is done by a process of the server's own.
            let up = Script::echo(Era::Legacy)
                .tool("eat", |turn| turn.process().unwrap().eat(200))
                .tool("spin", |turn| turn.process().unwrap().spin())
                .stdio();
            let more = json!({"isolation": isolation, "process": {*key: most}});
            let gateway = Config::new().upstream_with("up", &up, more).ready();
            let client = Client::legacy(&gateway);
            assert_eq!(client.echo("up__echo", "x"), "x");
            let text = told(&client.call(&format!("up__{deed}"), json!({})));
            assert!(text.contains(key) && text.contains("was killed"), "{text}");
            eventually("it works again", || {
                (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
            });
            gateway.wait_metric("waypost_upstream_process_over_bounds_total", &UP, 1.0);
            let event = &gateway.events("process_over_bounds")[0];
            assert_eq!(event["bound"], *key, "{event}");
            let expected = if isolation == "shared" { 1 } else { 2 };
            eventually("what it had started is gone", || {
                (process::descendants(gateway.pid()).len() == expected + 1).then_some(())
            });
        }
    }
}

/// A server that counts in a file how often it is started.
fn counted(up: &Upstream, folder: &std::path::Path, more: Value) -> Value {
    let entry = up.entry();
    let mut args =
        vec![json!("-c"), json!("echo x >> spawns; exec \"$@\""), json!("sh"), entry["command"].clone()];
    args.extend(entry["args"].as_array().into_iter().flatten().cloned());
    let mut counted = json!({"command": "sh", "args": args, "cwd": folder});
    let both = counted.as_object_mut().zip(more.as_object().cloned());
    let (counted_object, more) = both.expect("two objects");
    counted_object.extend(more);
    counted
}

fn spawns(folder: &std::path::Path) -> usize {
    fs::read_to_string(folder.join("spawns")).map_or(0, |text| text.lines().count())
}

/// Fifty sessions call, again and again, a server that does not start.
#[test]
fn con_fifty_sessions_do_not_start_a_broken_server_fifty_times() {
    let folder = tempfile::tempdir().unwrap();
    let up = Script::echo(Era::Legacy).stdio();
    // Idle: the calls of sessions do not see by another connection that it is broken.
    let more = json!({"isolation": "per_session", "max_connections": 50, "process": {"start": "lazy"}});
    let gateway = Config::new().raw_upstream("up", counted(&up, folder.path(), more)).ready();
    wait_idle(&gateway);
    let clients: Vec<_> = (0..50).map(|_| Client::legacy(&gateway)).collect();
    up.go_down();
    let before = spawns(folder.path());
    let began = Instant::now();
    for _ in 0..5 {
        let answers =
            at_once(clients.iter().map(|client| || client.call("up__echo", json!({"text": "x"}))).collect());
        answers.iter().for_each(|answer| assert!(told(answer).contains("the process exited"), "{answer}"));
    }
    let started = spawns(folder.path()) - before;
    let trials = usize::try_from(began.elapsed().as_millis() / 300).unwrap();
    assert!(started <= 8 + trials, "{started} for 250 calls");
    up.come_back();
    for client in [&clients[0], &clients[49]] {
        eventually("it works again", || {
            (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
        });
    }
}

/// And one that starts, and dies of every call.
#[test]
fn con_a_session_whose_process_dies_of_its_calls_waits_ever_longer_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let up = Script::echo(Era::Legacy).tool("die", |turn| turn.break_off()).stdio();
    let more = json!({"isolation": "per_session"});
    let gateway = Config::new().raw_upstream("up", counted(&up, folder.path(), more)).ready();
    let (poisoned, healthy) = (Client::legacy(&gateway), Client::legacy(&gateway));
    assert_eq!(healthy.echo("up__echo", "x"), "x");
    let began = Instant::now();
    for _ in 0..40 {
        drop(told(&poisoned.call("up__die", json!({}))));
    }
    let trials = 2 + usize::try_from(began.elapsed().as_secs()).unwrap();
    let started = spawns(folder.path()) - 2;
    assert!((2..=trials).contains(&started), "{started} in {:?}", began.elapsed());
    assert_eq!(healthy.echo("up__echo", "x"), "x", "nobody else suffers");
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x", "nor anybody new");
}

#[test]
fn a_stuck_process_of_a_session_is_found_out_and_started_anew() {
    let up = Script::echo(Era::Legacy).stdio();
    let more = json!({"isolation": "per_session", "health": {"interval": "200ms", "timeout": "200ms"}});
    let gateway = Config::new().upstream_with("up", &up, more).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.echo("up__echo", "x"), "x");
    let own = up.process().pid();
    process::signal(own, Signal::STOP);
    eventually("it is gone", || (!process::is_alive(own)).then_some(()));
    eventually("another one answers", || {
        (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
    });
    assert_eq!(up.processes().len(), 3, "that of the lists has not suffered");
}
