//! The commands that print something and end: what a person or a program at a shell sees of them.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;

use crate::support::gateway::{Config, waypost};
use crate::support::matrix::Era;
use crate::support::script::Script;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    waypost(arguments, folder).stdin(Stdio::null()).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn the_schema_is_printed_as_it_is_kept() {
    let output = run(&["schema"], root());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(stdout(&output), std::fs::read_to_string(root().join("gateway.schema.json")).unwrap());
}

#[test]
fn every_shell_gets_completions_with_the_commands_in_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell], root());
        let script = stdout(&output);
        assert!(output.status.success(), "{output:?}");
        assert!(script.contains("explain") && script.contains("config"), "{shell}: {script}");
        assert!(!script.contains("__guard"), "{shell} is offered what is hidden");
    }
}

/// Each command that needs the file says so once, and what to do.
#[test]
fn a_file_that_is_not_there_is_told_in_the_same_words_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let commands: [&[&str]; 9] = [
        &[],
        &["stdio"],
        &["check"],
        &["connect", "claude-code"],
        &["tools", "list"],
        &["call", "x"],
        &["resources", "read", "a://b"],
        &["explain", "--tool", "x"],
        &["who", "--tool", "x"],
    ];
    for command in commands {
        let output = run(command, folder.path());
        let told = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success(), "{command:?}");
        assert!(told.starts_with("error: cannot read gateway.yaml: "), "{command:?}: {told}");
        assert!(told.contains("--config FILE"), "{command:?}: {told}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child =
        waypost(&["schema"], root()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A gateway in the file of a folder, with the demo servers behind it.
const DEMO: &str = "\
listen: 127.0.0.1:8080
admin: false
upstreams:
  notes: {command: \"${WAYPOST_EXE}\", args: [demo, stdio-legacy]}
  units: {command: \"${WAYPOST_EXE}\", args: [demo, stdio-modern], tools: {deny: [\"secret_*\"]}}
clients:
  alice: {tokens: [{env: ALICE_TOKEN}], tools: {allow: [\"notes__*\"]}}
auth: {anonymous: true}
policy: {reveal_denied: true}
";

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    folder
}

/// Runs a command in a folder, with the variable of the demo configuration.
fn run_in(folder: &tempfile::TempDir, arguments: &[&str]) -> (i32, String, String) {
    let mut command = waypost(arguments, folder.path());
    let output = command.env("ALICE_TOKEN", "0123456789abcdef").output().expect("the binary runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_client_is_told_how_to_connect_in_the_form_of_its_own_file() {
    let folder = folder(DEMO);
    let url = "http://127.0.0.1:8080/mcp";
    for (client, pointer) in [
        ("claude-code", "/mcpServers/waypost/url"),
        ("vscode", "/servers/waypost/url"),
        ("cursor", "/mcpServers/waypost/url"),
        ("windsurf", "/mcpServers/waypost/serverUrl"),
        ("gemini", "/mcpServers/waypost/httpUrl"),
        ("cline", "/mcpServers/waypost/url"),
        ("inspector", "/mcpServers/waypost/url"),
        ("generic", "/mcpServers/waypost/url"),
    ] {
        let (code, stdout, stderr) = run_in(&folder, &["connect", client]);
        assert_eq!(code, 0, "{stderr}");
        let page: serde_json::Value = serde_json::from_str(&stdout).expect("JSON alone on stdout");
        assert_eq!(page.pointer(pointer), Some(&url.into()), "{client}: {stdout}");
        assert!(!stdout.contains("Authorization"), "nobody asks for a token here: {stdout}");
        assert!(stderr.starts_with("# "), "{client}: {stderr}");

        let (_, stdout, _) =
            run_in(&folder, &["connect", client, "--stdio", "--client", "alice", "--name", "tools"]);
        let page: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let place = if client == "vscode" { "servers" } else { "mcpServers" };
        let entry = &page[place]["tools"];
        assert!(Path::new(entry["command"].as_str().unwrap()).is_absolute(), "{stdout}");
        let args: Vec<&str> =
            entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        assert_eq!(args[0..2], ["stdio", "--config"], "{stdout}");
        assert_eq!(args[3..], ["--client", "alice"], "{stdout}");
        assert!(Path::new(args[2]).is_file(), "{stdout}");
    }
    let (_, toml, _) = run_in(&folder, &["connect", "codex", "--token-env", "T", "--endpoint", "/mcp/read"]);
    let wanted =
        "[mcp_servers.waypost]\nurl = \"http://127.0.0.1:8080/mcp/read\"\nbearer_token_env_var = \"T\"\n";
    assert_eq!(toml, wanted);
}

#[test]
fn a_gateway_that_asks_for_tokens_is_connected_to_with_the_clients_own_reference() {
    let closed = folder(&DEMO.replace("anonymous: true", "anonymous: false"));
    for (client, pointer, wanted) in [
        ("claude-code", "/mcpServers/waypost/headers/Authorization", "Bearer ${WAYPOST_TOKEN}"),
        ("cursor", "/mcpServers/waypost/headers/Authorization", "Bearer ${env:WAYPOST_TOKEN}"),
        ("windsurf", "/mcpServers/waypost/headers/Authorization", "Bearer ${env:WAYPOST_TOKEN}"),
        ("gemini", "/mcpServers/waypost/headers/Authorization", "Bearer $WAYPOST_TOKEN"),
        ("vscode", "/servers/waypost/headers/Authorization", "Bearer ${input:waypost-token}"),
        ("vscode", "/inputs/0/id", "waypost-token"),
        ("generic", "/mcpServers/waypost/headers/Authorization", "Bearer <WAYPOST_TOKEN>"),
    ] {
        let (_, stdout, _) = run_in(&closed, &["connect", client]);
        let page: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(page.pointer(pointer), Some(&wanted.into()), "{client}: {stdout}");
    }
    let (code, stdout, stderr) = run_in(&closed, &["connect", "claude-desktop"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("--client NAME"), "{stderr}");
    let far = ["connect", "claude-desktop", "--url", "https://mcp.example.com", "--token-env", "T"];
    let (_, stdout, _) = run_in(&closed, &far);
    let page: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let entry = &page["mcpServers"]["waypost"];
    assert_eq!(entry["args"][2], "https://mcp.example.com/mcp");
    assert_eq!(entry["env"]["WAYPOST_AUTHORIZATION"], "Bearer <T>");
}

#[test]
fn what_is_printed_for_a_client_can_be_imported_again() {
    let folder = folder(&DEMO.replace("anonymous: true", "anonymous: false"));
    for client in
        ["claude-code", "vscode", "cursor", "windsurf", "gemini", "cline", "inspector", "generic", "codex"]
    {
        let (_, snippet, _) = run_in(&folder, &["connect", client, "--token-env", "T"]);
        std::fs::write(folder.path().join("snippet"), snippet).unwrap();
        let (code, yaml, stderr) = run_in(&folder, &["import", "snippet"]);
        assert_eq!(code, 0, "{client}: {stderr}");
        assert!(yaml.contains("  waypost:\n    url: \"http://127.0.0.1:8080/mcp\"\n"), "{client}: {yaml}");
        assert!(yaml.contains("Authorization: \"Bearer ${"), "{client}: {yaml}");
    }
}

#[test]
fn an_imported_file_is_checked_and_its_secrets_are_named_on_stderr_only() {
    let folder = folder("");
    let config = root().join("tests/data/import/claude_desktop.json");
    let (code, yaml, stderr) = run_in(&folder, &["import", config.to_str().unwrap()]);
    assert_eq!(code, 0, "{stderr}");
    assert!(!format!("{yaml}{stderr}").contains("hunter"), "{yaml}{stderr}");
    assert!(stderr.contains("set these variables"), "{stderr}");
    std::fs::write(folder.path().join("gateway.yaml"), yaml).unwrap();
    let mut check = waypost(&["check"], folder.path());
    let names = stderr.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let output = check.envs(names.map(|name| (name, "0123456789abcdef"))).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (code, stdout, stderr) = run_in(&folder, &["import", "nowhere.json"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: cannot read nowhere.json"), "{stderr}");
}

#[test]
fn tools_are_listed_shown_and_called_with_the_servers_of_the_file() {
    let folder = folder(DEMO);
    let (code, table, stderr) = run_in(&folder, &["tools", "list"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{table}");
    let names: Vec<&str> = table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names[0], "TOOL", "{table}");
    assert!(
        names.contains(&"notes__count_words") && names.iter().any(|name| name.starts_with("units__")),
        "{table}"
    );
    assert!(!table.contains('\u{1b}'), "no colours where no terminal is: {table}");

    let (_, json, _) = run_in(&folder, &["tools", "list", "--json", "--client", "alice"]);
    let tools: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert!(
        !tools.is_empty() && tools.iter().all(|tool| tool["name"].as_str().unwrap().starts_with("notes__"))
    );

    let (code, page, _) = run_in(&folder, &["tools", "show", "notes__count_words"]);
    assert!(code == 0 && page.starts_with("notes__count_words"), "{page}");
    assert!(page.lines().any(|line| line.starts_with("text") && line.contains("string")), "{page}");
    let (code, _, stderr) = run_in(&folder, &["tools", "show", "notes__nothing"]);
    assert_eq!((code, stderr.as_str()), (4, "error: there is no tool `notes__nothing`\n"));

    let (code, said, stderr) = run_in(&folder, &["call", "notes__count_words", "text=how many words"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(said.contains('3'), "{said}");
    let (code, json, _) =
        run_in(&folder, &["call", "notes__count_words", "--json", "--args", "{\"text\": \"one two\"}"]);
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(code == 0 && result["content"][0]["text"].as_str().unwrap().contains('2'), "{json}");
}

#[test]
fn how_a_call_ended_is_the_code_of_the_command() {
    let folder = folder(DEMO);
    let code = |arguments: &[&str]| {
        let (code, stdout, stderr) = run_in(&folder, arguments);
        assert_eq!(stdout, "", "{arguments:?}");
        assert!(stderr.contains("error: "), "{arguments:?}: {stderr}");
        code
    };
    assert_eq!(code(&["call", "notes__nothing"]), 4);
    assert_eq!(code(&["call", "units__convert_units", "--client", "alice"]), 3);
    assert_eq!(code(&["call", "notes__count_words", "text"]), 2);
    assert_eq!(code(&["call", "notes__count_words", "--args", "[]"]), 2);
    assert_eq!(code(&["call", "notes__count_words", "--client", "nobody"]), 2);
    assert_eq!(code(&["call", "x", "--frobnicate"]), 2);
    assert_eq!(code(&["call", "x", "--url", "http://127.0.0.1:9/mcp"]), 5);
}

#[test]
fn a_running_gateway_is_asked_like_the_servers_of_the_file() {
    for era in [Era::Legacy, Era::Modern] {
        let broken = r#"{"content":[{"type":"text","text":"it is broken"}],"isError":true}"#;
        let script = Script::echo(era).prompt("greet").resources("up", ["file:///a.txt"]);
        let script = script.template("test://{id}/data").tool("fail", move |turn| turn.ok(broken));
        let upstream = script.http();
        let clients = json!({"alice": {"tokens": [{"env": "ALICE_TOKEN"}]}});
        let config = Config::new().upstream("up", &upstream).clients(clients);
        let gateway = config.env("ALICE_TOKEN", "0123456789abcdef").ready();
        let url = format!("http://{}/mcp", gateway.mcp);
        let folder = folder("");
        let ask = |arguments: &[&str]| {
            let way = ["--url", &url, "--token-env", "ALICE_TOKEN"];
            run_in(&folder, &[arguments, &way].concat())
        };
        let (code, table, stderr) = ask(&["tools", "list"]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{table}");
        assert!(table.contains("\nup__fail"), "{table}");
        assert_eq!(ask(&["call", "up__fail"]), (1, String::new(), "it is broken\n".to_owned()));
        let (code, json, _) = ask(&["call", "up__fail", "--json"]);
        assert_eq!(code, 1, "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["isError"], true);
        let (_, table, _) = ask(&["resources", "list"]);
        assert!(table.contains("\nfile:///a.txt") && table.contains("\ntest://{id}/data"), "{table}");
        for uri in ["file:///a.txt", "test://7/data"] {
            let (code, text, stderr) = ask(&["resources", "read", uri]);
            assert!(code == 0 && !text.is_empty(), "{uri}: {text}{stderr}");
        }
        let (_, table, _) = ask(&["prompts", "list"]);
        assert!(table.contains("\nup__greet"), "{table}");
        let (code, said, stderr) = ask(&["prompts", "get", "up__greet", "name=Ada"]);
        assert!(code == 0 && said.ends_with(": greet\n"), "{said}{stderr}");
        assert_eq!(ask(&["call", "up__nothing"]).0, 4);

        let (code, _, stderr) = run_in(&folder, &["tools", "list", "--url", &url]);
        assert_eq!(code, 5, "without a token: {stderr}");
        let (code, _, stderr) = run_in(&folder, &["tools", "list", "--url", &url, "--token-env", "NO_SUCH"]);
        assert_eq!((code, stderr.as_str()), (2, "error: the variable NO_SUCH holds no token\n"));
    }
}
