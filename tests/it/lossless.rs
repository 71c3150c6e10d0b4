//! Nothing lost: nasty messages come out of the gateway as they went in, in all four pairs of eras and over
//! both transports, save the listed rewrites: the id, the exposed name, the reserved `_meta` keys of the hop,
//! and what the eras add to a result (`resultType`, `serverInfo`).

mod generated;

use crate::support::client::{Client, with_meta};
use crate::support::gateway::Config;
use crate::support::json::{get, members, members_without, quoted, replaced};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::turn::Form;

crate::matrix! { arguments requests results errors tools more }

/// The reserved keys that each hop mints for itself.
const HOP_KEYS: [&str; 4] = [
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The cases of one file: what each is about, and its text.
fn cases(file: &str) -> Vec<(String, String)> {
    let path = format!("{}/tests/data/messages/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let lines = std::fs::read_to_string(path).expect("the file of cases");
    let case = |line: &str| {
        let name = get(line, &["name"]).expect("a name").trim_matches('"').to_owned();
        (name, get(line, &["text"]).expect("a text").to_owned())
    };
    lines.lines().map(case).collect()
}

#[test]
fn there_are_more_than_sixty_cases() {
    let files = ["arguments", "requests", "results", "errors", "tools"];
    let count: usize = files.iter().map(|file| cases(file).len()).sum();
    assert!(count > 120, "{count}");
    for (name, text) in files.iter().flat_map(|file| cases(file)) {
        serde_json::from_str::<serde::de::IgnoredAny>(&text)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Collects what differs, so that one run tells everything.
#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare<T: PartialEq + std::fmt::Debug>(&mut self, case: &str, sent: T, came: T) {
        if sent != came {
            let clip = |side: &T| format!("{side:?}").chars().take(1200).collect::<String>();
            self.0.push(format!("{case}\n   sent {}\n   came {}", clip(&sent), clip(&came)));
        }
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "{} cases differ:\n{}", self.0.len(), self.0.join("\n"));
        }
    }
}

fn arguments(cell: Cell) {
    let upstream = Script::of(cell.server).tool("take", |turn| turn.text("taken")).over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let mut differences = Differences::default();
    for (name, text) in cases("arguments") {
        let answer = client.call_raw("up__take", &text);
        match upstream.calls().last() {
            Some(call) => differences.compare(&name, text.as_str(), call.arguments()),
            None => differences.compare(&name, text.as_str(), &format!("never, but {answer}")),
        }
        differences.compare(&name, Some("\"taken\""), first_text(&answer));
    }
}

fn first_text(message: &str) -> Option<&str> {
    let content = get(message, &["result", "content"])?;
    get(crate::support::json::elements(content).first()?, &["text"])
}

fn requests(cell: Cell) {
    let upstream = Script::of(cell.server).tool("take", |turn| turn.text("taken")).over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let mut differences = Differences::default();
    for (index, (name, text)) in cases("requests").into_iter().enumerate() {
        let text = replaced(&text, &["id"], &format!("\"own {index}\""));
        let mut sent = replaced(&text, &["params", "name"], "\"up__take\"");
        if cell.client == Era::Modern {
            let params = get(&sent, &["params"]).expect("params").to_owned();
            sent = replaced(&sent, &["params"], &with_meta(&params));
        }
        let answer = client.message(&sent).send().message();
        differences.compare(&name, Some(&*format!("\"own {index}\"")), get(&answer, &["id"]));
        let Some(call) = upstream.calls().get(index).cloned() else {
            differences.compare(&name, sent.as_str(), &format!("never, but {answer}"));
            return;
        };
        compare_request(&mut differences, &name, cell, (&sent, &call.text));
    }
}

fn compare_request(differences: &mut Differences, name: &str, cell: Cell, (sent, came): (&str, &str)) {
    let id = get(came, &["id"]).expect("an id");
    differences.compare(name, get(came, &["params", "name"]), Some("\"take\""));
    let sent = replaced(&replaced(sent, &["id"], id), &["params", "name"], "\"take\"");
    if cell.is_straight() && cell.client == Era::Legacy {
        return differences.compare(name, sent.as_str(), came);
    }
    let own = |text| members_without(text, &["params", "_meta"], &HOP_KEYS);
    differences.compare(name, own(&sent), own(came));
    if cell.is_straight() {
        let masked = |text| replaced(text, &["params", "_meta"], "META");
        return differences.compare(name, masked(&sent), masked(came));
    }
    let outside = |text| members_without(text, &["params"], &["_meta"]);
    differences.compare(name, outside(&sent), outside(came));
    let envelope = |text| members_without(text, &[], &["params"]);
    differences.compare(name, envelope(&sent), envelope(came));
}

fn results(cell: Cell) {
    compare_results(cell, Form::Json);
}

#[test]
fn results_survive_streams_of_either_line_end() {
    let (transport, server) = (Transport::Http, Era::Legacy);
    compare_results(Cell { client: Era::Legacy, server, transport }, Form::Sse("\r\n"));
    compare_results(Cell { client: Era::Modern, server, transport }, Form::Sse("\n"));
}

fn compare_results(cell: Cell, form: Form) {
    let given = cases("results");
    let gifts = given.clone();
    let script = Script::of(cell.server).form(form).tool("give", move |turn| {
        let index = get(turn.arguments(), &["case"]).expect("a case").parse::<usize>().expect("a number");
        turn.ok(&gifts[index].1);
    });
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let mut differences = Differences::default();
    for (index, (name, text)) in given.iter().enumerate() {
        let request = client.calling("up__give", &format!(r#"{{"case":{index}}}"#));
        let body = String::from_utf8(request.body.clone()).expect("UTF-8");
        let came = request.send().message();
        let sent = format!(r#"{{"jsonrpc":"2.0","id":0,"result":{text}}}"#);
        let sent = replaced(&sent, &["id"], get(&body, &["id"]).expect("an id"));
        compare_result(&mut differences, name, cell, (&sent, &came));
    }
}

fn compare_result(differences: &mut Differences, name: &str, cell: Cell, (sent, came): (&str, &str)) {
    if cell.is_straight() && cell.client == Era::Legacy {
        return differences.compare(name, sent, came);
    }
    let eras = match cell.client {
        Era::Legacy => None,
        Era::Modern => Some("\"complete\""),
    };
    differences.compare(name, eras, get(came, &["result", "resultType"]));
    let own = |text| members_without(text, &["result", "_meta"], &[SERVER_INFO]);
    differences.compare(name, own(sent), own(came));
    let outside = |text| members_without(text, &["result"], &["_meta", "resultType"]);
    differences.compare(name, outside(sent), outside(came));
    let envelope = |text| members_without(text, &[], &["result"]);
    differences.compare(name, envelope(sent), envelope(came));
    if cell.client == Era::Legacy {
        let meta = get(came, &["result", "_meta"]).unwrap_or("{}");
        differences.compare(name, None, get(meta, &[SERVER_INFO]));
    }
}

fn errors(cell: Cell) {
    let given = cases("errors");
    let gifts = given.clone();
    let script = Script::of(cell.server).tool("fail", move |turn| {
        let index = get(turn.arguments(), &["case"]).expect("a case").parse::<usize>().expect("a number");
        turn.error_with("200 OK", &gifts[index].1);
    });
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let mut differences = Differences::default();
    for (index, (name, text)) in given.iter().enumerate() {
        let request = client.calling("up__fail", &format!(r#"{{"case":{index}}}"#));
        let body = String::from_utf8(request.body.clone()).expect("UTF-8");
        let came = request.send().message();
        differences.compare(name, get(&body, &["id"]), get(&came, &["id"]));
        differences.compare(name, Some(text.as_str()), get(&came, &["error"]));
        differences.compare(name, None, get(&came, &["result"]));
    }
}

fn tools(cell: Cell) {
    let given = cases("tools");
    let entry = |index: usize, prefix: &str| {
        let name = quoted(&format!("{prefix}tool_{index:02}"));
        replaced(&given[index].1, &["name"], &name)
    };
    let script =
        (0..given.len()).fold(Script::of(cell.server), |script, index| script.listed(&entry(index, "")));
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let listed = client.tools_raw();
    let mut differences = Differences::default();
    for (index, (name, _)) in given.iter().enumerate() {
        let came = listed.get(index).map(String::as_str);
        differences.compare(name, Some(entry(index, "up__").as_str()), came);
    }
    differences.compare("how many", given.len(), listed.len());
}

/// White space between tokens is the one thing that a line-based transport cannot carry as it is.
#[test]
fn a_message_of_many_lines_reaches_a_child_as_one() {
    let upstream = Script::legacy().tool("take", |turn| turn.text("taken")).stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let body = "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 5,\n  \"method\": \"tools/call\",\n  \"params\": {\n    \
                \"name\": \"up__take\",\n    \"arguments\": {\n\t\"a\": 1e2,\r\"b\": \"x\\ny\"\n    }\n  }\n}\n";
    let answer = client.post(body).send();
    assert_eq!(first_text(&answer.message()), Some("\"taken\""), "{}", answer.text());
    let call = upstream.calls().remove(0);
    assert!(!call.text.contains(['\n', '\r']), "{:?}", call.text);
    let inside = members(call.arguments());
    assert_eq!(inside, [("\"a\"", "1e2"), ("\"b\"", "\"x\\ny\"")]);
}

#[test]
fn a_message_of_many_lines_reaches_an_http_server_as_it_is() {
    let upstream = Script::legacy().tool("take", |turn| turn.text("taken")).http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let arguments = "{\n  \"a\": 1e2,\r\n\t\"b\": [\n]\n}";
    client.call_raw("up__take", arguments);
    assert_eq!(upstream.calls().remove(0).arguments(), arguments);
}

/// An answer of many lines fits into a document as it is, and into a stream as lines of one event.
#[test]
fn an_answer_of_many_lines_comes_whole() {
    let result = "{\n \"content\": [\n  {\"type\": \"text\", \"text\": \"x\"}\n ],\n \"structuredContent\": {\"a\": 1.0}\n}";
    let script = Script::legacy().tool("give", move |turn| turn.result(result)).tool("stream", move |turn| {
        turn.progress(1);
        turn.result(&result.replace('\n', " "));
    });
    let upstream = script.http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(get(&client.call_raw("up__give", "{}"), &["result"]), Some(result));
    let as_stream = client.calling("up__give", "{}").header("Accept", "text/event-stream").send();
    assert!(as_stream.content_type().starts_with("text/event-stream"), "{:?}", as_stream.head);
    let message = as_stream.message();
    let came = get(&message, &["result"]).expect("a result");
    assert_eq!(came.replace('\n', " "), result.replace('\n', " "));
    let params = r#"{"name":"up__stream","arguments":{},"_meta":{"progressToken":1}}"#;
    let streamed = client.request("tools/call", params).send();
    assert_eq!(streamed.messages().len(), 2, "{}", streamed.text());
    assert_eq!(get(&streamed.message(), &["result"]), Some(&*result.replace('\n', " ")));
}

/// What nests deeper than 128 breaks parsers behind us: it is refused, and only it.
#[test]
fn what_nests_too_deep_is_refused_in_both_directions() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let gift = deep.clone();
    let script = Script::echo(Era::Legacy).tool("deep", move |turn| {
        turn.result(&format!(r#"{{"content":[],"structuredContent":{{"a":{gift}}}}}"#))
    });
    let upstream = script.stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    let refused = client.calling("up__echo", &format!(r#"{{"a":{deep}}}"#)).send();
    assert_eq!(refused.code(), -32600, "{}", refused.text());
    assert!(refused.text().contains("128"), "{}", refused.text());
    assert_eq!(upstream.calls().len(), 0);
    let broken = client.call("up__deep", serde_json::json!({}));
    assert_eq!(broken["result"]["isError"], true, "{broken}");
    assert_eq!(client.echo("up__echo", "still there"), "still there");
}

/// Entries of the other lists, and results of what goes to an upstream besides calls of tools.
fn more(cell: Cell) {
    const ENTRY: &str = r#"{ "x-big" : 18446744073709551616 , "\u006eame":"p" , "title":"\ud83d\ude00","arguments":[{"name":"a","required":true,"x":1.0}],"_meta":{"k":-0.0},"icons":[] }"#;
    const RESOURCE: &str = r#"{"size":1e3,"uri":"file:///a%20b?x#y","name":"file:///a%20b?x#y","annotations":{"audience":["user"],"priority":0.10},"_meta":{"ui":{"resourceUri":"file:///a%20b?x#y"}}}"#;
    const TEMPLATE: &str = r#"{"uriTemplate":"x://{a}{?b,c}","x":null,"name":"t"}"#;
    const PROMPT: &str = r#"{"x":1e2,"messages":[{"content":{"type":"resource","resource":{"uri":"file:\/\/\/a%20b?x#y","text":"\u00e9","x":0.10}},"role":"user"}],"_meta":{"k":[1,{}]}}"#;
    const CONTENTS: &str = r#"{"contents":[{"uri":"file:\/\/\/a%20b?x#y","blob":"AA==","_meta":{"n":1.50}}],"z":{},"_meta":{"k":1E+2}}"#;
    const VALUES: &str = r#"{"completion":{"values":["\u0061"],"total":1.0,"hasMore":false,"x":null}}"#;
    let script = Script::of(cell.server).entry("prompts/list", ENTRY).entry("resources/list", RESOURCE);
    let script = script.entry("resources/templates/list", TEMPLATE).declaring("completions");
    let script =
        script.on("prompts/get", |turn| turn.ok(PROMPT)).on("resources/read", |turn| turn.ok(CONTENTS));
    let upstream = script.on("completion/complete", |turn| turn.ok(VALUES)).over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    let mut differences = Differences::default();
    let exposed = ENTRY.replace(r#":"p""#, r#":"up__p""#);
    for (method, key, wanted) in [
        ("prompts/list", "prompts", exposed.as_str()),
        ("resources/list", "resources", RESOURCE),
        ("resources/templates/list", "resourceTemplates", TEMPLATE),
    ] {
        differences.compare(method, vec![wanted.to_owned()], client.entries(method, key));
    }
    for (method, params, native, result) in [
        (
            "prompts/get",
            r#"{"x":1.0,"name":"up__p","arguments":{"a":"\u0061"}}"#,
            r#"{"x":1.0,"name":"p","arguments":{"a":"\u0061"}}"#,
            PROMPT,
        ),
        (
            "resources/read",
            r#"{"uri":"file:\/\/\/a%20b?x#y","n":1e2}"#,
            r#"{"uri":"file:\/\/\/a%20b?x#y","n":1e2}"#,
            CONTENTS,
        ),
        (
            "completion/complete",
            r#"{"argument":{"value":"","name":"a","x":1.0},"ref":{ "name":"up__p" ,"x":1e2,"type":"ref/prompt"}}"#,
            r#"{"argument":{"value":"","name":"a","x":1.0},"ref":{ "name":"p" ,"x":1e2,"type":"ref/prompt"}}"#,
            VALUES,
        ),
    ] {
        let came = client.request(method, params).send().message();
        let request = upstream.of_method(method).pop().map(|received| received.text).unwrap_or_default();
        let params = members_without(&request, &["params"], &["_meta"]);
        differences.compare(
            method,
            members_without(&format!(r#"{{"params":{native}}}"#), &["params"], &[]),
            params,
        );
        let added = ["resultType", "ttlMs", "cacheScope"];
        let sent = format!(r#"{{"result":{result}}}"#);
        differences.compare(
            method,
            members_without(&sent, &["result"], &[]),
            members_without(&came, &["result"], &added),
        );
    }
}
