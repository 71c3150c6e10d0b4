//! The gateway as the first process of a container, and on a system that has run out of something.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::{eventually, process};

/// What makes a program the first process of a container, where the system lets us.
fn first_process() -> Option<&'static [&'static str]> {
    let plain: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mapped: &[&str] =
        &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let is_let = |words: &&&[&str]| {
        let [program, rest @ ..] = **words else { return false };
        let mut command = Command::new(program);
        command.args(rest).arg("true").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    [plain, mapped].iter().find(is_let).copied()
}

/// Orphans that end while their server lives, and those that have left its group, are reaped; calls, restarts and the
/// end are as ever.
#[test]
fn std_as_the_first_process_it_reaps_what_others_leave() {
    let Some(launcher) = first_process() else {
        eprintln!("not tested: this system lets us make no container");
        return;
    };
    let up = Script::echo(Era::Legacy).stdio();
    let entry = up.entry();
    let words: Vec<String> = std::iter::once(&entry["command"])
        .chain(entry["args"].as_array().expect("a list"))
        .map(|word| word.as_str().expect("a text").to_owned())
        .collect();
    let script =
        "for n in 1 2 3; do setsid sh -c 'sleep 1 & exit'; sh -c 'sleep 1 & exit'; done; exec \"$@\"";
    let arguments: Vec<String> =
        ["-c", script, "sh"].iter().map(|word| (*word).to_owned()).chain(words).collect();
    let config = Config::new().launched_by(launcher);
    let mut gateway = config.raw_upstream("up", json!({"command": "sh", "args": arguments})).ready();
    let inner = *process::children(gateway.pid()).first().expect("the gateway in its container");
    let orphans =
        || process::children(inner).into_iter().filter(|child| process::name(*child) == "sleep").count();
    let client = Client::modern(&gateway);
    assert_eq!(client.echo("up__echo", "x"), "x");
    eventually("all orphans have ended", || (orphans() == 0).then_some(()));
    eventually("and are reaped", || process::zombies(inner).is_empty().then_some(()));
    assert_eq!(client.echo("up__echo", "x"), "x", "the server is not mistaken for one of them");
    let server = up.process();
    server.exit(1);
    eventually("another server", || (up.processes().len() == 2).then_some(()));
    eventually("it works", || {
        (client.call("up__echo", json!({"text": "x"}))["result"]["isError"] != true).then_some(())
    });
    let lines = gateway.events("upstream_failed");
    assert!(
        lines.iter().any(|line| line["reason"].as_str().is_some_and(|text| text.contains("code 1"))),
        "{lines:?}"
    );
    eventually("nothing is left of the first", || process::zombies(inner).is_empty().then_some(()));
    process::signal(inner, Signal::TERM);
    gateway.wait_exit();
    assert!(!process::is_alive(inner));
}

/// Connections that cannot be accepted wait; when there are descriptors again, everything is as before.
#[test]
fn lek_04_a_gateway_out_of_descriptors_recovers() {
    let up = Script::echo(Era::Legacy).stdio();
    let config =
        Config::new().upstream("up", &up).launched_by(&["sh", "-c", "ulimit -n 96; exec \"$0\" \"$@\""]);
    let gateway = config.ready();
    let client = Client::modern(&gateway);
    assert_eq!(client.echo("up__echo", "before"), "before");
    let admin = gateway.metrics();
    assert!(admin.sum("waypost_accept_failures_total", &[]) < 0.5);
    let idle: Vec<TcpStream> =
        (0..120).map(|_| TcpStream::connect(gateway.mcp).expect("the queue has room")).collect();
    eventually("it says that it is out of them", || gateway.events("accept_failed").pop());
    std::thread::sleep(crate::support::scaled(500));
    assert_eq!(gateway.events("accept_failed").len(), 1, "once");
    drop(idle);
    eventually("it says that it recovered", || gateway.events("accept_recovered").pop());
    assert_eq!(client.echo("up__echo", "after"), "after");
    let metrics = gateway.metrics();
    assert!(metrics.sum("waypost_accept_failures_total", &[]) > 1.5, "it tried again");
    gateway.wait_metric("waypost_connections", &[], 0.0);
    assert_eq!(up.processes().len(), 1, "its servers were left alone");
}
