//! Where the programs keep their servers.
//!
//! Must not know: what a server is made of.

use std::sync::Arc;

use super::Foreign;
use crate::config::tree::{Node, Value};

/// A server as it stands in a file.
#[derive(Clone, Debug)]
pub(super) struct Found<'n> {
    pub(super) file: Arc<str>,
    pub(super) name: &'n str,
    pub(super) node: &'n Node,
    pub(super) line: usize,
    /// Why it is not in use, where something besides the server says so.
    pub(super) disabled: Option<String>,
}

/// Keys at the top that hold the servers by name.
const PLACES: [&str; 4] = ["mcpServers", "servers", "mcp_servers", "context_servers"];

/// Whether the file has a place for servers, empty as it may be.
pub(super) fn has_place(root: &Node) -> bool {
    PLACES.iter().any(|place| root.member(place).is_some())
        || root.member("projects").is_some()
        || root.member("mcp").and_then(|mcp| mcp.member("servers")).is_some()
}

/// Every server of a file, in its order.
pub(super) fn servers<'n>(file: &Foreign, root: &'n Node) -> Vec<Found<'n>> {
    let file: Arc<str> = file.name.as_str().into();
    let mut found = Vec::new();
    for place in PLACES {
        collect(&file, root.member(place), &mut found);
    }
    let mcp = root.member("mcp");
    collect(&file, mcp.and_then(|mcp| mcp.member("servers")), &mut found);
    if let Some(mcp) = mcp {
        shut_out(mcp, &mut found);
    }
    // What Claude Code keeps for single projects.
    for (path, project) in root.member("projects").map(Node::members).unwrap_or_default() {
        let mut own = Vec::new();
        collect(&file, project.member("mcpServers"), &mut own);
        let off: Vec<&str> = project.member("disabledMcpServers").map(texts).unwrap_or_default();
        for server in own.iter_mut().filter(|server| off.contains(&server.name)) {
            server.disabled = Some(format!("it is disabled in the project {}", path.text));
        }
        found.extend(own);
    }
    found
}

fn collect<'n>(file: &Arc<str>, place: Option<&'n Node>, found: &mut Vec<Found<'n>>) {
    let entries = place.map(Node::members).unwrap_or_default();
    found.extend(entries.iter().map(|(name, node)| Found {
        file: Arc::clone(file),
        name: &name.text,
        node,
        line: name.span.line,
        disabled: None,
    }));
}

/// What Gemini CLI says about its servers as a whole.
fn shut_out(mcp: &Node, found: &mut [Found<'_>]) {
    let allowed = mcp.member("allowed").map(texts);
    let excluded = mcp.member("excluded").map(texts).unwrap_or_default();
    for server in found {
        if allowed.as_ref().is_some_and(|allowed| !allowed.contains(&server.name)) {
            server.disabled = Some("`mcp.allowed` does not have it".to_owned());
        }
        if excluded.contains(&server.name) {
            server.disabled = Some("`mcp.excluded` has it".to_owned());
        }
    }
}

/// The texts of a list.
pub(super) fn texts(node: &Node) -> Vec<&str> {
    let Value::List(items) = &node.value else { return Vec::new() };
    items.iter().filter_map(Node::text).collect()
}
