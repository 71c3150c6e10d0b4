//! What one layer of the file lets through. Layers only narrow: what a client may use is what every layer
//! lets through, that of the upstream, those of its roles, and its own.
//!
//! Must not know: what is offered.

use std::sync::Arc;

use super::{ClientConfig, Config, Filter, UpstreamConfig};
use crate::mcp::ListKind;

/// The rules of an upstream, a role or a client.
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
    /// Where in the file: `upstreams`, `roles` or `clients`.
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

impl RoleConfig {
    /// Its own layer.
    #[must_use]
    pub fn layer(&self) -> Layer<'_> {
        Layer { section: "roles", name: &self.name, rules: &self.rules }
    }
}

impl Config {
    /// What the client at this place is called; empty where there is none.
    #[must_use]
    pub fn label(&self, client: usize) -> &str {
        self.clients.get(client).map(|client| &*client.name).unwrap_or_default()
    }

    /// The layers of a caller that is the client at this place and has these roles besides those of the client;
    /// `None` where one of them is not there.
    #[must_use]
    pub fn layers<'a>(&'a self, client: usize, roles: &[usize]) -> Option<impl Iterator<Item = Layer<'a>>> {
        let client = self.clients.get(client)?;
        let more: Option<Vec<Layer<'a>>> =
            roles.iter().map(|place| self.roles.get(*place).map(|role| role.layer())).collect();
        Some(more?.into_iter().chain(client.layers()))
    }
}

impl UpstreamConfig {
    /// Its own layer.
    #[must_use]
    pub fn layer(&self) -> Layer<'_> {
        Layer { section: "upstreams", name: &self.name, rules: &self.rules }
    }
}

impl ClientConfig {
    /// Its layers: those of its roles in the order in which it has them, then its own.
    pub fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        let roles = self.roles.iter().map(|role| role.layer());
        roles.chain(std::iter::once(Layer { section: "clients", name: &self.name, rules: &self.rules }))
    }

    /// Whether none of its layers holds anything of any list back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.layers().all(|layer| layer.rules.is_open())
    }
}
