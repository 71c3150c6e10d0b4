//! The rules of ARCHITECTURE.md, as tests over the text of the source.
//!
//! A new edge between modules is one line in [`EXCEPTIONS`], with its reason.

#![allow(
    clippy::unwrap_used,
    clippy::string_slice,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules of the crate each module may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("mcp", &[]),
    ("wire", &["mcp"]),
    ("config", &["mcp"]),
    ("exchange", &["mcp"]),
    ("translate", &["mcp", "exchange"]),
    ("catalog", &["mcp", "exchange"]),
    ("outbound", &[]),
    ("auth", &["exchange", "config", "outbound", "telemetry"]),
    ("telemetry", &["exchange"]),
    ("seal", &["config"]),
    ("gateway", &["exchange", "catalog", "mcp", "config", "telemetry", "seal"]),
    (
        "upstream",
        &["gateway", "exchange", "translate", "wire", "mcp", "config", "telemetry", "seal", "outbound"],
    ),
    (
        "downstream",
        &["gateway", "auth", "exchange", "translate", "wire", "mcp", "config", "telemetry", "seal"],
    ),
    ("demo", &["wire", "mcp"]),
    ("admin", &["gateway", "config", "telemetry"]),
    ("app", &["admin", "demo", "upstream", "downstream", "gateway", "auth", "config", "telemetry"]),
    ("cli", &["app", "demo", "auth", "config", "telemetry", "catalog", "exchange", "gateway", "mcp", "wire"]),
    ("main", &["cli"]),
];

/// Edges that the table does not have: who, whom, why. One that is not needed any more fails.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "telemetry",
        "config",
        "registers the upstreams and clients of the configuration, and takes the form of the log from it",
    ),
    ("catalog", "config", "the rules of names and the filters are the configuration's own types"),
];

/// Of these modules, only the named items may be used by that module: who, whom, what.
const ONLY: &[(&str, &str, &[&str])] = &[(
    "upstream",
    "gateway",
    &[
        "AdmittedCall",
        "Consent",
        "Executed",
        "Followed",
        "GatewayError",
        "GatewayErrorKind",
        "Health",
        "List",
        "Listed",
        "Offer",
        "Target",
        "Upstream",
        "Wanted",
    ],
)];

/// Crates that a module must not know.
const NO_CRATES: &[(&str, &[&str])] = &[
    ("mcp", &["tokio", "http", "hyper", "axum", "reqwest"]),
    ("wire", &["tokio", "hyper", "axum", "reqwest"]),
    ("config", &["tokio", "hyper", "axum", "reqwest"]),
    ("translate", &["tokio", "http", "hyper", "axum", "reqwest"]),
    ("catalog", &["tokio", "http", "hyper", "axum", "reqwest"]),
    ("gateway", &["http", "hyper", "axum", "reqwest"]),
    ("telemetry", &["tokio", "http", "hyper", "axum", "reqwest"]),
];

/// Where the two eras have no place.
const WITHOUT_ERAS: &[&str] = &["gateway", "catalog", "exchange"];

/// Who writes to standard output; elsewhere it is the wire.
const STDOUT: &[&str] = &["cli", "demo"];

/// Lines of a file without its tests, and with them.
const MAX_LINES: (usize, usize) = (600, 800);

/// Words that say nothing about what a type or a module is.
const EMPTY_WORDS: &[&str] =
    &["manager", "handler", "helper", "helpers", "context", "utils", "util", "common"];

/// A file of the source.
struct Source {
    /// Its path below the root of the repository, with `/`.
    path: String,
    text: String,
    /// The same without comments, strings and the tests at its end.
    code: String,
}

impl Source {
    /// The module of the crate that it belongs to.
    fn module(&self) -> &str {
        let path = self.path.trim_start_matches("src/");
        path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// How many `super` lead from here to the root of the crate.
    fn depth(&self) -> usize {
        self.path.matches('/').count()
    }

    /// Whether it is a part of the tests that has a file of its own.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name == "tests.rs" || name == "for_test.rs" || self.path.contains("/tests/")
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        match path.is_dir() {
            true => walk(&path, found),
            false => found.push(path),
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root().join("src"), &mut paths);
    let rust = paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let sources: Vec<Source> =
        rust.map(|path| source(relative(&path), fs::read_to_string(&path).unwrap())).collect();
    assert!(sources.len() > 20, "the source is not where it was");
    sources
}

fn source(path: String, text: String) -> Source {
    let stripped = code_of(&text);
    let end = stripped.find("\n#[cfg(test)]\nmod ").unwrap_or(stripped.len());
    let code = stripped.get(..end).unwrap_or_default().to_owned();
    Source { path, text, code }
}

/// The text with its comments and the contents of its strings blanked out, lines kept.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = skipped(rest, code.chars().next_back()).unwrap_or(0);
        if taken == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        code.extend(rest[..taken].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[taken..];
    }
    code
}

/// The length of the comment, string or character that `rest` begins with.
fn skipped(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(rest.find("*/").map_or(rest.len(), |at| at + 2));
    }
    let is_in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let raw = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r')).filter(|_| !is_in_word);
    if let Some(after) = raw {
        let hashes = after.len() - after.trim_start_matches('#').len();
        if after[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = rest.len() - after.len() + hashes + 1;
            return Some(rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()));
        }
    }
    if rest.starts_with('"') {
        return Some(end_of_string(rest));
    }
    // A character, not a lifetime.
    let after = rest.strip_prefix('\'')?;
    if let Some(escape) = after.strip_prefix('\\') {
        let close = escape.get(1..)?.find('\'')?;
        return Some(close + 4);
    }
    let c = after.chars().next()?;
    after[c.len_utf8()..].starts_with('\'').then_some(c.len_utf8() + 2)
}

fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = c == '\\' && !is_escaped,
        }
    }
    text.len()
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every identifier, with where it begins.
fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts_word = |at: usize| !code[..at].chars().next_back().is_some_and(is_word_char);
    code.char_indices().filter(move |(at, c)| is_word_char(*c) && starts_word(*at)).map(|(at, _)| {
        let rest = &code[at..];
        (at, &rest[..rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())])
    })
}

/// The words of an identifier, in lower case: `from_legacy` and `LegacyCall` both hold `legacy`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().unwrap().extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
    }
    words
}

/// The paths into the crate that a file names: module, and what of it where that is said.
fn uses(source: &Source) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let code = &source.code;
    for (at, word) in identifiers(code) {
        let rest = &code[at..];
        let is_tail = code[..at].ends_with("::");
        let path = match word {
            "crate" if !is_tail => rest.strip_prefix("crate::"),
            "waypost" if !is_tail && source.module() == "main" => rest.strip_prefix("waypost::"),
            "super" if !is_tail => {
                let up = "super::".repeat(source.depth());
                rest.strip_prefix(&up).filter(|rest| !rest.starts_with("super"))
            }
            _ => None,
        };
        if let Some(path) = path {
            leaves(path, &[], &mut found);
        }
    }
    found
}

/// Collects what a path leads to, through groups.
fn leaves(path: &str, before: &[&str], found: &mut BTreeSet<(String, String)>) {
    let path = path.trim_start();
    if let Some(group) = path.strip_prefix('{') {
        let mut depth = 0_usize;
        let mut start = 0;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    let item = group[start..at].trim();
                    if !item.is_empty() {
                        leaves(item, before, found);
                    }
                    start = at + 1;
                    if c == '}' {
                        return;
                    }
                }
                _ => {}
            }
        }
        return;
    }
    let end = path.find(|c| !is_word_char(c)).unwrap_or(path.len());
    let (word, rest) = path.split_at(end);
    let segments = [before, &[word]].concat();
    match (rest.strip_prefix("::"), segments.as_slice()) {
        (Some(rest), [_]) => leaves(rest, &segments, found),
        (_, [module]) => drop(found.insert(((*module).to_owned(), String::new()))),
        (_, [module, item, ..]) => drop(found.insert(((*module).to_owned(), (*item).to_owned()))),
        (_, []) => {}
    }
}

fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn modules_use_only_whom_they_may() {
    let mut problems = Vec::new();
    let mut needed = BTreeSet::new();
    for source in sources().iter().filter(|source| !source.is_test() && source.module() != "lib") {
        let module = source.module();
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
            problems.push(format!("{}: the module `{module}` is not in MAY_USE", source.path));
            continue;
        };
        for (used, item) in uses(source) {
            if used == module || allowed.contains(&used.as_str()) {
                continue;
            }
            match EXCEPTIONS.iter().find(|(who, whom, _)| *who == module && *whom == used) {
                Some(exception) => drop(needed.insert(exception)),
                None => problems.push(format!("{}: `{module}` must not use `{used}::{item}`", source.path)),
            }
        }
    }
    let stale = EXCEPTIONS.iter().filter(|exception| !needed.contains(exception));
    problems
        .extend(stale.map(|(who, whom, _)| format!("EXCEPTIONS: `{who}` does not use `{whom}` any more")));
    report(&problems);
}

#[test]
fn what_is_used_of_a_module_is_what_may_be() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (who, whom, items) in ONLY.iter().filter(|(who, ..)| *who == source.module()) {
            for (_, item) in uses(source).iter().filter(|(used, _)| used == whom) {
                if !items.contains(&item.as_str()) {
                    problems.push(format!("{}: `{who}` must not use `{whom}::{item}`", source.path));
                }
            }
        }
    }
    report(&problems);
}

#[test]
fn modules_do_not_know_the_crates_of_others() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let Some((_, banned)) = NO_CRATES.iter().find(|(name, _)| *name == source.module()) else { continue };
        for (at, word) in identifiers(&source.code).filter(|(_, word)| banned.contains(word)) {
            let (before, after) = (&source.code[..at], &source.code[at + word.len()..]);
            if after.starts_with("::") && !before.ends_with("::") {
                problems.push(format!("{}: must not know the crate `{word}`", source.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn the_middle_does_not_know_the_eras() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| WITHOUT_ERAS.contains(&source.module())) {
        for (_, identifier) in identifiers(&source.code) {
            if words(identifier).iter().any(|word| ["era", "eras", "legacy", "modern"].contains(&&**word)) {
                problems.push(format!("{}: `{identifier}`", source.path));
            }
        }
    }
    report(&problems);
}

#[test]
fn files_say_what_they_are_for_and_stay_short() {
    let mut problems = Vec::new();
    for source in sources() {
        let path = &source.path;
        if !source.text.starts_with("//! ") {
            problems.push(format!("{path}: does not begin with `//!` and its purpose"));
        }
        if path.ends_with("/mod.rs") {
            problems.push(format!("{path}: the front page of `foo/` is `foo.rs`"));
        }
        let (alone, whole) = (source.code.lines().count(), source.text.lines().count());
        if alone > MAX_LINES.0 || whole > MAX_LINES.1 {
            problems.push(format!("{path}: {alone} lines without its tests, {whole} with them"));
        }
    }
    report(&problems);
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled in halves, so that this file does not hold what it looks for.
    let comments = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let macros = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("#[ign", "ore")];
    let mut problems = Vec::new();
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches"] {
        walk(&root().join(folder), &mut paths);
    }
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        let text = fs::read_to_string(path).unwrap();
        let path = relative(path);
        problems.extend(
            identifiers(&text)
                .filter(|(_, word)| comments.contains(word))
                .map(|(_, word)| format!("{path}: `{word}`")),
        );
        let code = code_of(&text);
        problems.extend(
            macros.iter().filter(|word| code.contains(**word)).map(|word| format!("{path}: `{word}`")),
        );
    }
    report(&problems);
}

#[test]
fn names_say_something() {
    let mut problems = Vec::new();
    for source in sources() {
        let mut before = "";
        for (_, word) in identifiers(&source.code) {
            let is_definition = ["struct", "enum", "trait", "type", "mod", "union"].contains(&before);
            if is_definition && words(word).iter().any(|word| EMPTY_WORDS.contains(&&**word)) {
                problems.push(format!("{}: `{before} {word}`", source.path));
            }
            if before == "fn" && word.starts_with("get_") {
                problems.push(format!("{}: `fn {word}`", source.path));
            }
            before = word;
        }
    }
    report(&problems);
}

#[test]
fn standard_output_belongs_to_the_command_line() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| !STDOUT.contains(&source.module())) {
        for word in ["println!", "print!", "io::stdout", "io::Stdout"] {
            let mut places = source.code.match_indices(word);
            if places.any(|(at, _)| !source.code[..at].ends_with(is_word_char)) {
                problems.push(format!("{}: `{word}`", source.path));
            }
        }
    }
    report(&problems);
}

/// The files of the repository; without git, those that are there.
#[allow(clippy::disallowed_methods, reason = "no child of the gateway, and waited for")]
fn tracked() -> Vec<PathBuf> {
    let listed = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    if let Ok(output) = listed
        && output.status.success()
    {
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        return names.split('\0').filter(|name| !name.is_empty()).map(|name| root().join(name)).collect();
    }
    let mut found = Vec::new();
    let top = fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path());
    for path in top.filter(|path| !path.ends_with("target") && !relative(path).starts_with('.')) {
        match path.is_dir() {
            true => walk(&path, &mut found),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let folders = ["root", "home", "Users", "work"].map(|name| format!("/{name}/"));
    let mut problems = Vec::new();
    for path in tracked() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let found = folders.iter().flat_map(|folder| text.match_indices(folder.as_str()));
        for (at, folder) in found {
            // In the middle of a path it is somebody else's folder of that name.
            let is_start = !text[..at].ends_with(|c| is_word_char(c) || ".-}/".contains(c));
            if is_start {
                problems.push(format!("{}: {folder}", relative(&path)));
            }
        }
    }
    report(&problems);
}

#[test]
fn the_architecture_names_files_that_are_there() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let quoted = page.split('`').skip(1).step_by(2).filter(|text| text.starts_with("src/"));
    let paths: BTreeSet<&str> = quoted.collect();
    assert!(paths.len() > 10, "the page names hardly any file");
    let missing = paths.iter().filter(|path| !root().join(path).exists());
    let mut problems: Vec<String> = missing.map(|path| format!("ARCHITECTURE.md: `{path}`")).collect();
    for (module, _) in MAY_USE.iter().filter(|(module, _)| *module != "main") {
        if !page.contains(&format!("`{module}`")) {
            problems.push(format!("ARCHITECTURE.md: does not say whom `{module}` may use"));
        }
    }
    report(&problems);
}

#[test]
fn every_example_tells_its_story() {
    let mut problems = Vec::new();
    for path in tracked() {
        let name = relative(&path);
        let is_config = [".yaml", ".yml"].iter().any(|end| name.ends_with(end));
        if name.starts_with("examples/") && is_config && !path.with_file_name("README.md").exists() {
            problems.push(format!("{name}: there is no README.md beside it"));
        }
    }
    report(&problems);
}

#[test]
fn the_rules_see_what_they_look_for() {
    let text = "//! x\nuse crate::{a, b::{C, d::E}};\n// crate::no\nlet s = \"crate::no\"; let c = '\"';\n\
                fn f<'a>() { super::g::h(); super::super::up::X; crate::z::Y } r#\"crate::no \" \"#\n\
                #[cfg(test)]\nmod tests { use crate::no; }\n";
    let source = source("src/m/n.rs".to_owned(), text.to_owned());
    let found: Vec<String> =
        uses(&source).into_iter().map(|(module, item)| format!("{module}.{item}")).collect();
    assert_eq!(found, ["a.", "b.C", "b.d", "up.X", "z.Y"]);
    assert_eq!((source.module(), source.depth()), ("m", 2));
    assert_eq!(words("FromLegacy_call2"), ["from", "legacy", "call2"]);
    assert_eq!(code_of("a \"\\\"//\" b /* c */ d"), "a        b         d");
}
