//! Names, prefixes, collisions.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use crate::support::client::Client;
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::json::{get, string};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::upstream::Upstream;

/// A server whose tools say whose they are.
fn telling(own: &'static str, tools: &[&str]) -> Script {
    tools.iter().fold(Script::legacy(), |script, tool| {
        let said = format!("{own}: {tool}");
        script.tool(tool, move |turn| turn.text(&said))
    })
}

fn says(client: &Client, name: &str) -> String {
    let answer = client.call(name, json!({}));
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{name}: {answer}")).to_owned()
}

/// Names under the prefix of another upstream are not taken, so all four pairs have names of their own; which
/// ones does not depend on who connects first, nor on who is there at all.
#[test]
fn nam_01_two_pairs_with_one_public_name() {
    let mut lists = HashSet::new();
    for slow in ["a", "a__b", "nobody"] {
        let late = move |script: Script, own: &str| {
            let is_slow = own == slow;
            script.first(move |turn| {
                if is_slow && turn.method() == "tools/list" {
                    std::thread::sleep(Duration::from_millis(300));
                }
                false
            })
        };
        let a = late(telling("a", &["b__c", "own"]), "a").stdio();
        let ab = late(telling("a__b", &["c", "own"]), "a__b").stdio();
        let acme_ = telling("acme_", &["status"]).stdio();
        let acme = telling("acme", &["_status"]).stdio();
        let config = Config::new().upstream("1|a", &a).upstream("2|a__b", &ab);
        let gateway = config.upstream("3|acme_", &acme_).upstream("4|acme", &acme).ready();
        let client = Client::legacy(&gateway);
        let names = client.tool_names();
        let said: Vec<_> = names.iter().map(|name| says(&client, name)).collect();
        let wanted = ["a: b__c", "a: own", "a__b: c", "a__b: own", "acme_: status", "acme: _status"];
        assert_eq!(said, wanted, "each name is that of the tool listed: {names:?}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), wanted.len(), "{names:?}");
        lists.insert(names);
    }
    assert_eq!(lists.len(), 1, "{lists:?}");
    let all = lists.into_iter().next().unwrap();
    let alone = telling("a", &["b__c", "own"]).stdio();
    let config = Config::new().upstream("1|a", &alone);
    let dead = json!({"command": "no-such-program-here"});
    let gateway = config.raw_upstream("2|a__b", dead).start();
    let client = Client::legacy(&gateway);
    client.wait_tools(&[&all[0], &all[1]]);
    assert_eq!(says(&client, &all[0]), "a: b__c");
    let other = client.call("a__b__c", json!({}));
    assert!(other["error"].is_object() || other["result"]["isError"] == true, "nobody else's name: {other}");
    assert_eq!(alone.calls().len(), 1);
}

#[test]
fn nam_01_without_prefixes_the_earlier_upstream_keeps_the_name() {
    let (first, second) =
        (telling("first", &["same", "one"]).http(), telling("second", &["same", "two"]).stdio());
    let bare = json!({"prefix": ""});
    let config = Config::new().upstream_with("1|zz", &first, bare.clone());
    let gateway = config.upstream_with("2|aa", &second, bare).ready();
    let client = Client::modern(&gateway);
    client.wait_tools(&["same", "one", "two"]);
    assert_eq!(says(&client, "same"), "first: same");
    assert_eq!(says(&client, "two"), "second: two");
    let is_told = || gateway.warnings().iter().any(|line| line.contains("aa") && line.contains("same"));
    eventually("what is left out is reported", || is_told().then_some(()));
    gateway.wait_metric("waypost_entries_skipped_total", &[("upstream", "aa")], 1.0);
}

#[test]
fn nam_01_another_prefix_takes_the_place_of_the_name() {
    let upstream = telling("up", &["x"]).stdio();
    let gateway = Config::new().upstream_with("long-name", &upstream, json!({"prefix": "s"})).ready();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["s__x"]);
    assert_eq!(says(&client, "s__x"), "up: x");
}

const TWENTY: &str = "a-name-of-twenty-cha";

fn long_tools() -> Vec<String> {
    let mut tools: Vec<_> = [30, 44, 45, 60].iter().map(|length| "t".repeat(*length)).collect();
    // Two that differ in their last letter only.
    tools.push(format!("{}a", "u".repeat(127)));
    tools.push(format!("{}b", "u".repeat(127)));
    tools
}

fn long_names(gateway: &Gateway) -> Vec<(String, String)> {
    let entries = Client::legacy(gateway).tools_raw();
    let pair = |entry: &String| {
        let name = string(entry, &["name"]).expect("a name");
        (name, string(entry, &["title"]).unwrap_or_default())
    };
    let ours = |(name, _): &(String, String)| name.starts_with(&TWENTY[..8]);
    entries.iter().map(pair).filter(ours).collect()
}

/// `protocol.md` limits names to 64 by default, where the case would leave them as they are without a limit:
/// the page wins.
#[test]
fn nam_03_long_names_fit_and_stay_what_they_are() {
    let tools = long_tools();
    let native: Vec<&str> = tools.iter().map(String::as_str).collect();
    let upstream = telling("up", &native).stdio();
    let config = Config::new().upstream(TWENTY, &upstream);
    let first = config.clone().set("naming", json!({"max_length": 64})).ready();
    let listed = long_names(&first);
    assert_eq!(listed.len(), tools.len());
    let names: HashSet<_> = listed.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names.len(), tools.len(), "{names:?}");
    let client = Client::legacy(&first);
    for ((name, title), tool) in listed.iter().zip(&tools) {
        assert!(name.chars().count() <= 64, "{name}");
        assert_eq!(says(&client, name), format!("up: {tool}"));
        let is_short = TWENTY.len() + 2 + tool.len() <= 64;
        assert_eq!(is_short, *name == format!("{TWENTY}__{tool}"), "{name}");
        assert!(is_short || title.contains(tool.as_str()), "the title keeps the native name: {title:?}");
    }
    let other = Script::echo(Era::Legacy).stdio();
    let second = config.upstream("another", &other).ready();
    assert_eq!(long_names(&second), listed, "whatever else is there, after a restart, by default");
}

#[test]
fn nam_03_a_higher_limit_leaves_names_unchanged() {
    let tools = long_tools();
    let native: Vec<&str> = tools.iter().map(String::as_str).collect();
    let upstream = telling("up", &native).stdio();
    let gateway = Config::new().upstream(TWENTY, &upstream).set("naming", json!({"max_length": 200})).ready();
    let names: Vec<_> = long_names(&gateway).into_iter().map(|(name, _)| name).collect();
    let wanted: Vec<_> = tools.iter().map(|tool| format!("{TWENTY}__{tool}")).collect();
    assert_eq!(names, wanted);
}

const ODD: [&str; 8] = ["a.b", "a/b", "a:b", "a b", "a_b", "tool_ü", "日本", "fine-Name_9"];

fn odd() -> Upstream {
    let script = telling("up", &ODD).listed(r#"{"name":"","inputSchema":{"type":"object"}}"#);
    script
        .listed(r#"{"inputSchema":{"type":"object"}}"#)
        .listed(r#"{"name":7,"inputSchema":{}}"#)
        .listed("42")
        .http()
}

#[test]
fn nam_05_characters_that_some_clients_refuse_are_mapped_without_collision() {
    let upstream = odd();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let names = client.tool_names();
    assert_eq!(names.len(), ODD.len(), "what has no name is skipped, nothing else: {names:?}");
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), ODD.len(), "{names:?}");
    for (name, native) in names.iter().zip(ODD) {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        assert!(name.bytes().all(is_allowed), "{name}");
        assert_eq!(says(&client, name), format!("up: {native}"));
    }
    assert_eq!(names[4], "up__a_b", "what fits stays");
    assert_eq!(names[7], "up__fine-Name_9", "what fits stays");
    let skipped = gateway.metrics().sum("waypost_entries_skipped_total", &[("upstream", "up")]);
    assert!(skipped >= 4.0, "{skipped}");
    drop(gateway);
    let again = Config::new().upstream("up", &upstream).ready();
    assert_eq!(Client::modern(&again).tool_names(), names, "deterministic");
}

/// A modern server over HTTP gets the native name in a header, too: encoded where a header cannot hold it.
#[test]
fn nam_05_native_names_fit_into_headers() {
    let names = ["a b", " padded ", "tool_ü", "line\nbreak", "=?base64?eA==?=", "nul\0", "x: y\r\nX-Evil: 1"];
    let upstream = Script::modern().tools(names).http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let exposed = client.tool_names();
    assert_eq!(exposed.len(), names.len(), "{exposed:?}");
    for (name, native) in exposed.iter().zip(names) {
        assert_eq!(says(&client, name), native);
    }
    assert!(upstream.received().iter().all(|received| received.header("x-evil").is_none()));
}

#[test]
fn nam_05_any_character_stays_where_the_config_says_so() {
    let upstream = odd();
    let gateway = Config::new().upstream("up", &upstream).set("naming", json!({"charset": "any"})).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let wanted: Vec<_> = ODD.iter().map(|tool| format!("up__{tool}")).collect();
        assert_eq!(client.tool_names(), wanted);
        for (name, native) in wanted.iter().zip(ODD) {
            assert_eq!(says(&client, name), format!("up: {native}"));
        }
    }
}

#[test]
fn nam_05_the_separator_is_the_configs() {
    let upstream = telling("up", &["x"]).stdio();
    let gateway = Config::new().upstream("up", &upstream).set("naming", json!({"separator": "-"})).ready();
    let client = Client::legacy(&gateway);
    client.wait_tools(&["up-x"]);
    assert_eq!(says(&client, "up-x"), "up: x");
}

/// Scaled down: three starts with delays in different orders, two clients at once.
#[test]
fn nam_09_the_order_of_tools_is_the_same_from_start_to_start() {
    let mut lists = HashSet::new();
    for start in 0_u64..3 {
        let names = ["delta", "alpha", "echo", "bravo", "charlie"];
        let upstreams: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(index, own)| {
                let delay = Duration::from_millis((u64::try_from(index).unwrap() * 70 + start * 130) % 350);
                telling(own, &["z", "a", "m"])
                    .first(move |turn| {
                        if turn.method() == "tools/list" {
                            std::thread::sleep(delay);
                        }
                        false
                    })
                    .http()
            })
            .collect();
        let config =
            names.iter().zip(&upstreams).enumerate().fold(Config::new(), |config, (index, (own, up))| {
                config.upstream(&format!("{index}|{own}"), up)
            });
        let gateway = config.ready();
        let clients = [Client::legacy(&gateway), Client::legacy_at(&gateway, "2025-06-18")];
        for client in &clients {
            let message = client.request("tools/list", "{}").send().message();
            lists.insert(get(&message, &["result"]).expect("a result").to_owned());
        }
        let order: Vec<_> = clients[0].tool_names();
        assert_eq!(
            order[..4],
            ["delta__z", "delta__a", "delta__m", "alpha__z"],
            "config order, then its own"
        );
    }
    assert_eq!(lists.len(), 1, "{lists:?}");
}
