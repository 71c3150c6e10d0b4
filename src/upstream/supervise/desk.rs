//! Where the supervisor of an upstream and its callers meet: what is offered, and the connection that calls
//! go to, or why there is none.
//!
//! Must not know: when a connection is made or ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use crate::gateway::{Health, Offer};
use crate::upstream::connection::Connection;
use crate::upstream::failure::Failure;
use crate::upstream::pool::Checkout;
use crate::upstream::usage::Usage;

/// How long a call waits for a connection that is on its way.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits where the last attempts have failed.
const LITTLE_PATIENCE: Duration = Duration::from_secs(1);

/// What callers see of an upstream.
#[derive(Debug)]
pub(in crate::upstream) struct Desk {
    state: watch::Sender<State>,
    offer: watch::Sender<Arc<Offer>>,
    wake: Notify,
    /// Who uses the connection; where it is never ended for want of use, nobody needs to know.
    usage: Option<Arc<Usage>>,
}

/// Where an upstream stands.
#[derive(Clone, Debug)]
pub(in crate::upstream) enum State {
    /// An attempt is on its way; the last one failed with this.
    Connecting(Option<Arc<Outage>>),
    /// Calls can go to it.
    Ready(Arc<Connection>),
    /// The next attempt is not due yet.
    Down(Arc<Outage>),
    /// Its process was ended because nobody used it.
    Idle,
    /// Its process is started because somebody wants to use it.
    Waking,
    /// It will not come back.
    Stopped,
}

/// Why an upstream is down, and until when.
#[derive(Debug)]
pub(in crate::upstream) struct Outage {
    /// What went wrong.
    pub(in crate::upstream) failure: Failure,
    /// Since when it is down.
    pub(in crate::upstream) since: Instant,
    /// When the next attempt is due.
    pub(in crate::upstream) retry_at: Instant,
    /// From when on a call may bring it forward.
    pub(in crate::upstream) may_wake_at: Instant,
    /// How many attempts in a row failed.
    pub(in crate::upstream) failures: u32,
}

impl State {
    fn is_asleep(&self) -> bool {
        matches!(self, Self::Idle | Self::Waking)
    }
}

impl Outage {
    /// What a call gets.
    fn failure(&self) -> Failure {
        self.failure.of_unsent(self.retry_at.saturating_duration_since(Instant::now()))
    }

    fn patience(&self) -> Duration {
        if self.failures > 1 { LITTLE_PATIENCE } else { PATIENCE }
    }
}

impl Desk {
    /// A desk with an attempt on its way; until that has succeeded, it offers what one in its place did. `usage` is for
    /// an upstream whose process may be ended because nobody uses it.
    pub(in crate::upstream) fn new(usage: Option<Arc<Usage>>, before: Option<Offer>) -> Self {
        let offer = Offer { health: Health::Connecting, connects: 0, ..before.unwrap_or_default() };
        Self {
            state: watch::Sender::new(State::Connecting(None)),
            offer: watch::Sender::new(Arc::new(offer)),
            wake: Notify::new(),
            usage,
        }
    }

    /// What is offered.
    pub(in crate::upstream) fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    /// The connection to call on. Waits a little for one that is on its way, and has one tried where that is
    /// possible; waits for a process that is started for its callers for as long as that takes; but never longer than
    /// until `deadline`. No process is ended for want of use meanwhile, and as long as what is given out lives.
    ///
    /// # Errors
    /// Why there is none, and when it makes sense to try again.
    pub(in crate::upstream) async fn checkout(&self, deadline: Instant) -> Result<Checkout, Failure> {
        // Before the state is looked at: see `rest`.
        let in_use = self.usage.as_ref().map(Usage::enter);
        let mut states = self.state.subscribe();
        let state = states.borrow_and_update().clone();
        let outage = match state {
            State::Ready(connection) => return Ok(Checkout::shared(connection, in_use)),
            State::Stopped => return Err(stopped()),
            State::Connecting(outage) => outage,
            State::Idle | State::Waking => {
                if matches!(state, State::Idle) {
                    self.wake.notify_one();
                }
                let awake = timeout_at(deadline, states.wait_for(|state| !state.is_asleep())).await;
                return match awake.ok().and_then(Result::ok).map(|state| state.clone()) {
                    Some(State::Ready(connection)) => Ok(Checkout::shared(connection, in_use)),
                    Some(State::Down(outage)) => Err(outage.failure()),
                    Some(State::Stopped) => Err(stopped()),
                    Some(State::Connecting(_) | State::Idle | State::Waking) | None => {
                        Err(Failure::unavailable("its process is still starting")
                            .retry_after(Some(LITTLE_PATIENCE)))
                    }
                };
            }
            State::Down(outage) => {
                if Instant::now() < outage.may_wake_at {
                    return Err(outage.failure());
                }
                self.wake.notify_one();
                Some(outage)
            }
        };
        let patience = outage.as_ref().map_or(PATIENCE, |outage| outage.patience());
        let is_news = |state: &State| match state {
            State::Ready(_) | State::Stopped => true,
            State::Connecting(_) | State::Idle | State::Waking => false,
            State::Down(now) => outage.as_ref().is_none_or(|before| !Arc::ptr_eq(before, now)),
        };
        let end = deadline.min(Instant::now() + patience);
        let news = timeout_at(end, states.wait_for(is_news))
            .await
            .ok()
            .and_then(Result::ok)
            .map(|state| state.clone());
        match news {
            Some(State::Ready(connection)) => Ok(Checkout::shared(connection, in_use)),
            Some(State::Down(outage)) => Err(outage.failure()),
            Some(State::Stopped) => Err(stopped()),
            Some(State::Connecting(_) | State::Idle | State::Waking) | None => {
                let failure = Failure::unavailable("it is still connecting");
                Err(failure.retry_after(Some(LITTLE_PATIENCE)))
            }
        }
    }

    /// Waits until a call wants an attempt.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// An attempt begins.
    pub(super) fn begin_attempt(&self) {
        self.state.send_modify(|state| {
            *state = match state {
                State::Down(outage) => State::Connecting(Some(Arc::clone(outage))),
                State::Idle => State::Waking,
                State::Connecting(_) | State::Ready(_) | State::Stopped | State::Waking => {
                    State::Connecting(None)
                }
            };
        });
    }

    /// Since when nobody uses the connection; `None` where that does not matter.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.usage.as_ref().map(|usage| usage.idle_since())
    }

    /// Nobody can call on the connection any more until it is made anew, if nobody uses it now; says whether. Who
    /// enters later sees that, and who has seen that it is ready has entered before.
    pub(super) fn rest(&self) -> bool {
        use futures_util::FutureExt;
        let is_idle = || self.usage.as_ref().is_some_and(|usage| usage.is_idle());
        self.state.send_if_modified(|state| {
            let rests = is_idle();
            if rests {
                let _old_wish = self.wake.notified().now_or_never();
                *state = State::Idle;
            }
            rests
        })
    }

    /// Whether its process was ended because nobody used it, and nobody has asked for it since.
    pub(in crate::upstream) fn is_idle(&self) -> bool {
        matches!(*self.state.borrow(), State::Idle)
    }

    /// Calls can go to this connection.
    pub(super) fn open(&self, connection: &Arc<Connection>) {
        self.state.send_replace(State::Ready(Arc::clone(connection)));
    }

    /// Calls can go nowhere for a while. Wishes for an attempt that were made before are forgotten.
    pub(super) fn report(&self, outage: Outage) {
        use futures_util::FutureExt;
        let _old_wish = self.wake.notified().now_or_never();
        self.state.send_replace(State::Down(Arc::new(outage)));
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        self.state.send_replace(State::Stopped);
    }

    /// Publishes a changed offer.
    pub(super) fn change_offer(&self, change: impl FnOnce(&mut Offer)) {
        self.offer.send_modify(|offer| change(Arc::make_mut(offer)));
    }
}

fn stopped() -> Failure {
    Failure::unavailable("it is being stopped")
}

#[cfg(test)]
mod tests;
