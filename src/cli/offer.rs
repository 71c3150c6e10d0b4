//! `waypost tools`, `resources` and `prompts`: what is offered.
//!
//! Must not know: where it comes from.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Subcommand;
use serde_json::Value;

use super::ask;
use super::check::Report;
use super::reach::{Reach, Reached, width};
use super::table::{line, plain, table};
use crate::mcp::ListKind;

/// What is wanted of tools.
#[derive(Debug, Subcommand)]
pub(super) enum Tools {
    /// List the tools.
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Show one tool: what it is for, and its arguments.
    Show {
        /// Its name, as clients see it.
        name: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// What is wanted of resources.
#[derive(Debug, Subcommand)]
pub(super) enum Resources {
    /// List the resources and their templates.
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Read a resource.
    Read {
        /// Its URI.
        uri: String,
        #[command(flatten)]
        reach: Reach,
    },
}

/// What is wanted of prompts.
#[derive(Debug, Subcommand)]
pub(super) enum Prompts {
    /// List the prompts.
    List {
        #[command(flatten)]
        reach: Reach,
    },
    /// Get a prompt, filled in.
    Get {
        /// Its name, as clients see it.
        name: String,
        /// Its arguments.
        #[arg(value_name = "KEY=VALUE")]
        arguments: Vec<String>,
        #[command(flatten)]
        reach: Reach,
    },
}

/// How a command ends that finds nothing of the name, as that of `waypost explain`.
pub(super) const UNKNOWN: u8 = 4;
/// How a command ends if no server is there, as that of `waypost explain`.
pub(super) const UNREACHED: u8 = 5;

/// Runs a command about tools.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn tools(file: &Path, wanted: &Tools) -> anyhow::Result<Report> {
    match wanted {
        Tools::List { reach } => {
            reach.with(file, async |reached| list(&reached, ListKind::Tools, reach)).await
        }
        Tools::Show { name, reach } => reach.with(file, async |reached| show(&reached, name, reach)).await,
    }
}

/// Runs a command about resources.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn resources(file: &Path, wanted: &Resources) -> anyhow::Result<Report> {
    match wanted {
        Resources::List { reach } => reach.with(file, async |reached| both(&reached, reach)).await,
        Resources::Read { uri, reach } => ask::read(file, uri, reach).await,
    }
}

/// Runs a command about prompts.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn prompts(file: &Path, wanted: &Prompts) -> anyhow::Result<Report> {
    match wanted {
        Prompts::List { reach } => {
            reach.with(file, async |reached| list(&reached, ListKind::Prompts, reach)).await
        }
        Prompts::Get { name, arguments, reach } => ask::prompt(file, (name, arguments), reach).await,
    }
}

/// Every entry of a list, as it came.
pub(super) fn entries(reached: &Reached<'_>, kind: ListKind) -> anyhow::Result<Vec<Bytes>> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = reached.gateway.list(kind, &reached.principal, cursor.as_deref())?;
        let spans = crate::mcp::elements(&page.entries, 0..page.entries.len());
        all.extend(spans.into_iter().map(|span| page.entries.slice(span)));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(all),
        }
    }
}

fn array(entries: &[Bytes]) -> String {
    let texts: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(entry)).collect();
    format!("[{}]", texts.join(","))
}

fn ended(reached: &Reached<'_>, stdout: String) -> Report {
    Report { stdout, stderr: reached.absent(), code: if reached.is_alone() { UNREACHED } else { 0 } }
}

fn list(reached: &Reached<'_>, kind: ListKind, reach: &Reach) -> anyhow::Result<Report> {
    let entries = entries(reached, kind)?;
    let stdout = if reach.json { array(&entries) + "\n" } else { rows(kind, &entries) };
    Ok(ended(reached, stdout))
}

fn both(reached: &Reached<'_>, reach: &Reach) -> anyhow::Result<Report> {
    let resources = entries(reached, ListKind::Resources)?;
    let templates = entries(reached, ListKind::Templates)?;
    let stdout = if reach.json {
        format!("{{\"resources\":{},\"resourceTemplates\":{}}}\n", array(&resources), array(&templates))
    } else {
        let first = rows(ListKind::Resources, &resources);
        let second = if templates.is_empty() { String::new() } else { rows(ListKind::Templates, &templates) };
        if second.is_empty() { first } else { format!("{first}\n{second}") }
    };
    Ok(ended(reached, stdout))
}

/// The entries of a list for a person; says so if there is none.
fn rows(kind: ListKind, entries: &[Bytes]) -> String {
    if entries.is_empty() {
        return format!("no {}s\n", kind.noun());
    }
    let entries: Vec<Value> = entries.iter().filter_map(|entry| serde_json::from_slice(entry).ok()).collect();
    let text =
        |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let named = |entry: &Value| text(entry, kind.name_key());
    match kind {
        ListKind::Tools => {
            let rows: Vec<[String; 2]> = entries.iter().map(|tool| [named(tool), about(tool)]).collect();
            table(["TOOL", "DESCRIPTION"], &rows, width())
        }
        ListKind::Prompts => {
            let rows: Vec<[String; 3]> =
                entries.iter().map(|prompt| [named(prompt), wanted(prompt), about(prompt)]).collect();
            table(["PROMPT", "ARGUMENTS", "DESCRIPTION"], &rows, width())
        }
        ListKind::Resources | ListKind::Templates => {
            let head = if kind == ListKind::Resources { "RESOURCE" } else { "TEMPLATE" };
            let rows: Vec<[String; 3]> =
                entries.iter().map(|one| [named(one), text(one, "mimeType"), about(one)]).collect();
            table([head, "TYPE", "DESCRIPTION"], &rows, width())
        }
    }
}

/// What something is for; its title or name where nothing says so.
fn about(entry: &Value) -> String {
    let said = ["description", "title", "name"].into_iter().filter_map(|key| entry.get(key)?.as_str());
    said.map(line).find(|text| !text.is_empty()).unwrap_or_default()
}

/// The arguments of a prompt; those that may be left out in brackets.
fn wanted(prompt: &Value) -> String {
    let arguments = prompt.get("arguments").and_then(Value::as_array).into_iter().flatten();
    let names = arguments.filter_map(|argument| {
        let name = argument.get("name")?.as_str()?;
        let is_required = argument.get("required").and_then(Value::as_bool).unwrap_or_default();
        Some(if is_required { name.to_owned() } else { format!("[{name}]") })
    });
    names.collect::<Vec<_>>().join(" ")
}

fn show(reached: &Reached<'_>, name: &str, reach: &Reach) -> anyhow::Result<Report> {
    let Some(text) = reached.gateway.listed_tool(&reached.principal, name) else {
        let stderr = format!("{}error: there is no tool `{}`\n", reached.absent(), line(name));
        let code = if reached.is_alone() { UNREACHED } else { UNKNOWN };
        return Ok(Report { stdout: String::new(), stderr, code });
    };
    let stdout = if reach.json {
        format!("{}\n", String::from_utf8_lossy(&text))
    } else {
        page(&serde_json::from_slice(&text).context("the tool is no JSON")?)
    };
    Ok(Report::of(stdout))
}

/// One tool for a person.
fn page(tool: &Value) -> String {
    let text = |key: &str| tool.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut out = line(text("name").unwrap_or_default());
    if let Some(title) = text("title") {
        out.push_str(&format!(" ({})", line(title)));
    }
    out.push('\n');
    if let Some(description) = text("description") {
        out.push_str(&format!("\n{}\n", plain(description.trim())));
    }
    let hints = tool.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let hints: Vec<&str> =
        hints.filter(|(_, value)| value.as_bool() == Some(true)).map(|(name, _)| name.as_str()).collect();
    if !hints.is_empty() {
        out.push_str(&format!("\nsays of itself: {}\n", line(&hints.join(", "))));
    }
    for (key, title) in [("inputSchema", "ARGUMENT"), ("outputSchema", "RESULT")] {
        let rows = tool.get(key).map(members).unwrap_or_default();
        if !rows.is_empty() {
            out.push_str(&format!("\n{}", table([title, "TYPE", "", "DESCRIPTION"], &rows, width())));
        }
    }
    out
}

/// The properties of a schema.
fn members(schema: &Value) -> Vec<[String; 4]> {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    properties
        .map(|(name, property)| {
            let need = if required.contains(&name.as_str()) { "required" } else { "" };
            [name.clone(), kind(property), need.to_owned(), about_property(property)]
        })
        .collect()
}

/// What a property may be.
fn kind(property: &Value) -> String {
    if let Some(words) = property.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words.iter().take(8).map(ToString::to_string).collect();
        return words.join("|");
    }
    match property.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ => "any".to_owned(),
    }
}

fn about_property(property: &Value) -> String {
    let text = property.get("description").and_then(Value::as_str).map(line).unwrap_or_default();
    match property.get("default") {
        Some(default) => format!("{text} [default {default}]").trim_start().to_owned(),
        None => text,
    }
}
