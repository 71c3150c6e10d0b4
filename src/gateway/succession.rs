//! One gateway in the place of another: a configuration was read again. Calls under way stay with the gateway that
//! they began with; whoever stays longer asks for the newest.
//!
//! Must not know: what was read, and when.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::feed::Feed;
use super::following::Places;
use super::task_list::OwnTasks;
use super::tasks::TaskIds;
use super::{CallGuards, Gateway, Upstream, breakers};
use crate::config::{ClientConfig, Config};
use crate::exchange::Principal;
use crate::telemetry::Audit;

/// What one gateway leaves to the next.
pub(super) struct Lineage {
    pub(super) task_ids: TaskIds,
    pub(super) own_tasks: OwnTasks,
    pub(super) feed: Feed,
    /// Places for the resources that clients follow.
    pub(super) places: Places,
    audit: Option<Audit>,
    newest: Mutex<Weak<Gateway>>,
}

impl Lineage {
    pub(super) fn new(config: &Config, audit: Option<Audit>) -> Self {
        Self {
            audit,
            task_ids: TaskIds::new(config),
            own_tasks: OwnTasks::new(config),
            feed: Feed::default(),
            places: Places::new(&config.limits),
            newest: Mutex::default(),
        }
    }

    /// The audit log, if there is one.
    pub(super) fn audit(&self) -> Option<&Audit> {
        self.audit.as_ref()
    }

    /// From now on, this is the newest.
    pub(super) fn begin_with(&self, gateway: &Arc<Gateway>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(gateway);
    }
}

impl Gateway {
    /// The gateway of `config`, which came of [`Config::in_place_of`] that of this one, over `upstreams` by their
    /// places. Limits that are the same go on; a breaker does where its upstream is the same. It serves what the
    /// upstreams offer from the first moment on, and is the [`newest`](Self::newest).
    #[must_use]
    pub fn succeed(&self, config: Arc<Config>, upstreams: Vec<Arc<dyn Upstream>>) -> Arc<Self> {
        let guards = CallGuards::in_place_of(&config, &self.guards);
        let breakers = breakers(&config, |place| {
            let is_same = Arc::ptr_eq(self.upstreams.get(place)?, upstreams.get(place)?)
                && self.config.upstreams.get(place)?.resilience.breaker
                    == config.upstreams.get(place)?.resilience.breaker;
            self.breakers.get(place).filter(|_| is_same).cloned()
        });
        let heritage = (config, Arc::clone(&self.metrics), Arc::clone(&self.lineage));
        let next = Self::build(heritage, upstreams, (guards, breakers));
        next.take_stock();
        self.lineage.begin_with(&next);
        self.lineage.feed.beat();
        next
    }

    /// The latest gateway in the place of this one; itself if there is none.
    #[must_use]
    pub fn newest(self: &Arc<Self>) -> Arc<Self> {
        let newest = self.lineage.newest.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        newest.unwrap_or_else(|| Arc::clone(self))
    }

    /// Whether a caller that came in with these credentials would still be let in as `principal`.
    #[must_use]
    pub fn still_knows(&self, principal: &Principal, credentials: &Credentials) -> bool {
        let client = self.config.clients.get(principal.client).filter(|client| !client.name.is_empty());
        let endpoint = self.config.endpoints.get(principal.endpoint);
        endpoint.is_some_and(|endpoint| !endpoint.path.is_empty())
            && client.is_some_and(|client| credentials.0.as_ref().is_none_or(|known| known.is_of(client)))
    }

    /// What the client of `principal` is known by now.
    #[must_use]
    pub fn credentials(&self, principal: &Principal) -> Credentials {
        self.credentials.get(principal.client).cloned().unwrap_or_default()
    }
}

/// What each client of a configuration is known by.
pub(super) fn credentials(config: &Config) -> Vec<Credentials> {
    config.clients.iter().map(|client| Credentials(Some(Arc::new(Known::of(client))))).collect()
}

/// What a client was known by when it came in. The default stands for whom nobody asked: the one that launched us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials(Option<Arc<Known>>);

#[derive(Debug, PartialEq, Eq)]
struct Known {
    tokens: Vec<[u8; 32]>,
    certificates: Vec<String>,
    is_anonymous: bool,
}

impl Known {
    fn of(client: &ClientConfig) -> Self {
        Self {
            tokens: client.tokens.iter().map(|token| token.digest).collect(),
            certificates: client.certificates.clone(),
            is_anonymous: client.is_anonymous,
        }
    }

    /// Whether all of it is good for the client still.
    fn is_of(&self, client: &ClientConfig) -> bool {
        self.is_anonymous == client.is_anonymous
            && self.tokens.iter().all(|known| client.tokens.iter().any(|token| token.digest == *known))
            && self.certificates.iter().all(|known| client.certificates.contains(known))
    }
}
