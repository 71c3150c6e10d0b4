//! Other programs' files → this one: the servers of Claude Desktop, Claude Code, VS Code, Cursor, Windsurf, Gemini
//! CLI, Codex and their kin, as `upstreams`.
//!
//! What is taken over passes the check, once its variables are set: a server that would not is left as a comment that
//! says why. Nothing is left out in silence: each thing that is not taken over is a [`Note`] with its place.
//!
//! Must not know: files, the environment.

mod find;
mod read;
mod secret;
mod server;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use super::effective;
use super::reader::variable_name;
use find::Found;
use server::{Fate, Imported as Server};

/// A file of another program.
#[derive(Clone, Debug)]
pub struct Foreign {
    /// Its name in messages.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// What becomes of secrets that stand in a file in clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secrets {
    /// A variable takes their place.
    Refer,
    /// They are taken over as they are.
    Keep,
}

/// What became of the files.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The configuration, as YAML.
    pub yaml: String,
    /// How many servers were taken over, as upstreams that are in use.
    pub taken: usize,
    /// What was changed or left out, in the order of the files.
    pub notes: Vec<Note>,
    /// The variables that must be set, by name.
    pub variables: Vec<Variable>,
}

/// Something that was changed or left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub file: Arc<str>,
    /// The line of the file, from 1.
    pub line: usize,
    /// The server, and what about it.
    pub text: String,
}

/// A variable that must be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// What it is for, like `github: env.GITHUB_TOKEN`.
    pub uses: Vec<String>,
    /// Whether its value stood in a file in clear.
    pub was_in_clear: bool,
}

/// Why a file cannot be taken over at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is neither JSON nor TOML.
    #[error("{file}:{line}: this is neither JSON nor TOML: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What was expected.
        message: String,
    },
    /// It has no servers where any of the programs has them.
    #[error(
        "{0} has no MCP servers: there is no `mcpServers`, `servers`, `mcp.servers`, `mcp_servers` or `context_servers`"
    )]
    NoServers(String),
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.text)
    }
}

/// Takes the servers of these files over.
///
/// # Errors
/// If one of them cannot be read, or has no servers.
pub fn import(files: &[Foreign], secrets: Secrets) -> Result<Imported, ImportError> {
    let mut work = Work { secrets, notes: Vec::new(), variables: BTreeMap::new() };
    let mut servers: Vec<(Server, String)> = Vec::new();
    for file in files {
        let root = read::read(file)?;
        let found = find::servers(file, &root);
        if found.is_empty() && !find::has_place(&root) {
            return Err(ImportError::NoServers(file.name.clone()));
        }
        for found in &found {
            let name = free_name(found, &servers, &mut work);
            let server = server::server(found, &name, &mut work);
            let body = server.body();
            let twin = servers
                .iter()
                .find(|(other, other_body)| other.source == server.source && *other_body == body);
            match twin {
                Some((twin, _)) => {
                    work.note(found, found.line, format!("left out: it is the same as `{}`", twin.name))
                }
                None => servers.push((server, body)),
            }
        }
    }
    let names = files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>().join(", ");
    Ok(Imported {
        yaml: page(&names, &servers),
        taken: servers.iter().filter(|(server, _)| server.fate == Fate::Used).count(),
        notes: work.notes,
        variables: work.variables.into_iter().map(|(name, wanted)| wanted.into_variable(name)).collect(),
    })
}

fn page(names: &str, servers: &[(Server, String)]) -> String {
    let mut out =
        format!("# Taken over from {} by `waypost import`.\n", names.replace(char::is_control, " "));
    if servers.iter().all(|(server, _)| server.fate != Fate::Used) {
        out.push_str("upstreams: {}\n");
    } else {
        out.push_str("upstreams:\n");
    }
    for (server, body) in servers {
        let key = effective::key_text(&server.name);
        match &server.fate {
            Fate::Used => {
                // Writing to a string cannot fail.
                let _ = write!(out, "  {key}:\n{body}");
            }
            Fate::Aside(reason) => {
                let reason = reason.replace(char::is_control, " ");
                let _ = writeln!(out, "  # {reason}:\n  # {key}:");
                for line in body.lines() {
                    let _ = writeln!(out, "  # {}", line.strip_prefix("  ").unwrap_or(line));
                }
            }
        }
    }
    out
}

/// A name for a server that an upstream can have and none has yet.
fn free_name(found: &Found<'_>, servers: &[(Server, String)], work: &mut Work) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mapped: String =
        found.name.chars().map(|c| if is_kept(c) { c } else { '-' }).take(MAX_NAME).collect();
    let mapped = mapped.trim_matches('-');
    let plain = if mapped.is_empty() { "server" } else { mapped };
    if plain != found.name {
        work.note(
            found,
            found.line,
            format!("is called `{plain}` here: names have letters, digits, `_`, `-`, `.`"),
        );
    }
    // A twin of the same name is told apart by what it is, once that is known.
    let is_taken = |name: &str| servers.iter().any(|(server, _)| server.name == name);
    let mut names = std::iter::once(plain.to_owned()).chain((2..).map(|count| format!("{plain}-{count}")));
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

/// Leaves room for a number within the 64 characters of a name.
const MAX_NAME: usize = 56;

/// What is known so far.
#[derive(Debug)]
struct Work {
    secrets: Secrets,
    notes: Vec<Note>,
    variables: BTreeMap<String, Wanted>,
}

/// A variable, and what is known of its value.
#[derive(Debug, Default)]
struct Wanted {
    uses: Vec<String>,
    /// What stood in its place; `None` where the file names it itself.
    value: Option<String>,
}

impl Wanted {
    fn into_variable(self, name: String) -> Variable {
        Variable { name, uses: self.uses, was_in_clear: self.value.is_some() }
    }
}

impl Work {
    fn note(&mut self, found: &Found<'_>, line: usize, text: impl fmt::Display) {
        self.notes.push(Note {
            file: Arc::clone(&found.file),
            line,
            text: format!("{}: {text}", found.name),
        });
    }

    /// A variable that the file names itself.
    fn refer(&mut self, name: &str, usage: String) {
        let wanted = self.variables.entry(name.to_owned()).or_default();
        if !wanted.uses.contains(&usage) {
            wanted.uses.push(usage);
        }
    }

    /// A variable for a secret: `name`, or another that begins with the name of the server where that one holds
    /// something else.
    fn hide(&mut self, value: &str, name: &str, (server, usage): (&str, String)) -> String {
        let name = spelled(name);
        let long = spelled(&format!("{server}_{name}"));
        let numbered = (2..).map(|count| format!("{long}_{count}"));
        let mut names = [name, long.clone()].into_iter().chain(numbered);
        let is_free = |name: &String| {
            self.variables.get(name).is_none_or(|wanted| wanted.value.as_deref() == Some(value))
        };
        let name = names.find(is_free).unwrap_or(long);
        let wanted = self.variables.entry(name.clone()).or_default();
        wanted.value = Some(value.to_owned());
        wanted.uses.push(usage);
        name
    }
}

/// A text as the name of a variable.
fn spelled(text: &str) -> String {
    let name = variable_name(text.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    if name == "NAME" { variable_name(&format!("_{text}")) } else { name }
}

#[cfg(test)]
mod tests;
