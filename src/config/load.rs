//! File → configuration, or everything that is wrong with it.

use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use secrecy::ExposeSecret;

use super::effective::Effective;
use super::problem::{Problem, Problems, Severity};
use super::reader::Reader;
use super::source::{Finding, Source};
use super::tree::{self, Name, Node, Span, Value};
use super::{Config, Http, Transport, compile, expand, mask};

/// A configuration that can be used.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What most likely does not do what was meant, in the order of the file.
    pub warnings: Vec<Problem>,
    /// Every key with its value, and where that came from.
    pub effective: Effective,
}

/// Largest file, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Loads a file. `env` gives the variables; `WAYPOST_EXE`, the path of the running program, should be among them.
///
/// Reads the file, and those that it names as sources of secrets, of which relative paths count from its folder.
///
/// # Errors
///
/// All problems at once, warnings among them, if there is one that is no warning.
pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Problems> {
    let file: Arc<str> = path.display().to_string().into();
    let text = read(path).map_err(|message| {
        let mut finding = Finding::error(format!("cannot read {file}: {message}"));
        if !path.exists() {
            finding = finding.help("go to its folder, or name it: `--config FILE`");
        }
        Problems::new(vec![Source::new(Arc::clone(&file), "", Vec::new()).problem(finding)])
    })?;
    parse_in(&text, file, path.parent().unwrap_or(Path::new("")), env)
}

/// A variable of this process, for [`load`]. `WAYPOST_EXE` is always the path of the running program.
#[must_use]
pub fn process_env(name: &str) -> Option<String> {
    if name == "WAYPOST_EXE" {
        return Some(std::env::current_exe().ok()?.to_str()?.to_owned());
    }
    std::env::var(name).ok()
}

/// As [`load`], for a text; `file` is its name in messages. Relative paths count from the working directory.
///
/// # Errors
///
/// As [`load`].
pub fn parse(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Problems> {
    parse_in(text, file.into(), Path::new(""), env)
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err("it is larger than 4 MiB".to_owned());
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
}

fn parse_in(
    text: &str,
    file: Arc<str>,
    folder: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, Problems> {
    let entries = match entries(text) {
        Ok(entries) => entries,
        Err(finding) => {
            let source = Source::new(file, text, mask::guess(text));
            return Err(Problems::new(vec![source.problem(finding)]));
        }
    };
    let reader =
        Reader { folder: folder.to_owned(), env, findings: RefCell::default(), files: RefCell::default() };
    let top = Node { span: Span::default(), value: Value::Map(entries) };
    let entries = reader.entries(&top, "the file", "a mapping").unwrap_or_default();
    let (mut config, root) = compile::compile(&reader, entries);
    config.file = Arc::clone(&file);
    config.files = reader.files.take();
    config.hash = hash(&top, &config, env);
    let source = Source::new(Arc::clone(&file), text, mask::secrets(entries));
    let findings = reader.findings.take();
    let problems = Problems::new(findings.into_iter().map(|finding| source.problem(finding)).collect());
    if problems.as_slice().iter().any(|problem| problem.severity == Severity::Error) {
        return Err(problems);
    }
    let warnings = problems.as_slice().to_vec();
    Ok(Loaded { config, warnings, effective: Effective { file, root } })
}

/// The entries of a text that is one mapping.
fn entries(text: &str) -> Result<Vec<(Name, Node)>, Finding> {
    let node = tree::parse(text).map_err(|error| {
        let finding = syntax_finding(&error.message);
        Finding { span: error.span, ..finding }
    })?;
    match node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => {
            let finding = Finding::error("the file is empty").help("the least file is `upstreams: {}`");
            Err(finding.at(Span { line: 1, column: 1, ..Span::default() }))
        }
        Value::Scalar(_) | Value::List(_) => {
            let finding = Finding::error(format!("the file is {}: expected a mapping", node.kind()));
            Err(finding.at(node.span).help("it begins with a key, like `upstreams:`"))
        }
    }
}

fn syntax_finding(message: &str) -> Finding {
    // The place is shown anyway.
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let finding = Finding::error(format!("this is no YAML: {message}"));
    if message.contains("tabs") {
        return finding.help("indent with spaces: YAML does not take tabs");
    }
    if message.contains("limits breached") || message.contains("limit exceeded") {
        let finding = Finding::error("the file is too large, or nests too deep");
        return finding
            .help("it may hold 100,000 values, aliases counted where they are used, nested 32 deep");
    }
    if message.contains("document expected") {
        return Finding::error("the file holds more than one document").help("take out the `---`");
    }
    if message.contains("alias") || message.contains("unknown value") {
        return finding
            .help("a `*` begins an alias: put a pattern that begins so in quotes, like `\"*_secret\"`");
    }
    if message.contains("unexpected character") {
        return finding.help("put the value in quotes");
    }
    finding
}

/// What the file and its variables say, as 16 hexadecimal digits: comments and layout have no part in it.
fn hash(top: &Node, config: &Config, env: &dyn Fn(&str) -> Option<String>) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    hash_node(top, env, &mut context);
    for client in &config.clients {
        client.tokens.iter().for_each(|token| context.update(&token.digest));
    }
    for upstream in &config.upstreams {
        if let Transport::Http(Http { oauth: Some(oauth), .. }) = &upstream.transport {
            context.update(oauth.client_secret.expose_secret().as_bytes());
        }
    }
    if let Some(key) = &config.sessions.key {
        context.update(key.expose_secret().as_bytes());
    }
    let digest = context.finish();
    digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn hash_node(node: &Node, env: &dyn Fn(&str) -> Option<String>, context: &mut aws_lc_rs::digest::Context) {
    let mut part = |kind: u8, text: &str| {
        context.update(&[kind]);
        context.update(&text.len().to_be_bytes());
        context.update(text.as_bytes());
    };
    match &node.value {
        Value::Null => part(0, ""),
        Value::Scalar(scalar) => {
            let expanded = expand::expand(&scalar.text, env).map(|expanded| expanded.text);
            part(1, &expanded.unwrap_or_else(|_| scalar.text.clone()));
        }
        Value::List(items) => {
            part(2, &items.len().to_string());
            items.iter().for_each(|item| hash_node(item, env, context));
        }
        Value::Map(entries) => {
            part(3, &entries.len().to_string());
            for (name, value) in entries {
                context.update(&name.text.len().to_be_bytes());
                context.update(name.text.as_bytes());
                hash_node(value, env, context);
            }
        }
    }
}
