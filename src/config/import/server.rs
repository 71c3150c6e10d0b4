//! One server of another program → one upstream.
//!
//! Must not know: where the servers of a file stand.

use std::fmt::Write as _;
use std::time::Duration;

use super::find::{Found, texts};
use super::secret::{self, Parts};
use super::{Secrets, Work, value};
use crate::config::compile::is_own_header;
use crate::config::effective;
use crate::config::reference::UPSTREAM_FOREIGN;
use crate::config::tree::{Name, Node, ScalarKind, Value};
use crate::config::units::Unit as _;
use crate::config::{Problem, Severity, parse};

/// An upstream to be.
#[derive(Debug)]
pub(super) struct Imported {
    /// What it is called here.
    pub(super) name: String,
    /// What it was called.
    pub(super) source: String,
    pub(super) fate: Fate,
    /// Its keys with their values as YAML.
    fields: Vec<(&'static str, Field)>,
}

/// What becomes of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Used,
    /// It stands in the file as a comment, for this reason.
    Aside(String),
}

#[derive(Debug)]
enum Field {
    Value(String),
    Block(Vec<(String, String)>),
}

impl Imported {
    /// The lines below its name.
    pub(super) fn body(&self) -> String {
        let mut out = String::new();
        for (key, field) in &self.fields {
            // Writing to a string cannot fail.
            let _ = match field {
                Field::Value(yaml) => writeln!(out, "    {key}: {yaml}"),
                Field::Block(entries) => {
                    let _ = writeln!(out, "    {key}:");
                    entries.iter().try_for_each(|(name, yaml)| {
                        writeln!(out, "      {}: {yaml}", effective::key_text(name))
                    })
                }
            };
        }
        out
    }

    fn put(&mut self, key: &'static str, yaml: String) {
        self.fields.push((key, Field::Value(yaml)));
    }

    fn put_in(&mut self, key: &'static str, name: &str, yaml: String) {
        let place = self.fields.iter().position(|(known, _)| *known == key);
        match place.and_then(|place| self.fields.get_mut(place)) {
            Some((_, Field::Block(entries))) => {
                entries.retain(|(known, _)| known != name);
                entries.push((name.to_owned(), yaml));
            }
            Some(_) | None => self.fields.push((key, Field::Block(vec![(name.to_owned(), yaml)]))),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.fields.iter().any(|(known, _)| *known == key)
    }

    fn set_aside(&mut self, reason: impl Into<String>) {
        if self.fate == Fate::Used {
            self.fate = Fate::Aside(reason.into());
        }
    }
}

/// A server while it is read.
struct Reading<'w, 'n> {
    found: &'w Found<'n>,
    work: &'w mut Work,
    out: Imported,
}

/// Takes one server over, under this name.
pub(super) fn server(found: &Found<'_>, name: &str, work: &mut Work) -> Imported {
    let fate = found.disabled.clone().map_or(Fate::Used, Fate::Aside);
    let out = Imported { name: name.to_owned(), source: found.name.to_owned(), fate, fields: Vec::new() };
    let mut reading = Reading { found, work, out };
    if !matches!(found.node.value, Value::Map(_)) {
        reading.note(found.line, format!("left out: it is {}, not a mapping", found.node.kind()));
        reading.out.set_aside("it is no mapping");
    }
    for (key, node) in found.node.members() {
        reading.key(key, node);
    }
    reading.order();
    reading.check();
    reading.out
}

impl<'n> Reading<'_, 'n> {
    fn note(&mut self, line: usize, text: String) {
        self.work.note(self.found, line, text);
    }

    /// One key, as any of the programs calls it.
    fn key(&mut self, key: &'n Name, node: &'n Node) {
        match key.text.as_str() {
            "command" => self.text("command", node),
            "args" => self.args(node),
            "cwd" | "workingDirectory" => self.cwd(node),
            "url" | "serverUrl" => self.url(node),
            "httpUrl" => {
                self.url(node);
                self.transport("http");
            }
            "env" => self.map("env", node),
            "env_vars" => {
                for name in texts(node) {
                    self.work.refer(name, format!("{}: env.{name}", self.found.name));
                    self.out.put_in("env", name, effective::scalar(&format!("${{{name}}}")));
                }
            }
            "headers" | "http_headers" | "requestInit" => self.headers(node),
            "env_http_headers" => {
                for (header, name) in node.members() {
                    let reference = node_reference(name);
                    self.refer_header(&header.text, "", &reference);
                }
            }
            "bearer_token_env_var" => self.refer_header("Authorization", "Bearer ", &node_reference(node)),
            "type" | "transport" | "transportType" => self.kind(key, node),
            "disabled" if node.text() == Some("true") => self.out.set_aside("it is disabled there"),
            "enabled" if node.text() == Some("false") => self.out.set_aside("it is disabled there"),
            "disabled" | "enabled" => {}
            "timeout" | "tool_timeout_sec" | "startup_timeout_sec" | "startup_timeout_ms" => {
                self.timeout(key, node)
            }
            "includeTools" | "enabledTools" | "enabled_tools" | "tools" if !texts(node).is_empty() => {
                self.tools("allow", node);
            }
            "excludeTools" | "disabledTools" | "disabled_tools" => self.tools("deny", node),
            _ => self.foreign(key),
        }
    }

    /// What is not taken over, and what to do about it.
    fn foreign(&mut self, key: &Name) {
        let known = UPSTREAM_FOREIGN.iter().find(|foreign| foreign.name == key.text);
        let advice = known.map_or("it is not known here", |foreign| foreign.advice);
        self.note(key.span.line, format!("`{}` is left out: {advice}", key.text));
    }

    fn text(&mut self, key: &'static str, node: &Node) {
        match node.text() {
            Some(text) => {
                let yaml = self.translated(text, node.span.line, (Vec::new(), text), (key, key));
                self.out.put(key, effective::scalar(&yaml));
            }
            None => self.note(node.span.line, format!("`{key}` is left out: it is {}", node.kind())),
        }
    }

    fn cwd(&mut self, node: &Node) {
        if node.text().is_some_and(|path| !path.starts_with(['/', '$', '~'])) {
            self.note(
                node.span.line,
                "`cwd` is relative, and counts from the folder of the new file".to_owned(),
            );
        }
        self.text("cwd", node);
    }

    fn args(&mut self, node: &Node) {
        let Value::List(items) = &node.value else {
            self.note(node.span.line, format!("`args` is left out: it is {}", node.kind()));
            return;
        };
        let mut args = Vec::new();
        let mut flag = None;
        for item in items {
            let Some(text) = item.text() else {
                self.note(item.span.line, format!("an item of `args` is left out: it is {}", item.kind()));
                continue;
            };
            let parts = secret::argument(flag, text);
            args.push(match self.is_own(text) {
                true => text.replace('$', "$$"),
                false => self.translated(text, item.span.line, parts, ("args", SECRET)),
            });
            flag = Some(text);
        }
        self.out.put("args", effective::list(args.iter().map(String::as_str)));
    }

    /// Whether an argument names a variable that the server itself is given: whoever reads it there fills it in.
    fn is_own(&self, text: &str) -> bool {
        let own = self.found.node.member("env").map(Node::members).unwrap_or_default();
        own.iter().any(|(name, value)| {
            let is_passed_on = value.text().is_some_and(|value| value.contains(&format!("{}}}", name.text)));
            text.contains(&format!("${{{}}}", name.text)) && !is_passed_on
        })
    }

    fn url(&mut self, node: &Node) {
        let Some(text) = node.text() else {
            self.note(node.span.line, format!("`url` is left out: it is {}", node.kind()));
            return;
        };
        let yaml = self.translated(text, node.span.line, secret::url(text), ("url", SECRET));
        self.out.put("url", effective::scalar(&yaml));
    }

    fn headers(&mut self, node: &Node) {
        // As the options of a request have them.
        self.map(
            "headers",
            node.member("headers").filter(|inner| matches!(inner.value, Value::Map(_))).unwrap_or(node),
        );
    }

    fn map(&mut self, key: &'static str, node: &Node) {
        if !matches!(node.value, Value::Map(_)) {
            self.note(node.span.line, format!("`{key}` is left out: it is {}", node.kind()));
        }
        for (name, value) in node.members() {
            if key == "headers" && is_own_header(&name.text) {
                self.note(
                    name.span.line,
                    format!("`headers.{}` is left out: Waypost sets it itself", name.text),
                );
                continue;
            }
            let Some(text) = value.text() else {
                self.note(
                    value.span.line,
                    format!("`{key}.{}` is left out: it is {}", name.text, value.kind()),
                );
                continue;
            };
            let is_flag = matches!(&value.value, Value::Scalar(scalar) if scalar.kind == ScalarKind::Flag);
            let parts = if is_flag { (Vec::new(), text) } else { secret::named(&name.text, text) };
            let is_authorization = name.text.eq_ignore_ascii_case("authorization");
            let base = match key {
                "env" => name.text.clone(),
                _ if is_authorization => format!("{}_TOKEN", self.found.name),
                _ => format!("{}_{}", self.found.name, name.text),
            };
            let place = format!("{key}.{}", name.text);
            let yaml = self.translated(text, value.span.line, parts, (&place, &base));
            self.out.put_in(key, &name.text, effective::scalar(&yaml));
        }
    }

    fn refer_header(&mut self, header: &str, scheme: &str, variable: &str) {
        self.work.refer(variable, format!("{}: headers.{header}", self.found.name));
        self.out.put_in("headers", header, effective::scalar(&format!("{scheme}${{{variable}}}")));
    }

    fn kind(&mut self, key: &Name, node: &Node) {
        match node.text() {
            Some("sse") => self.transport("sse"),
            Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => self.transport("http"),
            Some("stdio" | "local" | "remote") => {}
            Some(other) => {
                let text = format!("`{}: {other}` is no transport that is known here", key.text);
                self.note(node.span.line, text.clone());
                self.out.set_aside(text);
            }
            None => self.foreign(key),
        }
    }

    fn transport(&mut self, word: &str) {
        self.out.fields.retain(|(known, _)| *known != "transport");
        self.out.put("transport", word.to_owned());
    }

    fn timeout(&mut self, key: &Name, node: &Node) {
        let Some(number) =
            node.text().and_then(|text| text.parse::<f64>().ok()).filter(|number| *number > 0.0)
        else {
            self.foreign(key);
            return;
        };
        // Programs that count seconds seldom wait so long; those that count milliseconds seldom wait so short.
        let is_millis = key.text.ends_with("_ms") || (key.text == "timeout" && number >= 1_000.0);
        let duration = Duration::try_from_secs_f64(if is_millis { number / 1_000.0 } else { number });
        let ours = if key.text.starts_with("startup") { "connect_timeout" } else { "timeout" };
        match duration {
            Ok(duration) => {
                let written = duration.write();
                if key.text == "timeout" {
                    self.note(node.span.line, format!("`timeout: {number}` is taken for {written}"));
                }
                self.out.put(ours, written);
            }
            Err(_) => self.foreign(key),
        }
    }

    fn tools(&mut self, side: &'static str, node: &Node) {
        let names = texts(node);
        if !names.is_empty() {
            self.out.put_in("tools", side, effective::list(names));
        }
    }

    /// A text with its secrets and its references as variables of ours. `usage` is what it is, and what a variable for
    /// a secret of it is called if the text does not say.
    fn translated(
        &mut self,
        text: &str,
        line: usize,
        (parts, rest): Parts<'_>,
        (place, base): (&str, &str),
    ) -> String {
        let mut out = String::new();
        let usage = format!("{}: {place}", self.found.name);
        if self.work.secrets == Secrets::Keep {
            return self.plain(text, line, &usage);
        }
        for part in parts {
            out.push_str(&self.plain(part.before, line, &usage));
            let name = part.label.map_or_else(
                || if base == SECRET { format!("{}_{SECRET}", self.found.name) } else { base.to_owned() },
                |label| format!("{}_{}", self.found.name, label.trim_matches(['-', '_'])),
            );
            let name = self.work.hide(part.secret, &name, (&self.out.name, usage.clone()));
            self.note(line, format!("`{place}` holds a secret: it is `${{{name}}}` now"));
            out.push_str(&format!("${{{name}}}"));
        }
        out + &self.plain(rest, line, &usage)
    }

    fn plain(&mut self, text: &str, line: usize, usage: &str) -> String {
        let home =
            text.strip_prefix("~/").filter(|_| usage.ends_with(": command") || usage.ends_with(": cwd"));
        let found = value::translate(text);
        for variable in &found.variables {
            self.work.refer(variable, usage.to_owned());
        }
        for remark in found.remarks {
            self.note(line, remark);
        }
        home.map_or(found.text, |rest| format!("${{HOME}}/{}", value::translate(rest).text))
    }

    /// Puts the keys into the order of the reference.
    fn order(&mut self) {
        let order = ["command", "args", "env", "cwd", "url", "transport", "headers", "tools", "timeout"];
        let place = |key: &str| order.iter().position(|known| *known == key).unwrap_or(order.len());
        self.out.fields.sort_by_key(|(key, _)| place(key));
        if self.out.has("command") {
            self.out.fields.retain(|(key, _)| *key != "transport");
        }
    }

    /// Sets aside what the check would refuse, and says why.
    fn check(&mut self) {
        let key = effective::key_text(&self.out.name);
        let yaml = format!("upstreams:\n  {key}:\n{}", self.out.body());
        let verdicts = VALUES.map(|value| parse(&yaml, "import", &|_| Some(value.to_owned())).err());
        let [Some(problems), Some(_), Some(_)] = verdicts else { return };
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        let Some(first) = problems.as_slice().iter().find(is_error) else { return };
        let reason = first.message.clone();
        let help = first.help.first().map(|help| format!("; {help}")).unwrap_or_default();
        self.note(self.found.line, format!("is left as a comment: {reason}{help}"));
        self.out.set_aside(reason);
    }
}

/// What a secret without a name of its own is called, behind the name of its server.
const SECRET: &str = "SECRET";

/// What variables may hold when a server is checked: a word, or a number or an address where that must be one.
const VALUES: [&str; 3] = ["x0123456789abcdef0123456789abcdef", "8080", "https://h.example"];

/// The name of a variable, as it stands there.
fn node_reference(node: &Node) -> String {
    node.text().unwrap_or_default().to_owned()
}
