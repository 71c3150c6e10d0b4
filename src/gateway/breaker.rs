//! The breaker of an upstream: after so many failures in a row it is not called for a while, and then once, to
//! see.
//!
//! Must not know: how calls are carried, who told of their end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Breaker as Settings;

/// How a call ended, as far as the breaker minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The upstream answered, whatever it said.
    Answered,
    /// It was called, and did not answer.
    Failed,
}

/// What became of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It opened: nothing is let through.
    Opened,
    /// It closed: everything is let through.
    Closed,
}

/// The breaker of one upstream.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: Settings,
    circuit: Mutex<Circuit>,
}

/// What a call is to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// One of many.
    Plain,
    /// The one that is let through to see.
    Probe,
}

/// Its state. Pure: the time comes with each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    /// Everything is let through; so many failed in a row.
    Closed(u32),
    /// Nothing is let through until then; after that one call is.
    Open(Instant),
    /// The one call is under way.
    Probing,
}

/// The right to one call. Dropped without a verdict, it says nothing about the upstream.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    role: Role,
    is_told: bool,
}

impl Breaker {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, circuit: Mutex::new(Circuit::Closed(0)) }
    }

    /// Whether a call may go to the upstream.
    ///
    /// # Errors
    /// How long it makes no sense to try again.
    pub(super) fn admit(&self, now: Instant) -> Result<Pass<'_>, Duration> {
        let mut circuit = self.circuit();
        let role = match *circuit {
            Circuit::Closed(_) => Role::Plain,
            Circuit::Open(until) if now < until => return Err(until - now),
            Circuit::Open(_) => {
                *circuit = Circuit::Probing;
                Role::Probe
            }
            Circuit::Probing => return Err(PROBE_WAIT),
        };
        Ok(Pass { breaker: self, role, is_told: false })
    }

    /// How many failures in a row open it.
    pub(super) fn threshold(&self) -> u32 {
        self.settings.failures
    }

    /// How long nothing is let through.
    pub(super) fn open_for(&self) -> Duration {
        self.settings.open
    }

    fn tell(&self, role: Role, verdict: Option<Verdict>, now: Instant) -> Option<Turn> {
        let mut circuit = self.circuit();
        let (next, turn) = circuit.after(role, verdict, now, &self.settings);
        *circuit = next;
        turn
    }

    fn circuit(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When to try again while the one call is under way.
const PROBE_WAIT: Duration = Duration::from_secs(1);

impl Circuit {
    /// The state after a call ended. What was let through before the breaker opened decides nothing any more:
    /// it was sent to the upstream as it was then.
    fn after(
        self,
        role: Role,
        verdict: Option<Verdict>,
        now: Instant,
        settings: &Settings,
    ) -> (Self, Option<Turn>) {
        match (self, verdict) {
            (Self::Closed(_), Some(Verdict::Answered)) => (Self::Closed(0), None),
            (Self::Closed(failures), Some(Verdict::Failed)) => {
                let failures = failures.saturating_add(1);
                match settings.failures != 0 && failures >= settings.failures {
                    true => (Self::Open(now + settings.open), Some(Turn::Opened)),
                    false => (Self::Closed(failures), None),
                }
            }
            (Self::Probing, Some(Verdict::Answered)) if role == Role::Probe => {
                (Self::Closed(0), Some(Turn::Closed))
            }
            (Self::Probing, Some(Verdict::Failed)) if role == Role::Probe => {
                (Self::Open(now + settings.open), Some(Turn::Opened))
            }
            // Its caller went away: the next call is the one to see.
            (Self::Probing, None) if role == Role::Probe => (Self::Open(now), None),
            (state @ (Self::Closed(_) | Self::Open(_) | Self::Probing), _) => (state, None),
        }
    }
}

impl Pass<'_> {
    /// Says how the call ended, and hears what becomes of the breaker.
    pub(super) fn tell(mut self, verdict: Option<Verdict>, now: Instant) -> Option<Turn> {
        self.is_told = true;
        self.breaker.tell(self.role, verdict, now)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            self.breaker.tell(self.role, None, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPEN: Duration = Duration::from_secs(10);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(Settings { failures, open: OPEN })
    }

    fn fail(breaker: &Breaker, now: Instant) -> Option<Turn> {
        breaker.admit(now).unwrap().tell(Some(Verdict::Failed), now)
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_answer_closes_it() {
        let (breaker, now) = (breaker(3), Instant::now());
        assert_eq!([fail(&breaker, now), fail(&breaker, now)], [None, None]);
        breaker.admit(now).unwrap().tell(Some(Verdict::Answered), now);
        assert_eq!([fail(&breaker, now), fail(&breaker, now)], [None, None], "counted anew");
        assert_eq!(fail(&breaker, now), Some(Turn::Opened));
        assert_eq!(breaker.admit(now).unwrap_err(), OPEN);
        let later = now + OPEN;
        let probe = breaker.admit(later).unwrap();
        assert_eq!(breaker.admit(later).unwrap_err(), PROBE_WAIT, "one at a time");
        assert_eq!(probe.tell(Some(Verdict::Answered), later), Some(Turn::Closed));
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn a_probe_that_fails_opens_it_again_and_one_whose_caller_goes_decides_nothing() {
        let (breaker, now) = (breaker(1), Instant::now());
        assert_eq!(fail(&breaker, now), Some(Turn::Opened));
        assert_eq!(fail(&breaker, now + OPEN), Some(Turn::Opened));
        assert!(breaker.admit(now + OPEN).is_err());
        drop(breaker.admit(now + OPEN * 2).unwrap());
        let next = Instant::now().max(now + OPEN * 2);
        assert!(breaker.admit(next).is_ok(), "the next call is the probe");
    }

    #[test]
    fn without_a_number_of_failures_it_never_opens() {
        let (breaker, now) = (breaker(0), Instant::now());
        assert!((0..1_000).all(|_| fail(&breaker, now).is_none()));
    }

    /// What may happen: time passes, a call is tried, the oldest or the youngest call ends.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Wait(u64),
        Call,
        End(bool, Option<Verdict>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let verdict = prop_oneof![Just(None), Just(Some(Verdict::Answered)), Just(Some(Verdict::Failed))];
        prop_oneof![
            (0_u64..15).prop_map(Step::Wait),
            Just(Step::Call),
            (any::<bool>(), verdict).prop_map(|(oldest, verdict)| Step::End(oldest, verdict)),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_it_lets_one_probe_through_and_never_sticks(steps in prop::collection::vec(step(), 0..200)) {
            let breaker = breaker(3);
            let mut now = Instant::now() + Duration::from_secs(3_600);
            let mut passes: Vec<Pass<'_>> = Vec::new();
            let mut is_open = false;
            for step in steps {
                match step {
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                    Step::Call => match breaker.admit(now) {
                        Ok(pass) => {
                            prop_assert_eq!(pass.role == Role::Probe, is_open, "only a probe passes an open breaker");
                            prop_assert!(!(pass.role == Role::Probe) || passes.iter().all(|pass| !(pass.role == Role::Probe)));
                            passes.push(pass);
                        }
                        Err(wait) => prop_assert!(is_open && wait <= OPEN.max(PROBE_WAIT)),
                    },
                    Step::End(oldest, verdict) if !passes.is_empty() => {
                        let at = if oldest { 0 } else { passes.len() - 1 };
                        match passes.remove(at).tell(verdict, now) {
                            Some(Turn::Opened) => is_open = true,
                            Some(Turn::Closed) => is_open = false,
                            None => {}
                        }
                    }
                    Step::End(..) => {}
                }
            }
            // However it stands: once all calls have ended, and time has passed, one answer closes it.
            while let Some(pass) = passes.pop() {
                pass.tell(None, now);
            }
            now += OPEN;
            breaker.admit(now).unwrap().tell(Some(Verdict::Answered), now);
            prop_assert_eq!(*breaker.circuit(), Circuit::Closed(0));
        }
    }
}
