//! Tasks: calls that outlive their request, between peers of one kind, each task its owner's alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};

use crate::support::client::{Client, header_value};
use crate::support::gateway::{Config, Gateway};
use crate::support::json::{elements, get, quoted, string};
use crate::support::matrix::{Cell, Era, Transport};
use crate::support::script::Script;
use crate::support::turn::{Form, Turn};
use crate::support::{eventually, patience};

crate::matrix! {
    task_ids_lead_back_to_their_upstream_and_to_nobody_else
    task_is_never_given_to_a_client_of_the_other_kind
}

const EXTENSION: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"elicitation":{"form":{}}}"#;
const RELATED: &str = "io.modelcontextprotocol/related-task";
const TIMES: &str = r#""createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z""#;
const SLOW: &str =
    r#"{"name":"slow","inputSchema":{"type":"object"},"execution":{"taskSupport":"optional","x":1.0}}"#;

/// The tasks that a scripted server has: native ids, and what each says.
type Tasks = Arc<Mutex<HashMap<String, String>>>;

fn known(turn: &Turn, tasks: &Tasks) -> Option<(String, String)> {
    let id = string(&turn.text, &["params", "taskId"])?;
    let said = tasks.lock().unwrap().get(&id).cloned();
    if said.is_none() {
        turn.error(-32602, "Failed to retrieve task: Task not found");
    }
    Some((id, said?))
}

fn block(said: &str) -> String {
    format!(r#""content":[{{"type":"text","text":{}}}],"isError":false"#, quoted(said))
}

/// Two tasks a page, whoever asks: a server behind a gateway knows one client only.
fn list(turn: &Turn, tasks: &Tasks) {
    let cursor = string(&turn.text, &["params", "cursor"]);
    let from: usize = match cursor.as_deref().map(str::parse) {
        Some(Ok(from)) => from,
        Some(Err(_)) => return turn.error(-32602, "Invalid cursor"),
        None => 0,
    };
    let mut ids: Vec<String> = tasks.lock().unwrap().keys().cloned().collect();
    ids.sort();
    let entry = |id: &String| format!(r#"{{"taskId":"{id}","status":"working","x":1.50e2,{TIMES}}}"#);
    let page: Vec<String> = ids.iter().skip(from).take(2).map(entry).collect();
    let next = if from + 2 < ids.len() { format!(r#","nextCursor":"{}""#, from + 2) } else { String::new() };
    turn.ok(&format!(r#"{{"tasks":[{}],"more":true{next}}}"#, page.join(", ")));
}

/// A server whose tool `slow` becomes a task where its era and its client have that; the ids begin with `own`.
pub(super) fn tasking(era: Era, own: &'static str) -> Script {
    let tasks = Tasks::default();
    let mut script = Script::of(era).listed(SLOW);
    script.capabilities = match era {
        Era::Legacy => {
            r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#.to_owned()
        }
        Era::Modern => r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#.to_owned(),
    };
    let made = Arc::clone(&tasks);
    let script = script.handled("slow", move |turn| {
        let said = turn.argument("say").unwrap_or_default();
        let declared = get(&turn.text, &["params", "_meta", "io.modelcontextprotocol/clientCapabilities"]);
        let wants = match era {
            Era::Legacy => get(&turn.text, &["params", "task"]).is_some(),
            Era::Modern => declared.is_some_and(|text| text.contains("io.modelcontextprotocol/tasks")),
        };
        if !wants {
            return turn.text(&said);
        }
        let id = format!("{own}-{}", made.lock().unwrap().len());
        made.lock().unwrap().insert(id.clone(), said);
        turn.progress(1);
        match era {
            Era::Legacy => turn.result(&format!(
                r#"{{"task":{{"taskId":"{id}","status":"working","ttl":60000,"x":1e2,{TIMES}}},"_meta":{{"note":"{id}"}}}}"#
            )),
            Era::Modern => turn.result(&format!(
                r#"{{"resultType":"task","taskId":"{id}","status":"working","ttlMs":60000,"x":1e2,{TIMES}}}"#
            )),
        }
    });
    let (got, cancelled, updated, ended, all) =
        (Arc::clone(&tasks), Arc::clone(&tasks), Arc::clone(&tasks), Arc::clone(&tasks), tasks);
    let script = script.on("tasks/list", move |turn| list(turn, &all));
    script
        .on("tasks/get", move |turn| {
            let Some((id, said)) = known(turn, &got) else { return };
            let end =
                if era == Era::Modern { format!(r#","result":{{{}}}"#, block(&said)) } else { String::new() };
            turn.ok(&format!(r#"{{"taskId":"{id}","status":"completed",{TIMES}{end}}}"#));
        })
        .on("tasks/cancel", move |turn| {
            let Some((id, _)) = known(turn, &cancelled) else { return };
            match era {
                Era::Legacy => turn.ok(&format!(r#"{{"taskId":"{id}","status":"cancelled",{TIMES}}}"#)),
                Era::Modern => turn.ok("{}"),
            }
        })
        .on("tasks/update", move |turn| {
            if known(turn, &updated).is_some() {
                turn.ok("{}");
            }
        })
        .on("tasks/result", move |turn| {
            let Some((id, said)) = known(turn, &ended) else { return };
            turn.ok(&format!(r#"{{{},"_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}}}"#, block(&said)));
        })
}

/// A client of the era that knows the tasks of its era.
pub(super) fn able(gateway: &Gateway, era: Era) -> Client {
    match era {
        Era::Legacy => Client::legacy(gateway),
        Era::Modern => Client::modern(gateway).able(EXTENSION),
    }
}

/// Starts a task and gives the answer.
pub(super) fn start(client: &Client, tool: &str, say: &str) -> Value {
    let task = if client.era == Era::Legacy { r#","task":{"ttl":60000}"# } else { "" };
    let params = format!(r#"{{"name":"{tool}","arguments":{{"say":{}}}{task}}}"#, quoted(say));
    client.request("tools/call", &params).send().json()
}

pub(super) fn id_of(answer: &Value) -> String {
    let result = &answer["result"];
    let id = result["task"]["taskId"].as_str().or(result["taskId"].as_str());
    id.unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

pub(super) fn ask(client: &Client, method: &str, id: &str) -> Value {
    let more = if method == "tasks/update" { r#","inputResponses":{}"# } else { "" };
    client.request(method, &format!(r#"{{"taskId":{}{more}}}"#, quoted(id))).send().json()
}

fn methods(era: Era) -> [&'static str; 3] {
    ["tasks/get", "tasks/cancel", if era == Era::Legacy { "tasks/result" } else { "tasks/update" }]
}

fn promised(client: &Client) -> Value {
    match client.era {
        Era::Legacy => client.hello.clone().expect("a handshake")["result"]["capabilities"].clone(),
        Era::Modern => {
            client.request("server/discover", "{}").send().json()["result"]["capabilities"].clone()
        }
    }
}

fn task_ids_lead_back_to_their_upstream_and_to_nobody_else(cell: Cell) {
    if !cell.is_straight() {
        return;
    }
    let (one, two) =
        (tasking(cell.server, "one").over(cell.transport), tasking(cell.server, "two").over(cell.transport));
    let gateway = Config::new().upstream("one", &one).upstream("two", &two).ready();
    let client = able(&gateway, cell.client);
    let expected = match cell.client {
        Era::Legacy => json!({"requests": {"tools": {"call": {}}}, "cancel": {}, "list": {}}),
        Era::Modern => Value::Null,
    };
    assert_eq!(promised(&client)["tasks"], expected);
    let is_promised = promised(&client)["extensions"]["io.modelcontextprotocol/tasks"].is_object();
    assert_eq!(is_promised, cell.client == Era::Modern);
    assert_eq!(client.tools_raw()[0].replace("one__", ""), SLOW, "untouched");
    let mut ids = Vec::new();
    for (upstream, name, say) in [(&one, "one", "a"), (&two, "two", "b"), (&two, "two", "c")] {
        let answer = start(&client, &format!("{name}__slow"), say);
        assert!(answer.to_string().contains("100.0"), "the rest is untouched: {answer}");
        let id = id_of(&answer);
        assert!(!id.contains(name) && header_value(&id) == id, "{id}");
        for method in methods(cell.client) {
            let answer = ask(&client, method, &id);
            assert!(answer["result"].is_object(), "{method}: {answer}");
            let seen = upstream.of_method(method).pop().expect("it reached its upstream");
            let native = string(&seen.text, &["params", "taskId"]).unwrap();
            assert!(native.starts_with(&format!("{name}-")), "{native}");
            if seen.head.is_some() && cell.server == Era::Modern {
                assert_eq!(seen.header("mcp-name"), Some(&*native), "{method}");
            }
            let told =
                answer["result"]["taskId"].as_str().or(answer["result"]["_meta"][RELATED]["taskId"].as_str());
            let has_id = method != "tasks/update" && (method != "tasks/cancel" || cell.client == Era::Legacy);
            assert_eq!(told, has_id.then_some(&*id), "{method}: {answer}");
        }
        let text = match cell.client {
            Era::Legacy => ask(&client, "tasks/result", &id)["result"]["content"][0]["text"].clone(),
            Era::Modern => ask(&client, "tasks/get", &id)["result"]["result"]["content"][0]["text"].clone(),
        };
        assert_eq!(text, say);
        ids.push(id);
    }
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
    assert!(one.of_method("tasks/get").iter().all(|seen| seen.text.contains("one-0")));
    for bad in ["one-0", "", "x", &ids[0][1..], &format!("{}A", ids[0])] {
        for method in methods(cell.client) {
            let before = one.received().len() + two.received().len();
            let answer = ask(&client, method, bad);
            let expected = json!({"code": -32602, "message": format!("Unknown task: {bad}")});
            assert_eq!(answer["error"], expected, "{method}");
            assert_eq!(one.received().len() + two.received().len(), before);
        }
    }
    let labels = [("upstream", "two"), ("tool", "two__slow"), ("method", "tasks/get")];
    assert!(
        gateway.metrics().sum("waypost_calls_total", &labels) > 1.5,
        "counted under the tool that made it"
    );
}

/// Across kinds there are no tasks: nothing is promised, asked for, or given.
fn task_is_never_given_to_a_client_of_the_other_kind(cell: Cell) {
    if cell.is_straight() {
        return;
    }
    let up = tasking(cell.server, "up").over(cell.transport);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = match cell.client {
        Era::Legacy => Client::bare(&gateway, Era::Legacy).able(EXTENSION).connected("2025-11-25"),
        Era::Modern => Client::modern(&gateway).able(EXTENSION),
    };
    let promised = promised(&client);
    assert_eq!((promised.get("tasks"), promised.get("extensions")), (None, None), "{promised}");
    let params = r#"{"name":"up__slow","arguments":{"say":"now"},"task":{"ttl":60000}}"#;
    let answer = client.request("tools/call", params).send().json();
    assert_eq!(answer["result"]["content"][0]["text"], "now", "{answer}");
    let seen = up.calls().pop().unwrap();
    assert!(!seen.text.contains("io.modelcontextprotocol/tasks"), "{}", seen.text);
    assert_eq!(seen.text.contains(r#""task":"#), cell.server == Era::Modern, "{}", seen.text);
    for method in ["tasks/get", "tasks/cancel", "tasks/result", "tasks/update", "tasks/list"] {
        assert_eq!(ask(&client, method, "up-0")["error"]["code"], -32601, "{method}");
    }
}

/// Two clients with one token each, who may both call everything but what `few` says of the second.
fn with_two(config: Config, few: &Value) -> Config {
    let mut second = few.clone();
    second["tokens"] = json!([{"env": "BOB"}]);
    let clients = json!({"alice": {"tokens": [{"env": "ALICE"}]}, "bob": second});
    let key = json!({"key": "a-key-that-outlives-a-restart"});
    config.clients(clients).env("ALICE", "t-alice").env("BOB", "t-bob").set("sessions", key)
}

fn of(gateway: &Gateway, era: Era, token: &str) -> Client {
    match era {
        Era::Legacy => Client::legacy_with(gateway, token),
        Era::Modern => Client::modern_with(gateway, token).able(EXTENSION),
    }
}

#[test]
fn task_01_a_task_is_its_owners_alone() {
    for era in [Era::Legacy, Era::Modern] {
        let up = tasking(era, "up").http();
        let gateway = with_two(Config::new().upstream("up", &up), &json!({})).ready();
        let (alice, bob) = (of(&gateway, era, "t-alice"), of(&gateway, era, "t-bob"));
        let id = id_of(&start(&alice, "up__slow", "mine"));
        let other_session = of(&gateway, era, "t-alice");
        for method in methods(era) {
            let (mine, theirs) = (ask(&other_session, method, &id), ask(&bob, method, &id));
            assert!(mine["result"].is_object(), "a task outlives its session: {mine}");
            let unknown = ask(&bob, method, "nonsense");
            assert_eq!(theirs["error"]["message"], format!("Unknown task: {id}"));
            assert_eq!(theirs["error"]["code"], unknown["error"]["code"]);
            assert_eq!(up.of_method(method).len(), 1, "{method}");
        }
        let bytes = id.as_bytes().to_vec();
        for at in (0..bytes.len()).step_by(7) {
            let mut flipped = bytes.clone();
            flipped[at] = if flipped[at] == b'A' { b'B' } else { b'A' };
            let flipped = String::from_utf8(flipped).unwrap();
            let expected = json!({"code": -32602, "message": format!("Unknown task: {flipped}")});
            assert_eq!(ask(&alice, "tasks/get", &flipped)["error"], expected);
        }
    }
}

#[test]
fn task_02_the_rules_of_today_decide_about_the_tasks_of_yesterday() {
    for era in [Era::Legacy, Era::Modern] {
        let up = tasking(era, "up").http();
        let gateway = with_two(Config::new().upstream("up", &up), &json!({})).ready();
        let bob = of(&gateway, era, "t-bob");
        let id = id_of(&start(&bob, "up__slow", "mine"));
        assert!(ask(&bob, "tasks/get", &id)["result"].is_object());
        drop(gateway);
        let gateway = with_two(Config::new().upstream("up", &up), &json!({})).ready();
        let kept = ask(&of(&gateway, era, "t-bob"), "tasks/get", &id);
        assert!(kept["result"].is_object(), "under one key ids outlive a restart: {kept}");
        drop(gateway);
        let denied = json!({"tools": {"deny": ["up__slow"]}});
        let own_rules = json!({"tools": {"deny": ["slow"]}});
        for config in [
            with_two(Config::new().upstream("up", &up), &denied),
            with_two(Config::new().upstream_with("up", &up, own_rules), &json!({})),
            with_two(Config::new().upstream("renamed", &up), &json!({})),
        ] {
            let gateway = config.ready();
            let bob = of(&gateway, era, "t-bob");
            let before = up.of_method("tasks/get").len();
            let answer = ask(&bob, "tasks/get", &id);
            assert_eq!(answer["error"], json!({"code": -32602, "message": format!("Unknown task: {id}")}));
            assert_eq!(up.of_method("tasks/get").len(), before);
        }
        let config = with_two(Config::new().upstream("up", &up), &denied);
        let gateway = config.set("policy", json!({"reveal_denied": true})).ready();
        let answer = ask(&of(&gateway, era, "t-bob"), "tasks/get", &id);
        assert!(answer["error"]["message"].as_str().unwrap().contains("Denied by policy"), "{answer}");
    }
}

#[test]
fn task_03_who_does_not_declare_tasks_has_none() {
    let up = tasking(Era::Modern, "up").http();
    let gateway = Config::new().upstream("up", &up).ready();
    let plain = Client::modern(&gateway);
    let answer = start(&plain, "up__slow", "now");
    assert_eq!(answer["result"]["content"][0]["text"], "now", "{answer}");
    let id = id_of(&start(&able(&gateway, Era::Modern), "up__slow", "later"));
    for method in methods(Era::Modern) {
        let params = format!(r#"{{"taskId":{},"inputResponses":{{}}}}"#, quoted(&id));
        let refused = plain.request(method, &params).send();
        assert_eq!((refused.status, refused.code()), (400, -32021), "{}", refused.text());
        let needed = &refused.json()["error"]["data"]["requiredCapabilities"];
        assert_eq!(needed, &json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
        let able = able(&gateway, Era::Modern);
        for bad in [
            able.request(method, &params).without("Mcp-Name"),
            able.request(method, &params).header("Mcp-Name", "another"),
        ] {
            assert_eq!((bad.send().status, bad.send().code()), (400, -32020), "{method}");
        }
    }
    let filter = format!(r#"{{"notifications":{{"toolsListChanged":true,"taskIds":[{}]}}}}"#, quoted(&id));
    assert_eq!(plain.request("subscriptions/listen", &filter).send().code(), -32021);
    let mut open = able(&gateway, Era::Modern).request("subscriptions/listen", &filter).open();
    let ack = open.message().expect("an acknowledgement");
    let told = json!({"toolsListChanged": true});
    assert_eq!(ack["params"]["notifications"], told, "only what is told is acknowledged");
    for version in ["2024-11-05", "2025-06-18"] {
        let up = tasking(Era::Legacy, "old").stdio();
        let gateway = Config::new().upstream("up", &up).ready();
        let client = Client::legacy_at(&gateway, version);
        assert_eq!(promised(&client).get("tasks"), None, "{version}");
        assert_eq!(start(&client, "up__slow", "now")["result"]["content"][0]["text"], "now");
        assert_eq!(ask(&client, "tasks/get", &id)["error"]["code"], -32601);
    }
}

/// A server that gives out tasks unasked breaks the protocol; its client hears that, and no id.
#[test]
fn task_04_a_task_that_nobody_can_use_is_an_error() {
    let up = Script::modern()
        .tool("rogue", |turn| turn.result(r#"{"resultType":"task","taskId":"native-id","status":"working"}"#))
        .tool("odd", |turn| turn.result(r#"{"resultType":"task","taskId":7,"status":"working"}"#))
        .http();
    let gateway = Config::new().upstream("up", &up).ready();
    for client in
        [Client::legacy(&gateway), Client::modern(&gateway), Client::modern(&gateway).able(EXTENSION)]
    {
        let tool = if client.capabilities == EXTENSION { "up__odd" } else { "up__rogue" };
        let answer = client.call(tool, json!({}));
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(!answer.to_string().contains("native-id"), "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("task that cannot be passed on"), "{text}");
    }
}

/// Questions of a task come on the stream of `tasks/result`, tied to the task by the id that the client has;
/// what is tied to another task is not for this client.
#[test]
fn task_05_questions_and_events_of_a_task_bear_the_id_of_their_client() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let script = tasking(Era::Legacy, "up").form(Form::Sse("\n")).on("tasks/result", move |turn| {
        let meta = |id: &str| format!(r#""_meta":{{"{RELATED}":{{"taskId":"{id}"}}}}"#);
        let note = |id: &str| {
            turn.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"d",{}}}}}"#,
                meta(id)
            ));
        };
        note("up-0");
        note("up-of-another");
        turn.send(r#"{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"up-of-another","status":"working"}}"#);
        turn.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{"message":"Who?","requestedSchema":{{"type":"object","properties":{{}}}},{}}}}}"#,
            meta("up-0")
        ));
        told.lock().unwrap().recv_timeout(patience()).expect("the test goes on");
        turn.result(&format!(r#"{{{},{}}}"#, block("done"), meta("up-0")));
    });
    let up = script.over(Transport::Http);
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::bare(&gateway, Era::Legacy).able(r#"{"elicitation":{}}"#).connected("2025-11-25");
    let id = id_of(&start(&client, "up__slow", "x"));
    let mut stream = client.request("tasks/result", &format!(r#"{{"taskId":{}}}"#, quoted(&id))).open();
    let log = stream.message().expect("a log message");
    assert_eq!(log["params"]["_meta"][RELATED]["taskId"], *id, "{log}");
    let question = stream.message().expect("a question");
    assert_eq!(question["method"], "elicitation/create", "nothing of another task: {question}");
    assert_eq!(question["params"]["_meta"][RELATED]["taskId"], *id, "{question}");
    let tied = format!(r#""_meta":{{"{RELATED}":{{"taskId":{}}}}}"#, quoted(&id));
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"action":"accept","content":{{}},{tied}}}}}"#,
        question["id"]
    );
    assert_eq!(client.post(answer).send().status, 202);
    let heard = up.wait_for("the answer", |received| received.text.contains(r#""action":"accept""#));
    assert_eq!(string(&heard.text, &["result", "_meta", RELATED, "taskId"]).as_deref(), Some("up-0"));
    tell.send(()).unwrap();
    let end = stream.message().expect("the result");
    assert_eq!(end["result"]["content"][0]["text"], "done");
    assert_eq!(end["result"]["_meta"][RELATED]["taskId"], *id);
    assert!(stream.event().is_none());
}

/// Two sessions of one client: only the one that made the task hears how it is, wherever the server says so.
#[test]
fn the_status_of_a_task_reaches_its_session_alone() {
    for transport in Transport::LEGACY {
        let script = tasking(Era::Legacy, "up").form(Form::Sse("\n")).on("tasks/get", |turn| {
            let id = string(&turn.text, &["params", "taskId"]).unwrap();
            for task in ["up-of-nobody", &id] {
                turn.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"x":1.50e2,"taskId":"{task}","status":"working",{TIMES}}}}}"#
                ));
            }
            turn.ok(&format!(r#"{{"taskId":"{id}","status":"working",{TIMES}}}"#));
        });
        let up = script.over(transport);
        let gateway = Config::new().upstream("up", &up).ready();
        let (owner, other) = (Client::legacy(&gateway), Client::legacy(&gateway));
        let (mut hears, mut hears_not) = (owner.listening(), other.listening());
        let id = id_of(&start(&owner, "up__slow", "x"));
        assert_eq!(ask(&owner, "tasks/get", &id)["result"]["status"], "working");
        let event = hears.event().expect("a status");
        let said: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(said["method"], "notifications/tasks/status", "{transport:?}: {said}");
        assert_eq!(said["params"]["taskId"], *id, "{said}");
        assert!(event.data.contains(r#""x":1.50e2,"#), "the rest is untouched: {}", event.data);
        let quiet = std::time::Duration::from_millis(300);
        assert!(hears.is_silent(quiet) && hears_not.is_silent(quiet), "{transport:?}");
    }
}

/// All pages of a client's list of tasks: the entries, as text.
fn listed(client: &Client) -> Vec<String> {
    let (mut found, mut params) = (Vec::new(), "{}".to_owned());
    for _page in 0..20 {
        let answer = client.request("tasks/list", &params).send().message();
        let entries = get(&answer, &["result", "tasks"]).unwrap_or_else(|| panic!("no list: {answer}"));
        assert!(answer.contains(r#""more":true"#), "the rest is untouched: {answer}");
        found.extend(elements(entries).into_iter().map(str::to_owned));
        match get(&answer, &["result", "nextCursor"]) {
            Some(cursor) => params = format!(r#"{{"cursor":{cursor},"x":1}}"#),
            None => return found,
        }
    }
    panic!("the list does not end");
}

#[test]
fn task_06_a_list_of_tasks_has_the_callers_own_only() {
    for transport in Transport::ALL {
        let (one, two) = (tasking(Era::Legacy, "one").over(transport), tasking(Era::Legacy, "two").http());
        let config = || Config::new().upstream("1|one", &one).upstream("2|two", &two);
        let gateway = with_two(config(), &json!({})).ready();
        let (alice, bob) = (of(&gateway, Era::Legacy, "t-alice"), of(&gateway, Era::Legacy, "t-bob"));
        assert_eq!(listed(&alice), Vec::<String>::new());
        let mut ids = Vec::new();
        for round in 0..3 {
            for tool in ["one__slow", "two__slow"] {
                ids.push(id_of(&start(&alice, tool, &format!("a{round}"))));
                start(&bob, tool, "b");
            }
        }
        let told: Vec<String> = listed(&alice);
        let mut told_ids: Vec<_> = told.iter().map(|entry| string(entry, &["taskId"]).unwrap()).collect();
        assert!(told.iter().all(|entry| entry.contains(r#""x":1.50e2"#)), "{told:?}");
        told_ids.sort();
        ids.sort();
        assert_eq!(told_ids, ids, "the ids that it has, and no others");
        assert!(ask(&alice, "tasks/get", &told_ids[0])["result"].is_object());
        assert_eq!(listed(&bob).len(), 6);
        let first = alice.request("tasks/list", "{}").send().json();
        let cursor = first["result"]["nextCursor"].as_str().expect("more pages").to_owned();
        let theirs = bob.request("tasks/list", &format!(r#"{{"cursor":"{cursor}"}}"#)).send();
        assert_eq!(theirs.code(), -32602, "{}", theirs.text());
        for bad in ["2", "", &ids[0], &cursor[1..]] {
            let params = format!(r#"{{"cursor":{}}}"#, quoted(bad));
            assert_eq!(alice.request("tasks/list", &params).send().code(), -32602, "{bad}");
        }
        drop(gateway);
        let gateway = with_two(config(), &json!({"tools": {"deny": ["two__*"]}})).ready();
        let bob = of(&gateway, Era::Legacy, "t-bob");
        assert_eq!(listed(&bob).len(), 0, "what is not remembered is not listed");
        let alice = of(&gateway, Era::Legacy, "t-alice");
        assert!(ask(&alice, "tasks/get", &ids[0])["result"].is_object());
        let again: Vec<_> = listed(&alice).iter().map(|entry| string(entry, &["taskId"]).unwrap()).collect();
        assert_eq!(again, [ids[0].clone()], "what is used is remembered again");
    }
}

/// Callers without a token are told apart by nothing.
#[test]
fn task_06_anonymous_callers_are_not_listed_each_others_tasks() {
    let up = tasking(Era::Legacy, "up").stdio();
    let gateway = Config::new().upstream("up", &up).ready();
    let (one, other) = (Client::legacy(&gateway), Client::legacy(&gateway));
    let id = id_of(&start(&one, "up__slow", "mine"));
    assert_eq!((listed(&one), listed(&other)), (vec![], vec![]));
    assert!(ask(&one, "tasks/get", &id)["result"].is_object(), "who has the id has the task");
}

#[test]
fn task_07_no_list_of_tasks_is_promised_that_no_upstream_has() {
    let mut script = tasking(Era::Legacy, "up");
    script.capabilities = r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#.to_owned();
    let up = script.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let client = Client::legacy(&gateway);
    assert_eq!(promised(&client)["tasks"], json!({"requests": {"tools": {"call": {}}}}));
    let answer = client.request("tasks/list", "{}").send().json();
    assert_eq!(answer["error"], json!({"code": -32601, "message": "Method not found: tasks/list"}));
    assert!(up.of_method("tasks/list").is_empty());
    let broken = Script::of(Era::Legacy)
        .tool("slow", |turn| turn.text("x"))
        .on("tasks/list", |turn| turn.ok(r#"{"tasks":{"taskId":"theirs"}}"#));
    let mut broken = broken;
    broken.capabilities = r#"{"tools":{},"tasks":{"list":{},"requests":{"tools":{"call":{}}}}}"#.to_owned();
    let up = broken.http();
    let gateway = Config::new().upstream("up", &up).ready();
    let answer = Client::legacy(&gateway).request("tasks/list", "{}").send();
    assert_eq!(answer.code(), 502, "{}", answer.text());
    assert!(!answer.text().contains("theirs"), "{}", answer.text());
}

/// Whoever asks for a task while its server is being connected is not told that there is none.
#[test]
fn task_08_a_task_is_not_lost_because_its_server_is_not_connected_yet() {
    for era in [Era::Legacy, Era::Modern] {
        let up = tasking(era, "up").http();
        let config = with_two(Config::new().upstream("up", &up), &json!({}));
        let gateway = config.ready();
        let id = id_of(&start(&of(&gateway, era, "t-alice"), "up__slow", "mine"));
        drop(gateway);
        up.go_down();
        let gateway = config.start();
        let alice = of(&gateway, era, "t-alice");
        let refused = ask(&alice, "tasks/get", &id);
        assert_ne!(refused["error"]["code"], -32602, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("not connected yet"), "{refused}");
        up.come_back();
        eventually("it is there again", || ask(&alice, "tasks/get", &id)["result"].is_object().then_some(()));
    }
}

/// Whoever follows a task of the extension hears how it is; nobody follows one of somebody else.
#[test]
fn task_09_a_task_is_followed_by_its_owner_alone() {
    for transport in [Transport::Http, Transport::Stdio] {
        let script = tasking(Era::Modern, "up").form(Form::Sse("\n")).first(|turn| {
            let named = get(&turn.text, &["params", "notifications", "taskIds"]).map(str::to_owned);
            let Some(named) = named.filter(|_| turn.method() == "subscriptions/listen") else { return false };
            let id = turn.id().unwrap();
            let meta = format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
            turn.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{{meta},"notifications":{{"taskIds":{named}}}}}}}"#
            ));
            for task in ["up-of-nobody", "up-0"] {
                turn.send(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{{meta},"x":1.50e2,"taskId":"{task}","status":"working",{TIMES}}}}}"#
                ));
            }
            std::thread::sleep(crate::support::scaled(1_000));
            turn.result("{}");
            true
        });
        let up = script.over(transport);
        let gateway = with_two(Config::new().upstream("up", &up), &json!({})).ready();
        let [alice, bob] = ["t-alice", "t-bob"].map(|token| of(&gateway, Era::Modern, token));
        let id = id_of(&start(&alice, "up__slow", "mine"));
        let filter = json!({"notifications": {"taskIds": [id, "made up"]}}).to_string();
        let mut strange = bob.request("subscriptions/listen", &filter).open();
        let nothing = strange.message().expect("an acknowledgement");
        assert_eq!(nothing["params"]["notifications"], json!({}), "{nothing}");
        assert_eq!(up.of_method("subscriptions/listen").len(), 0, "the server is not even asked");
        let mut open = alice.request("subscriptions/listen", &filter).open();
        let told = open.message().expect("an acknowledgement");
        assert_eq!(told["params"]["notifications"], json!({"taskIds": [id]}), "{told}");
        let own = told["params"]["_meta"].clone();
        let event = open.event().expect("a status");
        let said: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!((&said["method"], &said["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
        assert_eq!(said["params"]["_meta"], own, "under the client's own subscription");
        assert!(event.data.contains(r#""x":1.50e2,"#), "the rest is untouched: {}", event.data);
        let asked = up.of_method("subscriptions/listen").remove(0);
        assert!(
            asked.text.contains("io.modelcontextprotocol/tasks"),
            "as one that knows tasks: {}",
            asked.text
        );
        assert!(strange.is_silent(std::time::Duration::from_millis(300)));
    }
}
