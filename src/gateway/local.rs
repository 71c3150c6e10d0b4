//! What the gateway answers by itself: lists, capabilities, instructions.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Current, Gateway, GatewayError, GatewayErrorKind, Health, Offer};
use crate::exchange::Principal;
use crate::mcp::{ListKind, Method, extension, has_capability, tells_of_resources};

/// Longest instructions taken from one upstream, in bytes.
const INSTRUCTIONS_EACH: usize = 4 * 1024;
/// Longest instructions altogether, in bytes.
const INSTRUCTIONS_ALL: usize = 32 * 1024;

/// One page of a list, as one principal may see it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The entries as one JSON array, names exposed.
    pub entries: Bytes,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long it may be taken for fresh.
    pub ttl: Duration,
    /// Whether it is the same for everybody.
    pub scope: CacheScope,
}

/// Who may share a cached list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheScope {
    /// Everybody.
    Public,
    /// Requests with the same credentials.
    Private,
}

impl Gateway {
    /// One page of what `principal` may see, from the snapshot; asks no upstream.
    ///
    /// # Errors
    /// `InvalidParams` if the cursor is none of ours, or the list has changed since it was given out.
    pub fn list(
        &self,
        kind: ListKind,
        principal: &Principal,
        cursor: Option<&str>,
    ) -> Result<Page, GatewayError> {
        let current = self.current.load();
        let view = current
            .at(principal)
            .view(kind, principal)
            .ok_or_else(|| GatewayError::new(GatewayErrorKind::Internal, "the client has no view"))?;
        let (entries, next_cursor) = view
            .page(cursor, self.config.page_size)
            .map_err(|error| GatewayError::new(GatewayErrorKind::InvalidParams, error.to_string()))?;
        let (ttl, scope) = self.caching(kind, &current, principal);
        Ok(Page { entries, next_cursor, ttl, scope })
    }

    /// One tool as it is listed; `None` where `principal` does not see it.
    #[must_use]
    pub fn listed_tool(&self, principal: &Principal, exposed: &str) -> Option<Bytes> {
        let current = self.current.load();
        let snapshot = current.at(principal);
        let (index, entry) = snapshot.find(ListKind::Tools, exposed)?;
        snapshot.view(ListKind::Tools, principal)?.shows(index).then(|| entry.text().clone())
    }

    /// The least time that all parts may be taken for fresh, and whether one of them, or a policy, makes the
    /// whole private. A part that does not say how long, or is not there yet, makes it zero.
    fn caching(&self, kind: ListKind, current: &Current, principal: &Principal) -> (Duration, CacheScope) {
        let offers = || self.offers_at(current, principal).map(|(_, offer)| offer);
        let fresh = |offer: &Arc<Offer>| match offer.health {
            Health::Ready | Health::Idle if !offer.lists.kind(kind).is_served => None,
            Health::Ready | Health::Idle => Some(offer.lists.kind(kind).ttl.unwrap_or_default()),
            Health::Connecting | Health::Down { .. } => Some(Duration::ZERO),
        };
        let ttl = offers().filter_map(fresh).min().unwrap_or_default();
        let is_private = !self.is_one_for_all() || offers().any(|offer| offer.lists.kind(kind).is_private);
        (ttl, if is_private { CacheScope::Private } else { CacheScope::Public })
    }

    /// Whether everybody is the same client, who may see everything.
    pub(super) fn is_one_for_all(&self) -> bool {
        let mut clients = self.config.clients_there();
        match (clients.next(), clients.next()) {
            (Some((_, only)), None) => only.is_anonymous && only.is_open(),
            _ => false,
        }
    }

    /// Whether anything is there, at the endpoint of `principal`, that a method is for: its capability is promised.
    #[must_use]
    pub fn serves(&self, principal: &Principal, method: Method) -> bool {
        let current = self.current.load();
        let offers = self.offers_at(&current, principal);
        let mut declared = offers.filter_map(|(_, offer)| offer.capabilities.as_ref());
        let is_foreign = |known: &extension::Extension| !extension::is_known(&known.id);
        match method.capability() {
            _ if method == Method::Extension => {
                declared.any(|capabilities| extension::declared(capabilities).iter().any(is_foreign))
            }
            _ if matches!(method, Method::ResourcesSubscribe | Method::ResourcesUnsubscribe) => {
                declared.any(tells_of_resources)
            }
            None | Some("tools") => true,
            Some(capability) => declared.any(|capabilities| has_capability(capabilities, capability)),
        }
    }

    /// The instructions of the endpoint or the configuration, and of the upstreams of which `principal` sees something,
    /// each under its upstream's name (a single one without). At most 4 KiB an upstream and 32 KiB in all;
    /// what is cut ends with `…`.
    #[must_use]
    pub fn instructions(&self, principal: &Principal) -> Option<String> {
        let current = self.current.load();
        let parts = self.offers_at(&current, principal);
        let parts = parts.filter(|(upstream, _)| self.sees(&current, principal, upstream.index));
        let parts =
            parts.filter_map(|(upstream, offer)| Some((&upstream.name, offer.instructions.as_deref()?)));
        let own = self.config.endpoints.get(principal.endpoint).and_then(|own| own.instructions.as_ref());
        let mut all = own.or(self.config.instructions.as_ref()).cloned().unwrap_or_default();
        let is_single = self.offers_at(&current, principal).count() == 1;
        for (name, text) in parts.filter(|(_, text)| !text.trim().is_empty()) {
            let gap = if all.is_empty() { "" } else { "\n\n" };
            let text = clip(text, INSTRUCTIONS_EACH);
            let _infallible = match is_single {
                true => write!(all, "{gap}{text}"),
                false => write!(all, "{gap}## {name}\n{text}"),
            };
        }
        (!all.is_empty()).then(|| clip(&all, INSTRUCTIONS_ALL))
    }

    /// What each upstream offers now, in the order of the configuration: that which the lists are made of.
    #[must_use]
    pub fn offers(&self) -> Vec<(Arc<str>, Arc<Offer>)> {
        let current = self.current.load();
        let there = self.config.upstreams_in_order();
        let named = there.filter_map(|upstream| Some((upstream, current.offers.get(upstream.index)?)));
        named.map(|(upstream, offer)| (Arc::clone(&upstream.name), Arc::clone(offer))).collect()
    }
}

fn clip(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => {
            let end = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
            format!("{}…", text.get(..end).unwrap_or_default())
        }
    }
}
