//! Resources that no list has: tools name their user interfaces by URI, and a server may leave those out of its
//! list of resources. They are read like any other, under the rules for resources.
//!
//! Spec: `io.modelcontextprotocol/ui`, "Resource Discovery".

use std::collections::HashMap;
use std::sync::Arc;

use super::merge::{Listed, Location};

/// The URIs that tools name and their upstreams do not list.
#[derive(Debug, Default)]
pub(super) struct Implied {
    by_exposed: HashMap<Arc<str>, Location>,
    /// The exposed URI of each, by its upstream and its own.
    by_native: HashMap<(usize, Arc<str>), Arc<str>>,
}

impl Implied {
    /// Notes one, unless it is noted already.
    pub(super) fn note(&mut self, exposed: Arc<str>, location: Location) {
        let own = (location.upstream, Arc::clone(&location.native));
        self.by_native.entry(own).or_insert_with(|| Arc::clone(&exposed));
        self.by_exposed.entry(exposed).or_insert(location);
    }

    /// Where an exposed URI leads.
    pub(super) fn find(&self, exposed: &str) -> Option<&Location> {
        self.by_exposed.get(exposed)
    }

    /// Whether the upstream has it.
    pub(super) fn has(&self, upstream: usize, native: &str) -> bool {
        self.by_native.contains_key(&(upstream, native.into()))
    }
}

/// The URIs of user interfaces that a tool names, in either spelling.
pub(super) fn interfaces(tool: &Listed) -> Vec<String> {
    let text = tool.text.bytes();
    let Some(meta) = tool.text.object().raw(text, "_meta") else { return Vec::new() };
    let view = meta.object();
    let nested = view.raw(meta.bytes(), "ui").and_then(|ui| ui.object().string(ui.bytes(), "resourceUri"));
    nested.into_iter().chain(view.string(meta.bytes(), "ui/resourceUri")).collect()
}
