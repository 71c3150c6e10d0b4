//! stdio processes.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::{get, string};
use crate::support::matrix::{Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Form;
use crate::support::{at_once, eventually, patience, process, scaled};

/// A text whose every part is different, so that a swap or a cut shows.
fn filler(length: usize) -> String {
    (0..length / 8 + 1).map(|part| format!("{part:07x} ")).collect::<String>()[..length].to_owned()
}

/// `make` returns as many bytes as it is asked for; `count` tells how many it got.
fn sizes(transport: Transport) {
    let script = Script::legacy()
        .form(Form::Sse("\n"))
        .tool("make", |turn| {
            let length = get(turn.arguments(), &["length"]).unwrap().parse().unwrap();
            turn.text(&filler(length));
        })
        .tool("take", |turn| turn.text(&turn.argument("text").unwrap_or_default()));
    let up = script.over(transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    for length in [65_535, 65_537, (1 << 20) + 1, 8 << 20] {
        let message = client.call_raw("up__make", &format!(r#"{{"length":{length}}}"#));
        let content = get(&message, &["result", "content"]).unwrap_or_else(|| panic!("{:.300}", message));
        let text = string(crate::support::json::elements(content)[0], &["text"]).expect("a text");
        assert!(text == filler(length), "{length} came as {}", text.len());
    }
    for length in [100 << 10, 3 << 20] {
        assert!(client.echo("up__take", &filler(length)) == filler(length), "{length}");
    }
    assert_eq!(client.echo("up__take", "small"), "small");
}

#[test]
fn std_01_large_messages_over_stdio() {
    sizes(Transport::Stdio);
}

#[test]
fn std_01_large_messages_over_http_streams() {
    sizes(Transport::Http);
}

#[test]
fn std_01_above_the_limit_only_that_call_fails() {
    for transport in Transport::ALL {
        let script = Script::echo(Era::Legacy).tool("make", |turn| turn.text(&filler(2 << 20)));
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).set("limits", json!({"message": "1MiB"})).ready();
        let client = Client::legacy(&gateway);
        std::thread::scope(|scope| {
            let others = scope.spawn(|| client.echo("up__echo", "beside"));
            let answer = client.call("up__make", json!({}));
            assert_eq!(answer["result"]["isError"], true, "{:.300}", answer.to_string());
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            assert!(text.contains("up"), "{text}");
            assert_eq!(others.join().unwrap(), "beside");
        });
        assert_eq!(client.echo("up__echo", "x"), "x");
        let connects = gateway.metrics().sum("waypost_upstream_connects_total", &[("upstream", "up")]);
        assert_eq!(connects, 1.0, "the connection outlives one answer that is too large");
    }
}

#[test]
fn std_03_a_chatty_stderr_blocks_nothing() {
    let chatter = |length: usize| format!("{}\n", "e".repeat(99)).repeat(length / 100);
    let at_start = chatter(1 << 20);
    let script = Script::echo(Era::Legacy)
        .first(move |turn| {
            if turn.method() == "initialize" {
                turn.stderr(at_start.as_bytes());
            }
            false
        })
        .tool("chatty", move |turn| {
            turn.stderr(chatter(256 << 10).as_bytes());
            turn.text("done");
        })
        .tool("endless", |turn| {
            turn.stderr("n".repeat(10 << 20).as_bytes());
            turn.text("done");
        });
    let up = script.stdio();
    // The lines of one upstream are bounded in number, too: what must be there comes from another.
    let odd = Script::echo(Era::Legacy).tool("odd", |turn| {
        turn.stderr(b"\xff\xfe\x00 not \x1b[31mUTF-8\r\n{\"event\":\"forged\"}\nlast words of odd\n");
        turn.text("done");
    });
    let odd = odd.stdio();
    let gateway = Config::new().upstream("noisy", &up).upstream("strange", &odd).ready();
    let client = Client::legacy(&gateway);
    for name in ["noisy__chatty", "noisy__endless", "strange__odd"] {
        assert_eq!(client.echo(name, ""), "done", "{name}");
    }
    assert_eq!(client.echo("noisy__echo", "x"), "x");
    let has_words = |line: &String| line.contains("last words of odd") && line.contains("strange");
    eventually("stderr is logged under the upstream's name", || {
        gateway.log().iter().any(has_words).then_some(())
    });
    let longest = gateway.log().iter().map(String::len).max().unwrap_or_default();
    assert!(longest < 20_000, "log lines are bounded: {longest}");
    assert!(gateway.events("forged").is_empty(), "a child writes no log lines of its own");
}

#[test]
fn std_04_noise_on_stdout_is_skipped_and_counted() {
    let noise: &[u8] =
        b"*** ready\n\n\r\n[]\n42\n{\"foo\":1}\nnull\n\"text\"\n{\"jsonrpc\":\"2.0\"}\n\xff\xfe\n";
    for era in [Era::Legacy, Era::Modern] {
        let script = Script::echo(era).first(move |turn| {
            turn.raw(noise);
            false
        });
        let up = script.stdio();
        let gateway = Config::new().upstream("noisy", &up).ready();
        let client = Client::legacy(&gateway);
        for text in ["a", "b", "c"] {
            assert_eq!(client.echo("noisy__echo", text), text);
        }
        let count = gateway.metrics().sum("waypost_upstream_noise_total", &[("upstream", "noisy")]);
        assert!(count >= 6.0, "{count}");
        let warnings = gateway.warnings();
        let told = warnings.iter().filter(|line| line.contains("noisy") && line.contains("ready")).count();
        assert_eq!(told, 1, "one warning, with a sample");
    }
}

/// What was written without a line end takes no answer with it: neither words, nor half a message.
#[test]
fn std_04_what_stands_before_a_message_on_its_line_loses_nothing() {
    for era in [Era::Legacy, Era::Modern] {
        for front in ["Loading... ", r#"{"jsonrpc":"2.0","i"#, r#"{"result":{"content":[{"id":1},{"id":2}"#] {
            let script = Script::echo(era).first(move |turn| {
                turn.raw(front.as_bytes());
                false
            });
            let up = script.stdio();
            let gateway = Config::new().upstream_with("up", &up, json!({"timeout": "10m"})).ready();
            let client = Client::legacy(&gateway);
            for text in ["a", "b"] {
                assert_eq!(client.echo("up__echo", text), text, "behind {front}");
            }
        }
    }
}

/// The call whose answer broke off in the middle fails, and the one whose answer was written behind it does not.
#[test]
fn std_04_half_an_answer_fails_its_own_call_alone() {
    let script = Script::echo(Era::Legacy).tool("half", |turn| {
        let id = turn.id().unwrap_or("0").to_owned();
        turn.raw(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"ty"#).as_bytes());
    });
    let up = script.stdio();
    let keys = json!({"timeout": "10m", "stream_idle": "10m"});
    let gateway = Config::new().upstream_with("up", &up, keys).ready();
    let client = Client::legacy(&gateway);
    std::thread::scope(|scope| {
        let half = scope.spawn(|| client.call("up__half", json!({})));
        while !half.is_finished() {
            assert_eq!(client.echo("up__echo", "whole"), "whole");
        }
        let answer = half.join().expect("it is answered");
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    });
}

/// A message that does not end in a newline alone, or has white space around it, is still a message.
#[test]
fn std_04_sloppy_lines_are_messages() {
    let script = Script::echo(Era::Legacy).tool("sloppy", |turn| {
        let id = turn.id().unwrap_or("0").to_owned();
        let message = format!(" \t{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"ok\"}}]}}}} \r\n");
        turn.raw(message.as_bytes());
    });
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    assert_eq!(Client::legacy(&gateway).echo("up__sloppy", ""), "ok");
}

#[test]
fn std_06_a_dead_child_fails_its_calls_at_once_and_comes_back() {
    let script = Script::echo(Era::Legacy)
        .tool("slow", |_| std::thread::sleep(Duration::from_secs(60)))
        .tool("exit", |turn| turn.break_off());
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    let kill = || process::signal(up.process().pid(), Signal::KILL);
    let ways: [(&str, &(dyn Fn() + Sync)); 3] = [
        ("idle", &|| {
            kill();
            drop(client.call("up__echo", json!({"text": "x"})));
        }),
        ("during a call", &|| {
            std::thread::scope(|scope| {
                let before = up.calls().len();
                let running = scope.spawn(|| client.call("up__slow", json!({})));
                eventually("the call arrives", || (up.calls().len() > before).then_some(()));
                let from = Instant::now();
                kill();
                let answer = running.join().unwrap();
                assert_eq!(answer["result"]["isError"], true, "{answer}");
                assert!(from.elapsed() < patience() / 2, "at once, not at the timeout of a minute");
            });
        }),
        ("by a tool", &|| {
            let answer = client.call("up__exit", json!({}));
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            assert!(answer.to_string().contains("up"), "{answer}");
        }),
    ];
    for (count, (way, strike)) in ways.iter().enumerate() {
        strike();
        let answers =
            || client.call("up__echo", json!({"text": "back"}))["result"]["content"][0]["text"] == "back";
        eventually(way, || answers().then_some(()));
        assert!(up.processes().len() >= count + 2, "{way}: started again");
        let initialized = up.of_method("initialize").len();
        assert_eq!(initialized, up.processes().len(), "{way}: one handshake a child");
    }
    assert!(up.processes().len() <= 6, "{} children", up.processes().len());
}

#[test]
fn std_09_stopping_takes_the_whole_tree() {
    let up = Script::echo(Era::Legacy).flag("stay").flag("ignore-term").stdio();
    let entry = up.entry();
    let args: Vec<String> =
        entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect();
    let line = format!(
        "'{}' {} & wait",
        entry["command"].as_str().unwrap(),
        args.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ")
    );
    // A background job of a shell has no stdin of its own: hand it over.
    let line = format!("exec 3<&0; {}", line.replace(" & wait", " <&3 & wait"));
    let wrapped = json!({"command": "sh", "args": ["-c", line]});
    let mut gateway = Config::new().raw_upstream("up", wrapped).set("drain_timeout", json!("1s")).ready();
    up.process().fork(300);
    let tree = eventually("wrapper, server and grandchild", || {
        let tree = process::descendants(gateway.pid());
        (tree.len() >= 3).then_some(tree)
    });
    assert_eq!(Client::legacy(&gateway).echo("up__echo", "x"), "x");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_exit(), Some(0));
    eventually("nothing of the tree lives", || tree.iter().all(|pid| !process::is_alive(*pid)).then_some(()));
}

#[test]
fn std_09_a_killed_gateway_leaves_no_child_behind() {
    let up = Script::echo(Era::Legacy).stdio();
    let mut gateway = Config::new().upstream("up", &up).ready();
    let child = up.process();
    gateway.signal(Signal::KILL);
    gateway.wait_exit();
    eventually("the child ends on the end of its stdin", || (!process::is_alive(child.pid())).then_some(()));
    assert!(child.has_eof() || !process::is_alive(child.pid()));
}

/// Not even those that take no notice of the end of their input, nor what they have started.
#[test]
fn std_09_a_killed_gateway_leaves_no_stubborn_child_behind() {
    let up = Script::echo(Era::Legacy).flag("stay").flag("ignore-term").stdio();
    let other = Script::echo(Era::Legacy).flag("stay").stdio();
    let mut gateway = Config::new().upstream("up", &up).upstream("other", &other).ready();
    up.process().fork(300);
    let tree = eventually("both servers, a grandchild, and the guard", || {
        let tree = process::descendants(gateway.pid());
        (tree.len() >= 4).then_some(tree)
    });
    gateway.signal(Signal::KILL);
    gateway.wait_exit();
    eventually("nothing of the tree lives", || tree.iter().all(|pid| !process::is_alive(*pid)).then_some(()));
}

/// A guard that was lost is replaced with the next child, and knows of those before.
#[test]
fn std_09_a_guard_that_is_killed_is_replaced() {
    let up = Script::echo(Era::Legacy).flag("stay").stdio();
    let other = Script::echo(Era::Legacy).flag("stay").stdio();
    let mut gateway = Config::new().upstream("up", &up).upstream("other", &other).ready();
    let servers = [up.process().pid(), other.process().pid()];
    let guards = || {
        let children = process::children(gateway.pid()).into_iter();
        children.filter(|pid| !servers.contains(pid)).collect::<Vec<_>>()
    };
    let guard = eventually("the guard", || guards().first().copied());
    process::signal(guard, Signal::KILL);
    other.process().exit(1);
    let next = eventually("the child is started again", || {
        let pid = other.process().pid();
        (pid != servers[1]).then_some(pid)
    });
    eventually("another guard", || guards().into_iter().find(|pid| ![guard, next].contains(pid)));
    gateway.signal(Signal::KILL);
    gateway.wait_exit();
    let left = [servers[0], next];
    eventually("no child lives", || left.iter().all(|pid| !process::is_alive(*pid)).then_some(()));
}

#[test]
fn std_11_children_get_a_clean_environment() {
    let (with, without) = (Script::echo(Era::Legacy).stdio(), Script::echo(Era::Legacy).stdio());
    let env = json!({"env": {"FOO": "bar", "QUOTE": "a \"b\" $$c", "FROM": "${GW_SHARED}", "EMPTY": ""}});
    let gateway = Config::new()
        .upstream_with("with", &with, env)
        .upstream("without", &without)
        .env("GW_TOKEN", "s3cret")
        .env("GW_SHARED", "shared")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("RUST_LOG_MINE", "x")
        .env("LANG", "C.UTF-8")
        .ready();
    for up in [&with, &without] {
        let env = up.process().hello["env"].clone();
        let names: Vec<_> = env.as_object().unwrap().keys().cloned().collect();
        assert!(env["PATH"].as_str().is_some_and(|path| !path.is_empty()), "{names:?}");
        assert!(env["HOME"].is_string() && env["LANG"] == "C.UTF-8", "{names:?}");
        for ours in ["GW_TOKEN", "GW_SHARED", "HTTPS_PROXY", "RUST_LOG_MINE", "CARGO", "CARGO_MANIFEST_DIR"] {
            assert!(env[ours].is_null(), "{ours} leaks: {names:?}");
        }
    }
    let own = with.process().hello["env"].clone();
    assert_eq!(
        (&own["FOO"], &own["QUOTE"], &own["FROM"]),
        (&json!("bar"), &json!("a \"b\" $c"), &json!("shared"))
    );
    assert_eq!(own["EMPTY"], "");
    assert!(without.process().hello["env"]["FOO"].is_null());
    let log = gateway.log().join("\n");
    assert!(!log.contains("s3cret"), "no secret in the log");
}

#[test]
fn std_11_a_child_runs_where_the_config_says() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let up = Script::echo(Era::Legacy).stdio();
    let _gateway = Config::new().upstream_with("up", &up, json!({"cwd": place})).ready();
    assert_eq!(up.process().hello["cwd"].as_str(), place.to_str());
}

/// A child that answers each message before it reads the next deadlocks a gateway that writes before it reads.
fn serial(calls: usize, length: usize) {
    let script = Script::legacy()
        .flag("serial")
        .tool("echo", |turn| turn.text(&turn.argument("text").unwrap_or_default()));
    let up = script.stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let clients = [Client::legacy(&gateway), Client::legacy(&gateway), Client::modern(&gateway)];
    let jobs: Vec<_> = (0..calls)
        .map(|index| {
            let client = &clients[index % clients.len()];
            move || {
                let text = format!("{index} {}", filler(length));
                assert!(client.echo("up__echo", &text) == text, "call {index}");
            }
        })
        .collect();
    at_once(jobs);
    assert_eq!(clients[0].echo("up__echo", "small"), "small");
    assert_eq!(up.processes().len(), 1, "one child served them all");
}

#[test]
fn std_16_two_large_calls_at_once() {
    serial(2, 64 << 10);
    serial(2, 1 << 20);
}

#[test]
fn std_16_sixteen_large_calls_at_once() {
    serial(16, 64 << 10);
    serial(16, 1 << 20);
}

#[test]
fn std_16_a_child_that_stops_reading_fails_its_own_calls_only() {
    let deaf = Script::legacy()
        .flag("serial")
        .tools(["quick"])
        .tool("stop", |_| std::thread::sleep(Duration::from_secs(60)));
    let (deaf, other) = (deaf.stdio(), Script::echo(Era::Legacy).stdio());
    let config = Config::new().upstream_with("deaf", &deaf, json!({"timeout": "2s"}));
    let gateway = config.upstream("other", &other).ready();
    let client = Client::legacy(&gateway);
    let text = filler(1 << 20);
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| client.call("deaf__stop", json!({})));
        eventually("it stops", || (deaf.calls().len() == 1).then_some(()));
        let stuck: Vec<_> =
            (0..4).map(|_| scope.spawn(|| client.call("deaf__quick", json!({"text": text})))).collect();
        std::thread::sleep(scaled(200));
        assert_eq!(client.echo("other__echo", "free"), "free");
        assert_eq!(client.request("ping", "{}").send().status, 200);
        for call in stuck.into_iter().chain([stopping]) {
            let answer = call.join().unwrap();
            assert_eq!(answer["result"]["isError"], true, "{:.300}", answer.to_string());
        }
    });
    assert_eq!(client.echo("other__echo", "free"), "free");
}
