//! Endpoints: views on the upstreams, each at a path of its own.
//!
//! Must not know: how anything is served.

use std::sync::Arc;

use super::{Config, Rules, UpstreamConfig};

/// One view on the upstreams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Its path, without a slash at its end.
    pub path: Arc<str>,
    /// The places of the upstreams that it has; `None` is all.
    pub upstreams: Option<Vec<usize>>,
    /// What goes before the names of an upstream here, by its place, where that is something else than elsewhere.
    pub prefixes: Vec<(usize, String)>,
    /// What it lets through; by the names that the upstreams' own prefixes make, whatever the names here are.
    pub rules: Rules,
    /// What stands before the instructions of the upstreams here, where that is something else than elsewhere.
    pub instructions: Option<String>,
}

/// Where MCP is served where the file does not say.
const WHOLE: &str = "/mcp";

impl EndpointConfig {
    /// The one that a file without endpoints has: everything, at `/mcp`.
    #[must_use]
    pub fn whole() -> Self {
        Self { path: WHOLE.into(), ..Self::default() }
    }

    /// Where a stream of HTTP+SSE is opened; that of `/mcp` at `/sse`, where clients look for it.
    #[must_use]
    pub fn stream_path(&self) -> String {
        format!("{}/sse", self.base())
    }

    /// Where messages over HTTP+SSE are POSTed to.
    #[must_use]
    pub fn messages_path(&self) -> String {
        format!("{}/messages", self.base())
    }

    fn base(&self) -> &str {
        if *self.path == *WHOLE { "" } else { &self.path }
    }

    /// Whether it has the upstream at this place.
    #[must_use]
    pub fn has(&self, upstream: usize) -> bool {
        self.upstreams.as_ref().is_none_or(|places| places.contains(&upstream))
    }

    /// What goes before the names of an upstream here.
    #[must_use]
    pub fn prefix<'a>(&'a self, upstream: &'a UpstreamConfig) -> &'a str {
        let own = self.prefixes.iter().find(|(place, _)| *place == upstream.index);
        own.map_or(&upstream.prefix, |(_, prefix)| prefix)
    }
}

impl Config {
    /// The place of the endpoint with this path; without a path that of `/mcp`, or else of the first.
    #[must_use]
    pub fn endpoint(&self, path: Option<&str>) -> Option<usize> {
        let find = |path: &str| {
            self.endpoints_there().find(|(_, endpoint)| &*endpoint.path == path).map(|(place, _)| place)
        };
        match path {
            Some(path) => find(path),
            None => find(WHOLE).or_else(|| self.endpoints_there().next().map(|(place, _)| place)),
        }
    }

    /// The path of the endpoint at this place.
    #[must_use]
    pub fn endpoint_path(&self, place: usize) -> Arc<str> {
        self.endpoints.get(place).map(|endpoint| Arc::clone(&endpoint.path)).unwrap_or_default()
    }
}
