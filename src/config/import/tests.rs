//! Whole files of other programs: `tests/data/import`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::config::cases::assert_kept;
use crate::config::parse;

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("tests/data/import").unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "json" || end == "toml")).collect();
    files.sort();
    files
}

fn read(path: &Path) -> Foreign {
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    Foreign { name, text: std::fs::read_to_string(path).unwrap() }
}

fn imported(text: &str) -> Imported {
    let file = Foreign { name: "f.json".to_owned(), text: text.to_owned() };
    import(&[file], Secrets::Refer).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn notes(imported: &Imported) -> String {
    let notes = imported.notes.iter().map(ToString::to_string);
    let variables = imported.variables.iter().map(|variable| {
        let origin = if variable.was_in_clear { "was in clear" } else { "is named there" };
        format!("{} ({origin}): {}", variable.name, variable.uses.join(", "))
    });
    notes.chain(variables).map(|line| line + "\n").collect()
}

/// Checks that a configuration is good once exactly these variables are set.
fn assert_passes(imported: &Imported) {
    let needed: BTreeSet<&str> = imported.variables.iter().map(|variable| variable.name.as_str()).collect();
    let env = |name: &str| (needed.contains(name) || name == "HOME").then(|| "0123456789abcdef".to_owned());
    let loaded = parse(&imported.yaml, "gateway.yaml", &env);
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}\n{}", imported.yaml));
    assert_eq!(loaded.config.upstreams.len(), imported.taken, "{}", imported.yaml);
}

#[test]
fn files_of_every_program_become_configurations_that_pass_the_check() {
    let files = files();
    assert!(files.len() >= 8, "{files:?}");
    for path in files {
        let file = read(&path);
        // Whatever a fixture has for a secret holds this word.
        assert!(file.text.contains("hunter"), "{} shows no secret", path.display());
        let imported = import(std::slice::from_ref(&file), Secrets::Refer).unwrap();
        assert_passes(&imported);
        let said = notes(&imported);
        assert!(!imported.yaml.contains("hunter"), "{}", imported.yaml);
        assert!(!said.contains("hunter") && !format!("{imported:?}").contains("hunter"), "{said}");
        assert_kept(&path.with_extension("yaml"), &imported.yaml);
        assert_kept(&path.with_extension("notes"), &said);
        let kept = import(&[file], Secrets::Keep).unwrap();
        assert_passes(&kept);
        assert!(kept.yaml.contains("hunter"), "{}", kept.yaml);
    }
}

#[test]
fn several_files_become_one_and_twins_are_taken_once() {
    let both = import(&files().iter().map(|path| read(path)).collect::<Vec<_>>(), Secrets::Refer).unwrap();
    assert_passes(&both);
    let a = r#"{"mcpServers": {"x": {"command": "a", "env": {"TOKEN": "hunter1"}}, "y": {"url": "http://h/mcp"}}}"#;
    let b =
        r#"{"servers": {"x": {"command": "b", "env": {"TOKEN": "hunter2"}}, "y": {"url": "http://h/mcp"}}}"#;
    let file = |name: &str, text: &str| Foreign { name: name.to_owned(), text: text.to_owned() };
    let merged = import(&[file("a", a), file("b", b)], Secrets::Refer).unwrap();
    assert_eq!(merged.taken, 3, "{}", merged.yaml);
    let names: Vec<&str> = merged.variables.iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["TOKEN", "X_2_TOKEN"], "one name would give one server the token of the other");
    assert!(merged.yaml.contains("  x-2:\n    command: b\n"), "{}", merged.yaml);
    assert!(notes(&merged).contains("b:1: y: left out: it is the same as `y`"), "{}", notes(&merged));
    assert_passes(&merged);
}

#[test]
fn what_the_check_would_refuse_stands_there_as_a_comment() {
    for (server, reason) in [
        (r#"{}"#, "expected a mapping with `command` or `url`"),
        (r#"{"env": {"A": "b"}}"#, "an upstream needs `command` or `url`"),
        (r#"{"command": "x", "url": "http://h/"}"#, "either `command` or `url`"),
        (r#"{"command": "npx -y x"}"#, "`command` is one program"),
        (r#"{"url": "ws://h/"}"#, "the scheme `ws`"),
        (r#"{"url": "http://h/", "type": "ws"}"#, "`type: ws` is no transport"),
        (r#"{"url": "http://u:hunter@h/"}"#, "`url` holds credentials"),
        (r#"7"#, "it is no mapping"),
    ] {
        let found =
            imported(&format!(r#"{{"mcpServers": {{"odd": {server}, "good": {{"command": "y"}}}}}}"#));
        assert_eq!(found.taken, 1, "{server}: {}", found.yaml);
        assert!(
            found.yaml.contains(reason) && found.yaml.contains("\n  # odd:\n"),
            "{server}: {}",
            found.yaml
        );
        assert!(notes(&found).contains("f.json:1: odd: "), "{server}: {}", notes(&found));
        assert_passes(&found);
    }
}

#[test]
fn nothing_of_a_server_is_left_out_in_silence() {
    let found = imported(
        r#"{"mcpServers": {"a": {
  "command": "x",
  "envFile": ".env",
  "oauth": {},
  "trust": true,
  "surprise": 1,
  "args": ["y", {}],
  "env": {"A": []}
}}}"#,
    );
    for wanted in [
        "f.json:3: a: `envFile` is left out",
        "f.json:4: a: `oauth` is left out",
        "f.json:5: a: `trust` is left out",
        "f.json:6: a: `surprise` is left out",
        "f.json:7: a: an item of `args` is left out",
        "f.json:8: a: `env.A` is left out",
    ] {
        assert!(notes(&found).contains(wanted), "{wanted}\n{}", notes(&found));
    }
}

#[test]
fn any_name_becomes_one_that_an_upstream_can_have() {
    let long = "n".repeat(200);
    let text = format!(
        r#"{{"servers": {{"": {{"command": "x"}}, "My Server (1)": {{"command": "y"}}, "ü": {{"command": "z"}}, "{long}": {{"command": "v"}}, "a/b": {{"command": "w"}}, "a b": {{"command": "u"}}}}}}"#
    );
    let found = imported(&text);
    assert_passes(&found);
    assert_eq!(found.taken, 6);
    for name in ["  server:\n", "  My-Server--1:\n", "  server-2:\n", "  a-b:\n", "  a-b-2:\n"] {
        assert!(found.yaml.contains(name), "{name} {}", found.yaml);
    }
}

#[test]
fn a_file_without_servers_is_refused_and_an_empty_place_is_not() {
    let file = |text: &str| vec![Foreign { name: "f.json".to_owned(), text: text.to_owned() }];
    let refused = import(&file(r#"{"theme": "dark"}"#), Secrets::Refer).expect_err("has none");
    assert_eq!(refused, ImportError::NoServers("f.json".to_owned()));
    let empty = import(&file(r#"{"mcpServers": {}}"#), Secrets::Refer).unwrap();
    assert!(empty.yaml.ends_with("\nupstreams: {}\n"), "{}", empty.yaml);
    assert_passes(&empty);
}
