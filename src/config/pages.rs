//! What is written about a configuration: the reference page, and the effective file.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::cases::{assert_kept, env};
use super::reference::{self, Shape, TABLES, Table};
use super::tree::{self, Node, Value};
use super::{load, parse, reference_page};

/// The part of the page that is about one mapping.
fn section<'a>(page: &'a str, table: &Table) -> &'a str {
    let title = if table.path.is_empty() {
        "\n## The whole file\n".into()
    } else {
        format!("\n## `{}`\n", table.path)
    };
    let (_, rest) = page.split_once(&title).unwrap_or_else(|| panic!("no section {title}"));
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

#[test]
fn the_page_in_docs_is_the_reference() {
    assert_kept(Path::new("docs/config.md"), &reference_page());
}

#[test]
fn the_page_has_every_key_and_no_other() {
    let page = std::fs::read_to_string("docs/config.md").unwrap();
    for table in TABLES {
        let rows = section(&page, table).lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let rows: Vec<&str> = rows.map(|(key, _)| key).collect();
        let keys: Vec<&str> = table.keys.iter().map(|key| key.name()).collect();
        assert_eq!(rows, keys, "{}", table.path);
    }
}

#[test]
fn every_mapping_of_the_file_is_on_the_page() {
    let mut open = vec![&reference::TOP];
    while let Some(table) = open.pop() {
        assert!(
            TABLES.iter().any(|listed| std::ptr::eq(*listed, table)),
            "{} is not on the page",
            table.path
        );
        open.extend(table.keys.iter().filter_map(|key| match key.form().shape() {
            Shape::Mapping(table) | Shape::Names(table) | Shape::List(table) => Some(table),
            Shape::Plain | Shape::Secret => None,
        }));
    }
}

#[test]
fn every_example_on_the_page_is_good() {
    let env = |name: &str| Some(format!("{name}-{name}-{name}"));
    for table in TABLES.iter().filter(|table| !table.example.is_empty()) {
        let example = table.example.replace("{file: /run/secrets/ci_token}", "{env: CI_TOKEN}");
        let loaded = parse(&example, "example.yaml", &env);
        let loaded = loaded.unwrap_or_else(|problems| panic!("{}:\n{problems}", table.path));
        assert!(loaded.warnings.is_empty(), "{}: {:?}", table.path, loaded.warnings);
    }
}

fn effective(text: &str) -> String {
    let loaded = parse(text, "gateway.yaml", &env).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    loaded.effective.to_yaml()
}

#[test]
fn the_effective_file_is_yaml_and_shows_no_secret() {
    let good = std::fs::read_dir("tests/data/config/good").unwrap().map(|entry| entry.unwrap().path());
    for path in good.filter(|path| path.extension().is_some_and(|ext| ext == "yaml" || ext == "json")) {
        let yaml = load(&path, &env).unwrap_or_else(|problems| panic!("{problems}")).effective.to_yaml();
        assert!(
            !yaml.contains("hunter2") && !yaml.contains("swordfish") && !yaml.contains("9f86d0"),
            "{yaml}"
        );
        let node = tree::parse(&yaml).unwrap_or_else(|error| panic!("{yaml}\n{}", error.message));
        assert!(matches!(node.value, Value::Map(_)), "{yaml}");
    }
}

#[test]
fn the_effective_file_of_the_full_one_is_kept() {
    let path = Path::new("tests/data/config/good/full.yaml");
    let yaml = load(path, &env).unwrap().effective.to_yaml();
    assert_kept(&path.with_extension("effective.txt"), &yaml);
}

#[test]
fn the_effective_file_says_the_same() {
    let text = "\
upstreams:
  a: {command: no, args: [1.0, 'a: b', '#', --x], prefix: '', timeout: 90s, tools: {allow: ['*', '?'], deny: ['123']}}
  b.c: {url: 'http://127.0.0.1/mcp', era: legacy, limits: {rate: 1/90s, burst: 2, concurrency: 3}}
  'off': {command: x, disabled: true}
listen: '[::1]:0'
admin: false
limits: {body: 1500B, edge: {rate: 7/day}}
naming: {separator: '-'}
instructions: \"one\\ntwo: ü\"
page_size: 7
";
    let once = effective(text);
    let again = effective(&once);
    let values = |yaml: &str| -> Vec<String> {
        yaml.lines().map(|line| line.split("  #").next().unwrap_or_default().trim_end().to_owned()).collect()
    };
    assert_eq!(values(&once), values(&again), "{once}\n{again}");
}

/// The keys of a mapping and those below it, as paths; names of upstreams and clients are `*`.
fn paths(node: &Node, table: &'static Table, prefix: &str, found: &mut BTreeSet<String>) {
    let Value::Map(entries) = &node.value else { return };
    for (name, value) in entries {
        let path = format!("{prefix}{}", name.text);
        match table.keys.iter().find(|key| key.name() == name.text).map(|key| key.form().shape()) {
            Some(Shape::Mapping(table)) => paths(value, table, &format!("{path}."), found),
            Some(Shape::Names(table)) => {
                let Value::Map(named) = &value.value else { continue };
                named.iter().for_each(|(_, value)| paths(value, table, &format!("{path}.*."), found));
            }
            Some(Shape::Plain | Shape::Secret | Shape::List(_)) | None => {}
        }
        found.insert(path);
    }
}

#[test]
fn the_effective_file_has_every_key() {
    let all = std::fs::read_to_string("tests/data/config/good/full.effective.txt").unwrap();
    let mut found = BTreeSet::new();
    paths(&tree::parse(&all).unwrap(), &reference::TOP, "", &mut found);
    let mut wanted = BTreeSet::new();
    let mut open = vec![(String::new(), &reference::TOP)];
    while let Some((prefix, table)) = open.pop() {
        for key in table.keys.iter().filter(|key| !["$schema", "defaults"].contains(&key.name())) {
            let path = format!("{prefix}{}", key.name());
            match key.form().shape() {
                Shape::Mapping(table) => open.push((format!("{path}."), table)),
                Shape::Names(table) => open.push((format!("{path}.*."), table)),
                Shape::Plain | Shape::Secret | Shape::List(_) => {}
            }
            wanted.insert(path);
        }
    }
    let missing: Vec<&String> = wanted.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}\n{all}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_text_is_answered(text in "([a-z]{1,3}|upstreams|clients|tokens|env|allow|listen|[:\\-\\[\\]{}#*&!|>'\"%@,?$\t\n ]|: |\n  |\n    ){0,40}") {
        let answer = parse(&text, "gateway.yaml", &env);
        let shown = answer.map_or_else(|problems| problems.to_string(), |loaded| loaded.effective.to_yaml());
        prop_assert!(!shown.is_empty());
    }

    #[test]
    fn any_bytes_are_answered(text in "\\PC{0,60}") {
        let shown = parse(&text, "gateway.yaml", &env).map_or_else(|problems| problems.to_string(), |_| "good".into());
        prop_assert!(!shown.is_empty());
    }

    #[test]
    fn a_token_in_the_file_is_never_shown(token in "[a-zA-Z0-9]{8,40}", shape in 0..7usize) {
        let file = match shape {
            0 => format!("clients: {{a: {{tokens: [{token}]}}}}\n"),
            1 => format!("upstreams: {{a: {{command: x, env: {{A: {token}}}, x: 1}}}}\n"),
            2 => format!("upstreams:\n  a:\n    headers:\n      - {token}\n    headers: {token}\n"),
            3 => format!("clients:\n  a:\n    token: \"{token}\"\n   b: c\n"),
            4 => format!("upstreams: {{a: {{url: 'nope://h/?k={token}', args: [--password, {token}]}}}}\n"),
            5 => format!("sessions: {{key: {token}, x: y\n"),
            _ => format!("upstreams: {{a: {{command: x, headers: {{A: \"{token}\\n\"}}, env: {token}}}}}\n"),
        };
        let problems = parse(&file, "gateway.yaml", &|_| None).expect_err("is bad");
        prop_assert!(!format!("{problems}{problems:?}").contains(&token), "{}", problems);
    }
}
