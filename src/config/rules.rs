//! What one layer of the file lets through. Layers only narrow: what a client may use is what every layer
//! lets through, that of the upstream, that of the endpoint, those of its roles, and its own.
//!
//! Must not know: what is offered.

use std::sync::Arc;

use super::{ClientConfig, Config, Filter, UpstreamConfig};
use crate::mcp::ListKind;

/// The rules of an upstream, an endpoint, a role or a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Which tools: of an upstream by native names, else by exposed ones.
    pub tools: Filter,
    /// Which resources, by URI.
    pub resources: Filter,
    /// Which prompts, by names like those of the tools.
    pub prompts: Filter,
    /// Which extensions, by identifiers. `None` leaves it to the other filters.
    pub extensions: Option<Filter>,
    /// The line of the file at which the layer begins; 0 for one that is not in it.
    pub line: usize,
}

/// A set of rules that several clients share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleConfig {
    /// Its key under `roles`.
    pub name: Arc<str>,
    /// What it lets through.
    pub rules: Rules,
}

/// One layer, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// Where in the file: `upstreams`, `endpoints`, `roles` or `clients`.
    pub section: &'static str,
    /// Its key there.
    pub name: &'a str,
    /// What it lets through.
    pub rules: &'a Rules,
}

impl Rules {
    /// Which entries of a kind. Templates are judged as resources are.
    #[must_use]
    pub fn filter(&self, kind: ListKind) -> &Filter {
        match kind {
            ListKind::Tools => &self.tools,
            ListKind::Prompts => &self.prompts,
            ListKind::Resources | ListKind::Templates => &self.resources,
        }
    }

    /// Whether nothing of any list is held back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        ListKind::ALL.into_iter().all(|kind| *self.filter(kind) == Filter::default())
    }
}

impl UpstreamConfig {
    /// Its own layer.
    #[must_use]
    pub fn layer(&self) -> Layer<'_> {
        Layer { section: "upstreams", name: &self.name, rules: &self.rules }
    }
}

impl Config {
    /// The layers over exposed names that hold for a client at an endpoint, by their places: that of the endpoint,
    /// then those of the client.
    pub fn layers(&self, endpoint: usize, client: usize) -> impl Iterator<Item = Layer<'_>> {
        let endpoint = self.endpoints.get(endpoint).map(|endpoint| Layer {
            section: "endpoints",
            name: &endpoint.path,
            rules: &endpoint.rules,
        });
        let client = self.clients.get(client);
        endpoint.into_iter().chain(client.into_iter().flat_map(ClientConfig::layers))
    }
}

impl ClientConfig {
    /// Its layers: those of its roles in the order in which it has them, then its own.
    pub fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        let roles = self.roles.iter();
        let roles = roles.map(|role| Layer { section: "roles", name: &role.name, rules: &role.rules });
        roles.chain(std::iter::once(Layer { section: "clients", name: &self.name, rules: &self.rules }))
    }

    /// Whether none of its layers holds anything of any list back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.layers().all(|layer| layer.rules.is_open())
    }
}
