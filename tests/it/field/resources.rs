//! Prompts, resources, templates and completion: aggregated, filtered and routed like tools.

use std::time::Instant;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Config;
use crate::support::json::{get, string};
use crate::support::matrix::{Cell, Era};
use crate::support::script::Script;
use crate::support::upstream::Upstream;
use crate::support::{eventually, patience};

crate::matrix! { everything what_is_not_there }

const NOT_FOUND: [i64; 2] = [-32002, -32602];

fn text_of(answer: &Value) -> &str {
    answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// The answer of a client's era to a URI that leads nowhere.
fn expect_not_found(client: &Client, uri: &str) {
    let answer = client.read(uri);
    let [legacy, modern] = NOT_FOUND;
    let code = if client.era == Era::Legacy { legacy } else { modern };
    assert_eq!(answer["error"]["code"], code, "{uri}: {answer}");
    assert_eq!(answer["error"]["data"]["uri"], uri, "{answer}");
}

fn completing(script: Script) -> Script {
    script.declaring("completions").on("completion/complete", |turn| {
        let reference = get(&turn.text, &["params", "ref"]).expect("a reference").to_owned();
        let values = crate::support::json::quoted(&reference);
        turn.ok(&format!(r#"{{"completion":{{"values":[{values}],"hasMore":false}}}}"#));
    })
}

/// One server with one of each, and one with nothing.
fn everything(cell: Cell) {
    let script = Script::echo(cell.server).prompt("greet").resources("up", ["file:///a.txt"]);
    let upstream = completing(script.template("test://{id}/data")).over(cell.transport);
    let bare = Script::echo(cell.server).over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).upstream("bare", &bare).ready();
    let client = Client::of(&gateway, cell.client);
    if let Some(hello) = &client.hello {
        let capabilities = &hello["result"]["capabilities"];
        assert_eq!(*capabilities, json!({"completions": {}, "prompts": {}, "resources": {}, "tools": {}}));
    }
    assert_eq!(client.prompt_names(), ["up__greet"]);
    assert_eq!(client.resource_uris(), ["file:///a.txt"]);
    assert_eq!(client.template_uris(), ["test://{id}/data"]);
    let prompt = client.prompt("up__greet");
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "greet", "{prompt}");
    for uri in ["file:///a.txt", "test://7/data"] {
        let answer = client.read(uri);
        assert_eq!(text_of(&answer), format!("up: {uri}"));
        let hints = (&answer["result"]["resultType"], &answer["result"]["ttlMs"], &answer["result"]["cacheScope"]);
        match (cell.client, cell.server) {
            (Era::Legacy, _) => assert_eq!(hints, (&Value::Null, &Value::Null, &Value::Null)),
            (Era::Modern, Era::Legacy) => assert_eq!(hints, (&json!("complete"), &json!(0), &json!("private"))),
            (Era::Modern, Era::Modern) => assert_eq!(hints.0, "complete"),
        }
    }
    for (reference, native) in [
        (r#"{"type":"ref/prompt","name":"up__greet"}"#, r#"{"type":"ref/prompt","name":"greet"}"#),
        (
            r#"{"type":"ref/resource","uri":"test://{id}/data"}"#,
            r#"{"type":"ref/resource","uri":"test://{id}/data"}"#,
        ),
    ] {
        let answer = client.complete(reference);
        assert_eq!(answer["result"]["completion"]["values"][0], native, "{answer}");
    }
    let labels = |method, tool| [("method", method), ("tool", tool), ("outcome", "ok"), ("upstream", "up")];
    gateway.wait_metric("waypost_calls_total", &labels("prompts/get", "up__greet"), 1.0);
    gateway.wait_metric("waypost_calls_total", &labels("resources/read", ""), 2.0);
    assert!(bare.of_method("prompts/list").is_empty() && bare.of_method("resources/list").is_empty());
}

fn what_is_not_there(cell: Cell) {
    let own_code = if cell.server == Era::Legacy { NOT_FOUND[0] } else { NOT_FOUND[1] };
    let script = Script::echo(cell.server).prompt("greet").resources("up", ["x://there"]);
    let script = completing(script.template("test://{id}/data")).on("resources/read", move |turn| {
        let data = format!(r#""data":{{"uri":{},"n":1e2}}"#, crate::support::json::quoted(&turn.uri()));
        turn.error_with("200 OK", &format!(r#"{{"code":{own_code},"message":"no such thing",{data}}}"#));
    });
    let upstream = script.over(cell.transport);
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::of(&gateway, cell.client);
    // The server's own word, in the client's code.
    for uri in ["x://there", "test://0/data"] {
        expect_not_found(&client, uri);
        let message = client.request("resources/read", &format!(r#"{{"uri":"{uri}"}}"#)).send().message();
        assert_eq!(get(&message, &["error", "data", "n"]), Some("1e2"));
        assert_eq!(string(&message, &["error", "message"]).as_deref(), Some("no such thing"));
    }
    let reads = upstream.of_method("resources/read").len();
    for uri in ["x://elsewhere", "", "test://0/1/data", "x://there#@up2"] {
        expect_not_found(&client, uri);
    }
    assert_eq!(upstream.of_method("resources/read").len(), reads, "nobody was asked");
    for name in ["greet", "up__none", ""] {
        let answer = client.prompt(name);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], format!("Unknown prompt: {name}"), "{answer}");
    }
    for reference in [
        r#"{"type":"ref/prompt","name":"greet"}"#,
        r#"{"type":"ref/resource","uri":"x://elsewhere"}"#,
        r#"{"type":"ref/prompt","uri":"x://there"}"#,
        r#"{"type":"ref/other","name":"up__greet"}"#,
        r#"{"name":"up__greet"}"#,
        r#"{"type":"ref/prompt","name":"greet","name":"up__greet"}"#,
        "null",
        "7",
    ] {
        assert_eq!(client.complete(reference)["error"]["code"], -32602, "{reference}");
    }
    assert!(upstream.of_method("completion/complete").is_empty());
    for params in ["{}", r#"{"uri":7}"#] {
        assert_eq!(client.request("resources/read", params).send().code(), -32602);
    }
}

/// Every combination of what a server may have, and a server that is down.
#[test]
fn cap_01_what_is_promised_works_and_the_rest_is_no_method() {
    let down = Script::echo(Era::Legacy).prompt("p").http();
    down.go_down();
    let script = |bit: u8| match bit {
        0 => Script::echo(Era::Legacy),
        1 => completing(Script::echo(Era::Modern).prompt("p")),
        _ => Script::echo(Era::Legacy).resources("r", ["x://a"]),
    };
    for combination in 0_u8..8 {
        let bits: Vec<u8> = (0..3).filter(|bit| combination & (1 << bit) != 0).collect();
        let upstreams: Vec<Upstream> = bits.iter().map(|bit| script(*bit).http()).collect();
        let config = bits.iter().zip(&upstreams).fold(Config::new(), |config, (bit, upstream)| {
            config.upstream(&format!("u{bit}"), upstream)
        });
        let gateway = config.upstream("down", &down).start();
        eventually("all that can be ready are", || {
            let up = gateway.metrics().sum("waypost_upstream_up", &[]);
            (up > f64::from(u8::try_from(bits.len()).unwrap()) - 0.5).then_some(())
        });
        for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
            let capabilities = match &client.hello {
                Some(hello) => hello["result"]["capabilities"].clone(),
                None => client.request("server/discover", "{}").send().json()["result"]["capabilities"].clone(),
            };
            let reference = r#"{"ref":{"type":"ref/prompt","name":"u1__p"},"argument":{"name":"a","value":""}}"#;
            for (capability, method, params) in [
                ("tools", "tools/list", "{}"),
                ("prompts", "prompts/list", "{}"),
                ("prompts", "prompts/get", r#"{"name":"u1__p"}"#),
                ("completions", "completion/complete", reference),
                ("resources", "resources/list", "{}"),
                ("resources", "resources/templates/list", "{}"),
                ("resources", "resources/read", r#"{"uri":"x://a"}"#),
            ] {
                let is_promised = !capabilities[capability].is_null();
                let response = client.request(method, params).send();
                let wanted = if is_promised { 0 } else { -32601 };
                assert_eq!(response.code(), wanted, "{bits:?} {method}: {}", response.text());
            }
            assert_eq!(!capabilities["prompts"].is_null(), bits.contains(&1), "{capabilities}");
            assert_eq!(!capabilities["resources"].is_null(), bits.contains(&2), "{capabilities}");
        }
    }
}

#[test]
fn agg_08_a_list_that_is_promised_and_not_there_hurts_no_other() {
    let lying = Script::echo(Era::Legacy).declaring("resources").declaring("prompts").first(|turn| {
        match &*turn.method() {
            "resources/list" | "resources/templates/list" => turn.error(-32601, "Method not found"),
            "prompts/list" => std::thread::sleep(patience() * 2),
            _ => return false,
        }
        true
    });
    let lying = lying.http();
    let good = Script::echo(Era::Modern).prompt("p").resources("good", ["x://a"]).stdio();
    let config = Config::new().upstream_with("b", &lying, json!({"refresh": "200ms"}));
    let gateway = config.upstream("good", &good).ready();
    let began = Instant::now();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        assert_eq!(client.prompt_names(), ["good__p"]);
        assert_eq!(client.resource_uris(), ["x://a"]);
        assert_eq!(client.template_uris(), Vec::<String>::new());
        assert_eq!(client.echo("b__echo", "x"), "x");
    }
    assert!(began.elapsed() < patience());
    let asked = lying.of_method("tools/list").len();
    eventually("the tools are read again", || (lying.of_method("tools/list").len() > asked + 1).then_some(()));
    assert_eq!(lying.of_method("resources/list").len(), 1, "the answer is remembered");
    assert_eq!(lying.of_method("resources/templates/list").len(), 1);
    assert_eq!(lying.of_method("prompts/list").len(), 1, "one is on its way");
}

#[test]
fn pag_01_every_page_of_every_list_is_read() {
    let uris: Vec<String> = (0..5).map(|index| format!("x://{index}")).collect();
    let script = (0..7).fold(Script::legacy(), |script, index| script.prompt(&format!("p{index}")));
    let script = script.resources("a", uris.iter().map(String::as_str));
    let script = (0..3).fold(script, |script, index| script.template(&format!("t{index}://{{id}}")));
    let (paged, whole) = (script.clone().paged(2).http(), Script::modern().prompt("q").stdio());
    let config = Config::new().upstream("a", &paged).upstream("b", &whole).set("page_size", json!(3));
    let gateway = config.ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let prompts = client.prompt_names();
        assert_eq!((prompts.len(), prompts.last().map(String::as_str)), (8, Some("b__q")));
        assert_eq!(client.resource_uris(), uris);
        assert_eq!(client.template_uris(), ["t0://{id}", "t1://{id}", "t2://{id}"]);
        assert_eq!(client.prompt("a__p6")["result"]["messages"][0]["content"]["text"], "p6");
        assert_eq!(text_of(&client.read("x://4")), "a: x://4");
        assert_eq!(text_of(&client.read("t2://9")), "a: t2://9");
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            assert_eq!(client.request(method, r#"{"cursor":"made up"}"#).send().code(), -32602, "{method}");
        }
    }
}

#[test]
fn malformed_entries_of_any_list_are_left_out_singly() {
    let script = Script::legacy()
        .prompt("good")
        .entry("prompts/list", r#"{"name":7}"#)
        .entry("prompts/list", r#""text""#)
        .entry("prompts/list", r#"{"name":"good","description":"again"}"#)
        .resources("up", ["x://a"])
        .entry("resources/list", r#"{"name":"no URI"}"#)
        .entry("resources/list", r#"{"uri":"x://b","name":1}"#)
        .entry("resources/templates/list", r#"{"uriTemplate":null}"#)
        .template("x://{");
    let upstream = script.stdio();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(client.prompt_names(), ["up__good"]);
    assert_eq!(client.resource_uris(), ["x://a", "x://b"]);
    assert_eq!(client.template_uris(), ["x://{"]);
    expect_not_found(&client, "x://c");
    gateway.wait_metric("waypost_entries_skipped_total", &[("upstream", "up")], 5.0);
}
