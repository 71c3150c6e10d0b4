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
        let changing = json!({"listChanged": true});
        let expected =
            json!({"completions": {}, "prompts": changing, "resources": changing, "tools": changing});
        assert_eq!(*capabilities, expected);
    }
    assert_eq!(client.prompt_names(), ["up__greet"]);
    assert_eq!(client.resource_uris(), ["file:///a.txt"]);
    assert_eq!(client.template_uris(), ["test://{id}/data"]);
    let prompt = client.prompt("up__greet");
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "greet", "{prompt}");
    for uri in ["file:///a.txt", "test://7/data"] {
        let answer = client.read(uri);
        assert_eq!(text_of(&answer), format!("up: {uri}"));
        let hints =
            (&answer["result"]["resultType"], &answer["result"]["ttlMs"], &answer["result"]["cacheScope"]);
        match (cell.client, cell.server) {
            (Era::Legacy, _) => assert_eq!(hints, (&Value::Null, &Value::Null, &Value::Null)),
            (Era::Modern, Era::Legacy) => {
                assert_eq!(hints, (&json!("complete"), &json!(0), &json!("private")))
            }
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
        "null",
        "7",
    ] {
        assert_eq!(client.complete(reference)["error"]["code"], -32602, "{reference}");
    }
    let twice = r#"{"type":"ref/prompt","name":"greet","name":"up__greet"}"#;
    assert_eq!(client.complete(twice)["error"]["code"], -32600, "{twice}");
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
        let config = bits
            .iter()
            .zip(&upstreams)
            .fold(Config::new(), |config, (bit, upstream)| config.upstream(&format!("u{bit}"), upstream));
        let gateway = config.upstream("down", &down).start();
        eventually("all that can be ready are", || {
            let up = gateway.metrics().sum("waypost_upstream_up", &[]);
            (up > f64::from(u8::try_from(bits.len()).unwrap()) - 0.5).then_some(())
        });
        for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
            let capabilities = match &client.hello {
                Some(hello) => hello["result"]["capabilities"].clone(),
                None => {
                    client.request("server/discover", "{}").send().json()["result"]["capabilities"].clone()
                }
            };
            let reference =
                r#"{"ref":{"type":"ref/prompt","name":"u1__p"},"argument":{"name":"a","value":""}}"#;
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
    eventually("the tools are read again", || {
        (lying.of_method("tools/list").len() > asked + 1).then_some(())
    });
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

/// Two servers with equal URIs and an equal template, and one that says its URIs everywhere.
#[test]
fn nam_07_equal_uris_of_two_servers_are_told_apart() {
    let script = |era: Era, own: &str| {
        let script = Script::of(era).resources(own, ["config://app", "config://app?x=1#y"]);
        script.template("file:///{path}")
    };
    let (a, b) = (script(Era::Legacy, "a").http(), completing(script(Era::Modern, "b")).http());
    let gateway = Config::new().upstream("a", &a).upstream("b", &b).ready();
    for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
        let own = |uri: &str| text_of(&client.read(uri)).to_owned();
        let listed = client.resource_uris();
        let tagged = ["config://app#@b", "config://app?x=1#y#@b"];
        assert_eq!(listed, [&["config://app", "config://app?x=1#y"], &tagged[..]].concat());
        assert_eq!(client.template_uris(), ["file:///{path}", "file:///{path}#@b"]);
        assert_eq!(own("config://app"), "a: config://app");
        assert_eq!(own("config://app#@b"), "b: config://app");
        assert_eq!(own("config://app?x=1#y#@b"), "b: config://app?x=1#y");
        assert_eq!(own("config://app#@a"), "a: config://app", "a tag that nobody needs");
        assert_eq!(own("file:///z"), "a: file:///z");
        assert_eq!(own("file:///z#@b"), "b: file:///z");
        let answer = client.read("file:///z#@b");
        assert_eq!(answer["result"]["contents"][0]["uri"], "file:///z#@b", "{answer}");
        for uri in
            ["config://other", "config://app#", "config://app#@c", "config://app#@", "#@b", "config://ap"]
        {
            expect_not_found(&client, uri);
        }
        let reference = r#"{"type":"ref/resource","uri":"file:///{path}#@b"}"#;
        let native = r#"{"type":"ref/resource","uri":"file:///{path}"}"#;
        assert_eq!(client.complete(reference)["result"]["completion"]["values"][0], native);
    }
}

/// A URI that exists elsewhere, in every place where the schema puts one, and in text.
const SAYING: &str = r#"{"content":[{"type":"text","text":"open ui://x/y"},{"type":"resource_link","uri":"ui://x/y","name":"ui://x/y"},{"type":"resource","resource":{"uri":"ui://x/y","text":"ui://x/y"}}],"structuredContent":{"uri":"ui://x/y"},"_meta":{"ui":{"resourceUri":"ui://x/y"},"ui/resourceUri":"ui://x/y"}}"#;
const TOOL: &str = r#"{"name":"show","inputSchema":{"type":"object"},"_meta":{"ui":{"resourceUri":"ui://x/y"},"ui/resourceUri":"ui://x/y","n":1e2},"description":"ui://x/y"}"#;
const PROMPT: &str = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"ui://x/y","text":"ui://x/y"}}}]}"#;

fn showing(era: Era, own: &str) -> Script {
    let script = Script::of(era).listed(TOOL).handled("show", |turn| turn.ok(SAYING)).prompt("p");
    script.on("prompts/get", |turn| turn.ok(PROMPT)).resources(own, ["ui://x/y"])
}

#[test]
fn nam_08_a_tagged_uri_is_tagged_in_every_place_and_text_is_not_touched() {
    for server in [Era::Legacy, Era::Modern] {
        let (a, b) = (showing(server, "a").http(), showing(server, "b").stdio());
        let gateway = Config::new().upstream("a", &a).upstream("b", &b).ready();
        for client in [Client::legacy(&gateway), Client::modern(&gateway)] {
            let result = |name: &str| {
                let answer = client.call(name, json!({}));
                let mut result = answer["result"].clone();
                result.as_object_mut().expect("an object").remove("resultType");
                result
            };
            let plain: Value = serde_json::from_str(SAYING).unwrap();
            assert_eq!(result("a__show"), plain, "nothing of the first is touched");
            let mut tagged = plain.clone();
            let uri = json!("ui://x/y#@b");
            tagged["content"][1]["uri"] = uri.clone();
            tagged["content"][2]["resource"]["uri"] = uri.clone();
            tagged["_meta"]["ui"]["resourceUri"] = uri.clone();
            tagged["_meta"]["ui/resourceUri"] = uri.clone();
            assert_eq!(result("b__show"), tagged);
            let tools = client.tools_raw();
            let expected = TOOL.replace("\"show\"", "\"a__show\"");
            assert_eq!(tools[0], expected);
            let expected = TOOL.replace("\"show\"", "\"b__show\"");
            let expected = expected.replace(r#"Uri":"ui://x/y""#, r#"Uri":"ui://x/y#@b""#);
            assert_eq!(tools[1], expected);
            let prompt = client.prompt("b__p");
            let resource = &prompt["result"]["messages"][0]["content"]["resource"];
            assert_eq!(*resource, json!({"uri": uri, "text": "ui://x/y"}), "{prompt}");
            assert_eq!(text_of(&client.read("ui://x/y#@b")), "b: ui://x/y");
            assert_eq!(text_of(&client.read("ui://x/y")), "a: ui://x/y");
        }
    }
}

/// An upstream that is down is told apart from a resource that is not there, where the tag says whose it is.
#[test]
fn a_tagged_uri_of_an_upstream_that_is_down_says_so() {
    let down = Script::legacy().resources("down", ["x://a"]).http();
    down.go_down();
    let up = Script::legacy().resources("up", ["x://a"]).stdio();
    let gateway = Config::new().upstream("up", &up).upstream("down", &down).start();
    let client = Client::legacy(&gateway);
    eventually("it is ready", || (client.request("resources/list", "{}").send().code() == 0).then_some(()));
    let answer = client.read("x://a#@down");
    assert_eq!(answer["error"]["code"], 503, "{answer}");
    assert_eq!(answer["error"]["data"]["upstream"], "down", "{answer}");
    expect_not_found(&client, "x://b");
}

fn with_clients(config: Config, alice: Value) -> Config {
    let mut alice = alice;
    alice["tokens"] = json!([{"env": "ALICE"}]);
    let bob = json!({"tokens": [{"env": "BOB"}]});
    config.clients(json!({"alice": alice, "bob": bob})).env("ALICE", "t-alice").env("BOB", "t-bob")
}

/// What is denied is on no list, and no way leads to it: by name, by template, by completion, by spelling.
#[test]
fn pol_01_policy_holds_for_prompts_and_resources_on_every_path() {
    let script = completing(Script::legacy().prompt("greet").prompt("drop").prompt("secret"));
    let script = script.resources("up", ["file:///public", "file:///hidden", "file:///alices"]);
    let upstream = script.template("file:///{+path}").template("hidden://{id}").http();
    let filters = json!({
        "prompts": {"deny": ["drop"]},
        "resources": {"deny": ["file:///hidden*", "hidden://*"]},
    });
    let alice = json!({"prompts": {"allow": ["up__greet"]}, "resources": {"allow": ["file:///*"], "deny": ["file:///alices"]}});
    let gateway = with_clients(Config::new().upstream_with("up", &upstream, filters), alice).ready();
    for client in [Client::legacy_with(&gateway, "t-alice"), Client::modern_with(&gateway, "t-alice")] {
        assert_eq!(client.prompt_names(), ["up__greet"]);
        assert_eq!(client.resource_uris(), ["file:///public"]);
        assert_eq!(client.template_uris(), ["file:///{+path}"]);
        for name in ["up__drop", "up__secret", "drop"] {
            let answer = client.prompt(name);
            assert_eq!(answer["error"]["message"], format!("Unknown prompt: {name}"), "{answer}");
            let reference = json!({"type": "ref/prompt", "name": name}).to_string();
            assert_eq!(client.complete(&reference)["error"]["code"], -32602, "{name}");
        }
        let seen = upstream.of_method("resources/read").len();
        for uri in [
            "file:///hidden",
            "file:///hidden/deeper",
            "file:///%68idden",
            "file:///public/../hidden",
            "file:///public/%2e%2e/hidden",
            "file:///./hidden",
            "file:///alices",
            "file:///alice%73",
            "file:///hidden#@up",
            "file:///alices#@up",
            "hidden://7",
        ] {
            expect_not_found(&client, uri);
        }
        assert_eq!(upstream.of_method("resources/read").len(), seen, "nothing denied reached the server");
        for uri in ["hidden://{id}", "file:///hidden", "file:///alices"] {
            let reference = json!({"type": "ref/resource", "uri": uri}).to_string();
            assert_eq!(client.complete(&reference)["error"]["code"], -32602, "{uri}");
        }
        for uri in ["file:///public", "file:///made/by/template", "file:///public#@up"] {
            assert!(client.read(uri)["error"].is_null(), "{uri}");
        }
    }
    let bob = Client::modern_with(&gateway, "t-bob");
    assert_eq!(bob.prompt_names(), ["up__greet", "up__secret"]);
    assert_eq!(bob.resource_uris(), ["file:///public", "file:///alices"]);
    gateway.wait_metric("waypost_calls_total", &[("method", "resources/read"), ("outcome", "denied")], 22.0);
}

/// A header cannot open what the body does not.
#[test]
fn pol_01_the_name_in_the_header_is_that_of_the_body() {
    let upstream = Script::modern().prompt("a").resources("up", ["x://a", "x://ü"]).http();
    let gateway = Config::new().upstream("up", &upstream).ready();
    let client = Client::modern(&gateway);
    for (method, params, other) in
        [("prompts/get", r#"{"name":"up__a"}"#, "up__b"), ("resources/read", r#"{"uri":"x://a"}"#, "x://b")]
    {
        for request in [
            client.request(method, params).header("Mcp-Name", other),
            client.request(method, params).without("Mcp-Name"),
        ] {
            let response = request.send();
            assert_eq!((response.status, response.code()), (400, -32020), "{}", response.text());
        }
        assert_eq!(client.request(method, params).send().code(), 0, "{method}");
    }
    assert_eq!(text_of(&client.read("x://ü")), "up: x://ü");
}

/// What everybody may share by the server's word is still private where clients differ.
#[test]
fn a_read_resource_is_shared_by_nobody_where_there_are_clients() {
    let script = Script::modern().resources("up", ["x://a"]).on("resources/read", |turn| {
        turn.ok(r#"{"contents":[],"ttlMs":5000,"cacheScope":"public"}"#);
    });
    let upstream = script.http();
    let config = || Config::new().upstream("up", &upstream);
    let open = Client::modern(&config().ready()).read("x://a");
    assert_eq!((&open["result"]["ttlMs"], &open["result"]["cacheScope"]), (&json!(5000), &json!("public")));
    let gateway = with_clients(config(), json!({})).ready();
    let closed = Client::modern_with(&gateway, "t-alice").read("x://a");
    assert_eq!(
        (&closed["result"]["ttlMs"], &closed["result"]["cacheScope"]),
        (&json!(5000), &json!("private"))
    );
}
