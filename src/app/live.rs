//! What runs for one configuration, and how that of the next takes its place: all or nothing, and what has not changed
//! goes on.
//!
//! Must not know: why the configuration is read again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use super::Tasks;
use crate::admin::{Reload, Upstreams};
use crate::config::{self, Config, Loaded};
use crate::downstream::Face;
use crate::gateway::Gateway;
use crate::telemetry::{Audit, ConfigApplied, ConfigRefused, ConfigUnchanged, ConfigWarning, Metrics};
use crate::upstream::{Connector, Fleet, Turnover};

/// How long a file may take to be read.
const READING: Duration = Duration::from_secs(30);

/// How long after its end something may still be counted of an upstream.
const LAST_COUNTS: Duration = Duration::from_secs(1);

/// The gateway that runs, whatever its configuration is.
pub(super) struct Live {
    metrics: Arc<Metrics>,
    gateway: ArcSwap<Gateway>,
    face: Arc<Face>,
    background: Arc<Tasks>,
    generation: Mutex<Generation>,
    last: Mutex<Option<Reload>>,
}

/// What is there once for each configuration.
struct Generation {
    fleet: Fleet,
    /// Ends what keeps the lists of the gateway true.
    stop: CancellationToken,
}

impl Live {
    /// Starts the gateway of a configuration: its upstreams, and what serves clients until `closing`.
    ///
    /// # Errors
    /// If the system has no randomness, or the audit log cannot be written.
    pub(super) fn start(
        config: Arc<Config>,
        background: &Arc<Tasks>,
        closing: CancellationToken,
    ) -> anyhow::Result<Arc<Self>> {
        let audit = config.audit.as_ref().map(Audit::open).transpose();
        let audit = audit.context("the file of `audit` cannot be written")?;
        let metrics = Arc::new(Metrics::new(&config));
        let fleet = Fleet::start(&config, &metrics);
        let gateway = Gateway::audited((config, Arc::clone(&metrics), audit), fleet.ports());
        let stop = background.stop.child_token();
        background.spawn(Arc::clone(&gateway).refresh(stop.clone()));
        Ok(Arc::new(Self {
            metrics,
            face: Face::new(Arc::clone(&gateway), closing)?,
            gateway: ArcSwap::new(gateway),
            background: Arc::clone(background),
            generation: Mutex::new(Generation { fleet, stop }),
            last: Mutex::default(),
        }))
    }

    /// The gateway as it is now.
    pub(super) fn gateway(&self) -> Arc<Gateway> {
        self.gateway.load_full()
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(self.gateway.load().config())
    }

    /// What serves clients.
    pub(super) fn face(&self) -> &Arc<Face> {
        &self.face
    }

    /// Counts everything.
    pub(super) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What came of reading the configuration last; `None` if it was read at the start only.
    pub(super) fn last(&self) -> Option<Reload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends all upstreams in good order.
    pub(super) async fn stop(&self) {
        let fleet = {
            let mut generation = self.generation();
            generation.stop.cancel();
            std::mem::take(&mut generation.fleet)
        };
        fleet.stop().await;
    }

    /// Reads the file again and takes up what it says. If anything is wrong with it, nothing changes. Not to be called
    /// twice at the same time.
    pub(super) async fn reload(self: &Arc<Self>, cause: &'static str) -> Reload {
        let began = Instant::now();
        let path = PathBuf::from(&*self.config().file);
        let reading = tokio::task::spawn_blocking(move || config::load(&path, &config::process_env));
        let outcome = match tokio::time::timeout(READING, reading).await {
            Ok(Ok(Ok(loaded))) => self.take_up(loaded, cause, began),
            Ok(Ok(Err(problems))) => Err(problems.to_string()),
            Ok(Err(_)) => Err("it could not be read".to_owned()),
            Err(_) => Err(format!("it could not be read within {} s", READING.as_secs())),
        };
        let reload = outcome.unwrap_or_else(|reason| {
            ConfigRefused { cause, reason: &reason }.emit(&self.metrics);
            Reload::refused(cause, reason)
        });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload.clone());
        reload
    }

    fn take_up(
        self: &Arc<Self>,
        loaded: Loaded,
        cause: &'static str,
        began: Instant,
    ) -> Result<Reload, String> {
        let before = self.config();
        if loaded.config.hash == before.hash {
            ConfigUnchanged { cause }.emit(&self.metrics);
            return Ok(Reload::unchanged(cause));
        }
        let (config, kept) = loaded.config.in_place_of(&before).map_err(|error| error.to_string())?;
        let config = Arc::new(config);
        for warning in &loaded.warnings {
            ConfigWarning { reason: &warning.to_string() }.emit();
        }
        let turnover = self.turn_over(&before, &config);
        ConfigApplied {
            cause,
            hash: &config.hash,
            started: &turnover.started,
            replaced: &turnover.replaced,
            ended: &turnover.ended,
            kept: &kept,
            took: began.elapsed(),
        }
        .emit(&self.metrics);
        let upstreams = Upstreams {
            started: turnover.started.clone(),
            replaced: turnover.replaced.clone(),
            ended: turnover.ended.clone(),
        };
        self.retire(turnover, config.drain_timeout);
        Ok(Reload::applied(cause, upstreams, &kept))
    }

    /// Puts the gateway of `config` in the place of the one that runs.
    fn turn_over(&self, before: &Config, config: &Arc<Config>) -> Turnover {
        let mut generation = self.generation();
        self.metrics.renew(before, config);
        let (fleet, turnover) = generation.fleet.succeed(before, config);
        let next = self.gateway.load().succeed(Arc::clone(config), fleet.ports());
        self.face.renew(Arc::clone(&next));
        self.gateway.store(Arc::clone(&next));
        let stop = self.background.stop.child_token();
        self.background.spawn(next.refresh(stop.clone()));
        std::mem::replace(&mut *generation, Generation { fleet, stop }).stop.cancel();
        turnover
    }

    /// Lets the calls of upstreams end that are no more, or another one now, and forgets those that are no more.
    fn retire(self: &Arc<Self>, turnover: Turnover, patience: Duration) {
        let live = Arc::clone(self);
        let stop = self.background.stop.clone();
        self.background.spawn(async move {
            let ends = turnover.retired.iter().map(|connector| end(connector, patience, &stop));
            futures_util::future::join_all(ends).await;
            // The last calls are being counted.
            let _stopped = stop.run_until_cancelled(tokio::time::sleep(LAST_COUNTS)).await;
            let config = live.config();
            let is_back = |name: &str| config.upstreams_in_order().any(|upstream| &*upstream.name == name);
            let gone = turnover.ended.iter().filter(|name| !is_back(name));
            gone.for_each(|name| live.metrics.forget_upstream(name));
        });
    }

    fn generation(&self) -> MutexGuard<'_, Generation> {
        self.generation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the calls of a connection end, unless the gateway stops.
async fn end(connector: &Connector, patience: Duration, stop: &CancellationToken) {
    if stop.run_until_cancelled(connector.retire(patience)).await.is_none() {
        connector.stop().await;
    }
}
