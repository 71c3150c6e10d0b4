//! Extensions: which of them a client is promised, and where a method goes that only an extension can have.
//!
//! What an extension does is not known here, so a rule about tools says nothing about it. Whoever has such
//! rules, and none about extensions, has none: what cannot be judged is not let through.

use super::access::{Reveal, denied_method, unknown_method};
use super::admit::Findings;
use super::error::GatewayError;
use super::{Current, Gateway};
use crate::config::Rules;
use crate::exchange::Principal;
use crate::mcp::extension::{self, Extension, Tie};
use crate::mcp::{ListKind, Raw, TaskMode, merge_capabilities, task};

/// An extension of one upstream.
pub(super) struct Offered {
    pub(super) upstream: usize,
    pub(super) extension: Extension,
    /// Whether the principal may use it.
    pub(super) is_admitted: bool,
}

impl Gateway {
    /// What the gateway can do for `principal`, which knows tasks of this kind: `ServerCapabilities`.
    #[must_use]
    pub fn capabilities(&self, principal: &Principal, tasks: Option<TaskMode>) -> Raw {
        let current = self.current.load();
        let has_tasks = |upstream: usize, mode: TaskMode| {
            tasks == Some(mode) && current.offers.get(upstream).is_some_and(|offer| offer.tasks == tasks)
        };
        let is_carried = |offered: &Offered| {
            let is_tasks = &*offered.extension.id == extension::TASKS;
            !is_tasks || has_tasks(offered.upstream, TaskMode::ByServer)
        };
        let offered = self.extensions(&current, principal).into_iter();
        let offered = offered.filter(|offered| offered.is_admitted && is_carried(offered));
        let extensions = extension::merge(offered.map(|offered| offered.extension));
        let with_tasks = self.offers_at(&current, principal).filter(|(upstream, _)| {
            has_tasks(upstream.index, TaskMode::ByCaller) && self.sees(&current, principal, upstream.index)
        });
        let with_tasks = with_tasks.filter_map(|(_, offer)| offer.capabilities.as_ref());
        let more = [("tasks", task::merge(with_tasks)), ("extensions", extensions)];
        let declared =
            self.offers_at(&current, principal).filter_map(|(_, offer)| offer.capabilities.as_ref());
        merge_capabilities(declared, &more)
    }

    /// Whether `principal` sees an entry of any list of the upstream at this place.
    pub(super) fn sees(&self, current: &Current, principal: &Principal, upstream: usize) -> bool {
        let snapshot = current.at(principal);
        let sees_kind = |kind: ListKind| {
            let Some(view) = snapshot.view(kind, principal) else { return false };
            let mut entries = snapshot.entries(kind).iter().enumerate();
            entries.any(|(index, entry)| entry.upstream == upstream && view.shows(index))
        };
        ListKind::ALL.into_iter().any(sees_kind)
    }

    /// What the upstreams declare, in the order of the configuration.
    pub(super) fn extensions(&self, current: &Current, principal: &Principal) -> Vec<Offered> {
        let declared = self.offers_at(current, principal).map(|(upstream, offer)| {
            let extensions = offer.capabilities.as_ref().map(extension::declared).unwrap_or_default();
            extensions.into_iter().map(|extension| Offered {
                upstream: upstream.index,
                is_admitted: self.admits_extension(current, principal, upstream.index, &extension.id),
                extension,
            })
        });
        declared.flatten().collect()
    }

    /// Whether an extension of an upstream of the endpoint passes the rules of every layer.
    fn admits_extension(&self, current: &Current, principal: &Principal, upstream: usize, id: &str) -> bool {
        let layers = self.config.layers(principal.endpoint, principal.client, &principal.roles);
        let (Some(config), Some(mut layers)) = (self.config.upstreams.get(upstream), layers) else {
            return false;
        };
        let is_admitted = admits(&config.rules, id) && layers.all(|layer| admits(layer.rules, id));
        is_admitted && (!extension::is_known(id) || self.sees(current, principal, upstream))
    }

    /// The one upstream that a method of an extension can be meant for.
    ///
    /// The method says it where it carries the identifier of an extension, or its vendor's prefix. Where it
    /// says nothing, it goes to the only upstream that has extensions which Waypost does not know.
    ///
    /// # Errors
    /// `MethodNotFound` if there is no such upstream, or more than one; `MethodDenied` if there is one, but not for
    /// this principal. Both have the same words unless `reveal_denied`.
    pub(super) fn extended(
        &self,
        current: &Current,
        (principal, reveal): (&Principal, Reveal),
        method: &str,
        findings: &mut Findings,
    ) -> Result<usize, GatewayError> {
        if !extension::may_extend(method) {
            return Err(unknown_method(method));
        }
        let mut offered = self.extensions(current, principal);
        offered.retain(|offered| !extension::is_known(&offered.extension.id));
        // What the principal may not use must not decide either, so that nobody learns of it.
        let closest = offered.iter().filter(|offered| offered.is_admitted).map(|one| one.tie(method)).max();
        let meant = |offered: &&Offered| closest.is_some_and(|closest| offered.tie(method) >= closest);
        // Where the method leaves open which extension it is of, all that it may be of must be admitted.
        let is_forbidden =
            |upstream: usize| offered.iter().filter(meant).any(|o| o.upstream == upstream && !o.is_admitted);
        let mut upstreams: Vec<usize> = offered
            .iter()
            .filter(meant)
            .filter(|offered| offered.is_admitted && !is_forbidden(offered.upstream))
            .map(|offered| offered.upstream)
            .collect();
        upstreams.dedup();
        if let [only] = upstreams.as_slice() {
            return Ok(*only);
        }
        let hidden = owner(&offered, method).filter(|_| upstreams.is_empty());
        findings.upstream = findings.upstream.or(hidden);
        Err(hidden.map_or_else(|| unknown_method(method), |_| denied_method(method, reveal)))
    }
}

impl Offered {
    fn tie(&self, method: &str) -> Tie {
        extension::tie(&self.extension.id, method)
    }
}

/// The one upstream that a method would be for, if its principal might use everything.
fn owner(offered: &[Offered], method: &str) -> Option<usize> {
    let closest = offered.iter().map(|offered| offered.tie(method)).max()?;
    let mut meant: Vec<usize> = offered
        .iter()
        .filter(|offered| offered.tie(method) == closest)
        .map(|offered| offered.upstream)
        .collect();
    meant.dedup();
    match meant.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// What one layer of rules says of an extension: its own rule, or else that what it restricts otherwise it
/// cannot judge here. Extensions that Waypost knows are judged wherever they are used.
fn admits(rules: &Rules, id: &str) -> bool {
    match &rules.extensions {
        Some(rule) => rule.admits(id),
        None => extension::is_known(id) || rules.is_open(),
    }
}
