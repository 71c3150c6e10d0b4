//! Servers on pipes: sizes, noise, deaths, process groups.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::bench::{Bench, LONG, call, call_with_progress, scripted, shell, text_of};
use crate::config::Transport;
use crate::exchange::EventKind;
use crate::gateway::{Executed, GatewayErrorKind, Upstream};

#[tokio::test]
async fn std_01_messages_of_any_size_pass_both_ways() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    for size in [65_535, 65_537, (1 << 20) + 1, 8 << 20] {
        assert_eq!(bench.text("big", json!({"size": size})).await.unwrap().len(), size);
    }
    for size in [100 << 10, 3 << 20] {
        let text = "ü".repeat(size / 2);
        let echoed = bench.text("echo", json!({"text": text})).await.unwrap();
        assert!(echoed == text, "{size} bytes come back changed");
    }
    assert_eq!(bench.text("echo", json!({"text": "small"})).await.unwrap(), "small");
    bench.stop().await;
}

#[tokio::test]
async fn std_03_a_chatty_stderr_stops_nothing() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    for arguments in [json!({"size": 256 << 10}), json!({"size": 10 << 20, "piece": "y".repeat(1 << 20)})] {
        assert_eq!(bench.text("stderr", arguments).await.unwrap(), "done");
    }
    bench.stop().await;
}

#[tokio::test]
async fn std_04_what_is_no_message_is_skipped() {
    let bench = Bench::scripted(&json!({"banner": "*** ready\n\n\r\n[]\n42\n{\"foo\":1}\n"}));
    bench.ready().await;
    assert_eq!(bench.text("noise", json!({})).await.unwrap(), "quiet");
    assert_eq!(bench.text("batch", json!({})).await.unwrap(), "from a batch");
    assert_eq!(bench.text("echo", json!({"text": "still here"})).await.unwrap(), "still here");
    bench.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_no_message_fails_its_call_only() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let error = bench.text("deep", json!({})).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (GatewayErrorKind::BadUpstream, Executed::Unknown));
    assert_eq!(bench.text("echo", json!({"text": "a"})).await.unwrap(), "a");
    bench.stop().await;
}

#[tokio::test]
async fn the_error_of_a_server_is_an_outcome() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let outcome = bench.run(call("fail", json!({})).call).await.unwrap();
    assert_eq!(outcome.answer().response.error_code(), Some(-32000));
    bench.stop().await;
}

#[tokio::test]
async fn std_02_a_line_without_end_breaks_the_connection_and_memory_stays_bounded() {
    let bench = Bench::with(Transport::Stdio(scripted(&json!({}))), |_, limits| limits.message = 1 << 20);
    bench.ready().await;
    let error = bench.text("endless", json!({})).await.unwrap_err();
    assert_eq!(error.text, "it sent a message larger than 1048576 bytes");
    assert_eq!(error.kind, GatewayErrorKind::BadUpstream);
    bench.offer(|offer| offer.connects == 2).await;
    assert_eq!(bench.text("echo", json!({"text": "again"})).await.unwrap(), "again");
    bench.stop().await;
}

#[tokio::test]
async fn std_06_a_dead_child_fails_its_calls_at_once_and_comes_back() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let held = call("hold", json!({}));
    let dying = call("die", json!({"code": 2}));
    let (held, dying) = tokio::join!(bench.run(held.call), bench.run(dying.call));
    for error in [held.unwrap_err(), dying.unwrap_err()] {
        assert_eq!(error.kind, GatewayErrorKind::Unavailable);
        assert_eq!(error.text, "the process exited with code 2");
        assert_eq!(error.cause.as_deref(), Some("last line on stderr: giving up"));
        assert_eq!(error.executed, Executed::Unknown);
        assert_eq!(error.upstream.as_deref(), Some("under_test"));
    }
    let offer = bench.offer(|offer| offer.connects == 2).await;
    assert_eq!(offer.lists.tools.entries.len(), 1);
    assert_eq!(bench.text("echo", json!({"text": "again"})).await.unwrap(), "again");
    bench.stop().await;
}

#[tokio::test]
async fn std_06_a_killed_child_is_noticed_without_a_call() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let pid: i32 = bench.text("pid", json!({})).await.unwrap().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(&*bench.down().await, "the process was ended by signal 9");
    bench.offer(|offer| offer.connects == 2).await;
    bench.stop().await;
}

#[tokio::test]
async fn str_08_a_child_that_closes_its_output_is_lost_though_it_lives() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let error = bench.text("close", json!({})).await.unwrap_err();
    assert_eq!(error.text, "the process closed its output");
    bench.stop().await;
}

/// How many processes have `mark` in their command line, zombies not counted.
fn processes(mark: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let has_mark = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    entries.filter_map(Result::ok).filter(has_mark).count()
}

#[tokio::test]
async fn std_09_the_whole_tree_of_a_child_ends_with_it() {
    let mark = format!("tree-of-{}", std::process::id());
    let plan = json!({"stays": true, "mark": mark}).to_string();
    let script = "exec 3<&0; sleep 600 & python3 -c \"$1\" \"$2\" <&3 & wait";
    let python = include_str!("server.py");
    for is_in_good_order in [true, false] {
        let bench = Bench::stdio(shell("sh", &["-c", script, "sh", python, &plan]));
        bench.ready().await;
        assert!(processes(&mark) >= 2, "a shell and a server run");
        let connector = bench.connector;
        if is_in_good_order {
            tokio::time::timeout(LONG, connector.stop()).await.unwrap();
            assert_eq!(processes(&mark), 0);
        } else {
            drop(connector);
            for _ in 0..200 {
                sleep(Duration::from_millis(50)).await;
                if processes(&mark) == 0 {
                    break;
                }
            }
            assert_eq!(processes(&mark), 0);
        }
    }
}

#[tokio::test]
async fn std_09_what_ignores_sigterm_is_killed() {
    let mark = format!("stubborn-{}", std::process::id());
    let plan = json!({"stays": true, "mark": mark}).to_string();
    let script = "trap '' TERM; python3 -c \"$1\" \"$2\" <&0";
    let bench = Bench::stdio(shell("sh", &["-c", script, "sh", include_str!("server.py"), &plan]));
    bench.ready().await;
    bench.stop().await;
    assert_eq!(processes(&mark), 0);
}

#[tokio::test]
async fn std_11_a_child_sees_a_clean_environment() {
    let mut stdio = scripted(&json!({}));
    stdio.env = vec![("FOO".to_owned(), "bar".to_owned().into())];
    let with = Bench::stdio(stdio);
    let without = Bench::scripted(&json!({}));
    for (bench, foo) in [(with, Some("bar")), (without, None)] {
        bench.ready().await;
        let dump = bench.text("env", json!({})).await.unwrap();
        let dump: Value = serde_json::from_str(&dump).unwrap();
        assert_eq!(dump.get("FOO").and_then(Value::as_str), foo);
        // A Python that is a wrapper puts something before it.
        assert!(dump["PATH"].as_str().unwrap().ends_with(&std::env::var("PATH").unwrap()));
        // Cargo sets this one for us, and it is nobody else's business.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && dump.get("CARGO_MANIFEST_DIR").is_none());
        bench.stop().await;
    }
}

#[tokio::test]
async fn std_16_large_calls_at_once_on_one_child_all_come_back() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    for (count, size) in [(2, 64 << 10), (16, 64 << 10), (16, 1 << 20)] {
        let texts = (0..count).map(|index: u32| index.to_string().repeat(size));
        let calls = texts.map(|text| {
            let bench = &bench;
            async move {
                let echoed = bench.text("echo", json!({"text": text})).await.unwrap();
                assert!(echoed == text, "an answer of {size} bytes is another one's, or changed");
            }
        });
        join_all(calls).await;
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_child_that_stops_reading_fails_its_own_calls_and_can_be_stopped() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let deaf = Bench::scripted(&json!({}));
    deaf.ready().await;
    let asleep = call("sleep", json!({}));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), deaf.connector.call(asleep.call)).await.is_err()
    );
    let calls = (0..8).map(|_| {
        let made = call("echo", json!({"text": "x".repeat(1 << 20)}));
        tokio::time::timeout(Duration::from_millis(500), deaf.connector.call(made.call))
    });
    assert!(join_all(calls).await.iter().all(Result::is_err));
    assert_eq!(bench.text("echo", json!({"text": "a"})).await.unwrap(), "a");
    deaf.stop().await;
    bench.stop().await;
}

#[tokio::test]
async fn std_13_a_call_to_a_server_that_never_opens_does_not_wait_past_its_deadline() {
    let bench = Bench::stdio(shell("sh", &["-c", "exec sleep 600"]));
    let made = call("echo", json!({})).within(Duration::from_millis(300));
    let error = bench.run(made.call).await.unwrap_err();
    assert_eq!((error.kind, &*error.text), (GatewayErrorKind::Unavailable, "it is still connecting"));
    assert_eq!(error.executed, Executed::No);
    bench.stop().await;
}

#[tokio::test]
async fn progress_comes_back_under_the_callers_token_and_never_after_the_end() {
    for plan in [json!({}), json!({"discover": "modern"})] {
        let bench = Bench::scripted(&plan);
        bench.ready().await;
        for token in ["\"a\\u0062\"", "12345678901234567890123", "1"] {
            let mut made = call_with_progress("progress", json!({"steps": 3}), token);
            assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "done");
            let mut events = Vec::new();
            while let Some(event) = made.events.recv().await {
                assert_eq!(event.kind, EventKind::Progress);
                events.push(String::from_utf8(event.notification.text.to_vec()).unwrap());
            }
            assert_eq!(events.len(), 3, "{events:?}");
            assert!(
                events.iter().all(|text| text.contains(&format!("\"progressToken\": {token},"))),
                "{events:?}"
            );
        }
        bench.stop().await;
    }
}

#[tokio::test]
async fn more_progress_than_a_caller_reads_holds_up_nobody() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let mut made = call_with_progress("progress", json!({"steps": 5000}), "1");
    assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "done");
    let mut count = 0;
    while made.events.recv().await.is_some() {
        count += 1;
    }
    assert_eq!(count, crate::exchange::EVENT_QUEUE);
    bench.stop().await;
}

#[tokio::test]
async fn a_caller_that_reads_misses_nothing_of_a_burst() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let mut made = call_with_progress("progress", json!({"steps": 5000}), "1");
    let reading = async {
        let mut count = 0;
        while made.events.recv().await.is_some() {
            count += 1;
        }
        count
    };
    let (outcome, count) = tokio::join!(bench.run(made.call), reading);
    assert_eq!((text_of(&outcome.unwrap()).as_str(), count), ("done", 5000));
    bench.stop().await;
}

fn asking_for_logs(tool: &str, level: Option<&'static str>) -> super::bench::Made {
    let log_level = level.map(|level| crate::mcp::Raw::trusted(bytes::Bytes::from_static(level.as_bytes())));
    let params = json!({"name": tool, "arguments": {}}).to_string();
    super::bench::made(tool, &params, crate::exchange::Hop { log_level, ..crate::exchange::Hop::default() })
}

#[tokio::test]
async fn a_log_message_of_a_modern_server_is_that_of_the_only_call_in_flight_that_asked_for_any() {
    // Whether another call is in flight, and what it asks for.
    let (none, silent, asking) = (None, Some(None), Some(Some("\"info\"")));
    for (plan, other, level, expected) in [
        (json!({"discover": "modern"}), none, Some("\"info\""), 1),
        (json!({"discover": "modern"}), none, None, 0),
        (json!({"discover": "modern"}), silent, Some("\"info\""), 0),
        (json!({"discover": "modern"}), asking, Some("\"info\""), 0),
        (json!({}), none, Some("\"info\""), 0),
    ] {
        let bench = Bench::scripted(&plan);
        bench.ready().await;
        let held = other.map(|level| bench.connector.call(asking_for_logs("hold", level).call));
        let mut held = futures_util::future::OptionFuture::from(held);
        if other.is_some() {
            assert!(tokio::time::timeout(Duration::from_millis(200), &mut held).await.is_err());
        }
        let mut chat = asking_for_logs("chat", level);
        bench.run(chat.call).await.unwrap();
        let mut kinds = Vec::new();
        while let Some(event) = chat.events.recv().await {
            kinds.push(event.kind);
        }
        assert_eq!(kinds, vec![EventKind::Log; expected], "{other:?} {level:?}");
        drop(held);
        bench.stop().await;
    }
}

async fn log_of(bench: &Bench) -> Vec<Value> {
    let log = bench.text("log", json!({})).await.unwrap();
    let lines: Vec<String> = serde_json::from_str(&log).unwrap();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn can_01_a_dropped_call_is_cancelled_under_its_own_id_with_the_reason() {
    for plan in [json!({}), json!({"discover": "modern"})] {
        let bench = Bench::scripted(&plan);
        bench.ready().await;
        let held = call("hold", json!({}));
        let cancel = held.cancel.clone();
        {
            let mut running = bench.connector.call(held.call);
            let early = tokio::time::timeout(Duration::from_millis(300), &mut running).await;
            assert!(early.is_err());
            cancel.cancel("r");
        }
        let ended = call("echo", json!({"text": "x"}));
        bench.run(ended.call).await.unwrap();
        let log = log_of(&bench).await;
        let held = log.iter().find(|message| message["params"]["name"] == "hold").unwrap();
        let cancelled: Vec<_> =
            log.iter().filter(|message| message["method"] == "notifications/cancelled").collect();
        assert_eq!(cancelled.len(), 1, "no call that has ended is cancelled");
        assert_eq!(cancelled[0]["params"]["requestId"], held["id"]);
        assert_eq!(cancelled[0]["params"]["reason"], "r");
        assert_eq!(bench.text("release", json!({})).await.unwrap(), "released");
        assert_eq!(bench.text("echo", json!({"text": "usable"})).await.unwrap(), "usable");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_legacy_server_is_answered_and_a_modern_one_is_not() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let answers: Value = serde_json::from_str(&bench.text("ask", json!({})).await.unwrap()).unwrap();
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": "q1", "result": {}}));
    assert_eq!(answers[1]["id"], 7);
    assert_eq!(answers[1]["error"]["code"], -32601);
    bench.stop().await;
}

#[tokio::test]
async fn a_message_with_line_breaks_is_one_line_for_the_child() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    let params = "{\n \"name\": \"echo\",\r\n \"arguments\": {\"text\": \"a\\nb\"}}";
    let made = super::bench::made("echo", params, crate::exchange::Hop::default());
    assert_eq!(text_of(&bench.run(made.call).await.unwrap()), "a\nb");
    bench.stop().await;
}

#[tokio::test]
async fn spawn_failures_say_why_and_no_path() {
    for (stdio, expected) in [
        (shell("/no/such/command", &[]), "the command was not found"),
        (shell("/", &[]), "the command may not be executed"),
        (
            crate::config::Stdio { cwd: Some("/no/such/folder".into()), ..shell("sh", &[]) },
            "its working directory does not exist",
        ),
        (shell("sh", &["-c", "exit 3"]), "the process exited with code 3"),
    ] {
        let bench = Bench::stdio(stdio);
        assert_eq!(&*bench.down().await, expected);
        let error = bench.text("echo", json!({})).await.unwrap_err();
        assert_eq!((error.kind, &*error.text), (GatewayErrorKind::Unavailable, expected));
        assert!(error.retry_after.is_some());
        bench.stop().await;
    }
}
