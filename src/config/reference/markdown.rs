//! The reference as a page.

use std::fmt::Write as _;

use super::{
    AUDIT, AUTH, BREAKER, CALL_LIMITS, CLIENT, DEFAULTS, DEMO_TABLE, EDGE_TABLE, ENDPOINT, EXTENSIONS, Fate,
    HEALTH, ICON, JWT_TABLE, LIMITS, LISTEN_TABLE, LOG, NAMING, OAUTH_TABLE, POLICY, PROCESS, PROMPTS,
    RESOURCES, ROLE, SERVER_INFO, SESSIONS, TLS_TABLE, TOOLS, TOP, Table, UPSTREAM,
};

/// Every mapping, in the order of the page.
pub(crate) static TABLES: [&Table; 29] = [
    &TOP,
    &LISTEN_TABLE,
    &TLS_TABLE,
    &UPSTREAM,
    &TOOLS,
    &RESOURCES,
    &PROMPTS,
    &EXTENSIONS,
    &CALL_LIMITS,
    &OAUTH_TABLE,
    &HEALTH,
    &BREAKER,
    &PROCESS,
    &DEFAULTS,
    &ENDPOINT,
    &ROLE,
    &CLIENT,
    &AUTH,
    &JWT_TABLE,
    &LIMITS,
    &EDGE_TABLE,
    &NAMING,
    &SESSIONS,
    &POLICY,
    &SERVER_INFO,
    &ICON,
    &LOG,
    &AUDIT,
    &DEMO_TABLE,
];

const HEAD: &str = include_str!("head.md");

/// `docs/config.md`: every key of the file, its form, default and bounds.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for table in TABLES {
        // Writing to a string cannot fail.
        let _ = section(&mut out, table);
    }
    out
}

fn section(out: &mut String, table: &Table) -> std::fmt::Result {
    let title = if table.path.is_empty() { "The whole file".to_owned() } else { format!("`{}`", table.path) };
    writeln!(out, "\n## {title}\n\n{}\n", table.about)?;
    writeln!(out, "| key | value | default | bounds | what it is |\n|---|---|---|---|---|")?;
    for key in table.keys {
        let form = key.form();
        let cells = [form.written(), form.default(), form.bounds(), key.about().to_owned()];
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| `{}` | {} |", key.name(), cells.join(" | "))?;
    }
    if !table.later.is_empty() {
        let later: Vec<String> = table.later.iter().map(|key| format!("`{key}`")).collect();
        writeln!(out, "\nKnown, and refused until they are supported: {}.", later.join(", "))?;
    }
    foreign(out, table)?;
    if !table.example.is_empty() {
        writeln!(out, "\n```yaml\n{}```", table.example)?;
    }
    Ok(())
}

/// Says what becomes of the keys of other programs.
fn foreign(out: &mut String, table: &Table) -> std::fmt::Result {
    let names = |is_ignored: bool| -> Vec<String> {
        let named = table.foreign.iter().filter(|foreign| (foreign.fate == Fate::Ignored) == is_ignored);
        named.map(|foreign| format!("`{}`", foreign.name)).collect()
    };
    let (ignored, refused) = (names(true), names(false));
    if !ignored.is_empty() {
        writeln!(out, "\nKeys of other programs, ignored with a warning: {}.", ignored.join(", "))?;
    }
    if !refused.is_empty() {
        let refused = refused.join(", ");
        writeln!(out, "\nKeys of other programs, refused with what to write instead: {refused}.")?;
    }
    Ok(())
}
