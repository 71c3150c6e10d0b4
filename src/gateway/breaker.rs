//! The breaker of an upstream, and of each of its tools: after so many failures in a row one is not called for a
//! while, and then once, to see.
//!
//! A tool that never ends in time is the trouble of that tool, as long as others answer; a connection that is lost
//! again and again, or silence of several tools, is the trouble of the upstream.
//!
//! Must not know: how calls are carried, who told of their end.

mod circuit;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Breaker as Settings;

use circuit::{Circuit, Role, Sign};

/// How many tools that failed last are remembered of one upstream. Failures of more are those of the upstream.
const MOST_TOOLS: usize = 1_024;

/// How a call ended, as far as the breaker minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The upstream answered, whatever it said.
    Answered,
    /// It was called, and did not answer in time.
    Late,
    /// It was called, and its connection was lost, or it broke the protocol.
    Lost,
}

/// What became of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It opened: nothing is let through.
    Opened,
    /// It closed: everything is let through.
    Closed,
}

/// What became of the breakers with the end of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// Of that of the upstream.
    pub(super) upstream: Option<Turn>,
    /// Of that of the tool that was called.
    pub(super) tool: Option<Turn>,
    /// How many tools are not called now.
    pub(super) open_tools: usize,
}

/// What is not called for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spared {
    /// The upstream, until so much time has passed.
    Upstream(Duration),
    /// Only the tool.
    Tool(Duration),
}

/// The breakers of one upstream and its tools.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: Settings,
    circuits: Mutex<Circuits>,
}

#[derive(Debug, Default)]
struct Circuits {
    whole: Circuit,
    /// Those of tools that have failed since they last answered.
    tools: HashMap<Arc<str>, Circuit>,
}

/// The right to one call. Dropped without a verdict, it says nothing about the upstream.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    tool: Option<Arc<str>>,
    /// What the call is to the breaker of the upstream, and to that of the tool.
    roles: (Role, Role),
    is_told: bool,
}

impl Breaker {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, circuits: Mutex::default() }
    }

    /// Whether a call, of this tool if it is one of a tool, may go to the upstream.
    ///
    /// # Errors
    /// What is not called, and how long it makes no sense to try again.
    pub(super) fn admit(&self, tool: Option<Arc<str>>, now: Instant) -> Result<Pass<'_>, Spared> {
        let mut circuits = self.circuits();
        let circuits = &mut *circuits;
        let mut own = tool.as_ref().and_then(|tool| circuits.tools.get_mut(tool));
        if let Some(wait) = own.as_ref().and_then(|own| own.wait(now)) {
            return Err(Spared::Tool(wait));
        }
        if let Some(wait) = circuits.whole.wait(now) {
            return Err(Spared::Upstream(wait));
        }
        let roles = (circuits.whole.enter(), own.as_mut().map_or(Role::Plain, |own| own.enter()));
        Ok(Pass { breaker: self, tool, roles, is_told: false })
    }

    /// What of it is not called now, this tool if it is asked for one; nobody is let through by asking.
    pub(super) fn spared(&self, tool: Option<&str>, now: Instant) -> Option<Spared> {
        let circuits = self.circuits();
        let own = tool.and_then(|tool| circuits.tools.get(tool)?.wait(now)).map(Spared::Tool);
        own.or_else(|| circuits.whole.wait(now).map(Spared::Upstream))
    }

    /// How many failures in a row open one.
    pub(super) fn threshold(&self) -> u32 {
        self.settings.failures
    }

    /// How long nothing is let through.
    pub(super) fn open_for(&self) -> Duration {
        self.settings.open
    }

    fn tell(&self, pass: &Pass<'_>, verdict: Option<Verdict>, now: Instant) -> Turns {
        let mut circuits = self.circuits();
        let tool = pass.tool.as_ref().filter(|tool| circuits.can_hold(tool));
        let (whole_role, tool_role) = pass.roles;
        let sign = match verdict {
            None => Sign::Nothing,
            Some(Verdict::Answered) => Sign::Answered,
            Some(Verdict::Lost) => Sign::Failed(None),
            // Of a tool that is tried again nothing else was to be expected.
            Some(Verdict::Late) if tool_role == Role::Probe && whole_role == Role::Plain => Sign::Nothing,
            Some(Verdict::Late) => Sign::Failed(tool.cloned()),
        };
        let upstream = circuits.whole.take(whole_role, sign, now, &self.settings);
        let turned = tool.and_then(|tool| {
            let sign = match verdict {
                None | Some(Verdict::Lost) => Sign::Nothing,
                Some(Verdict::Answered) => Sign::Answered,
                Some(Verdict::Late) => Sign::Failed(None),
            };
            circuits.tell_tool(tool, tool_role, sign, (now, &self.settings))
        });
        let open_tools = circuits.tools.values().filter(|circuit| !circuit.is_closed()).count();
        Turns { upstream, tool: turned, open_tools }
    }

    fn circuits(&self) -> MutexGuard<'_, Circuits> {
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Circuits {
    fn can_hold(&self, tool: &Arc<str>) -> bool {
        self.tools.len() < MOST_TOOLS || self.tools.contains_key(tool)
    }

    fn tell_tool(
        &mut self,
        tool: &Arc<str>,
        role: Role,
        sign: Sign,
        (now, settings): (Instant, &Settings),
    ) -> Option<Turn> {
        if !matches!(sign, Sign::Failed(_)) && !self.tools.contains_key(tool) {
            return None;
        }
        let circuit = self.tools.entry(Arc::clone(tool)).or_default();
        let turn = circuit.take(role, sign, now, settings);
        if circuit.is_fresh() {
            self.tools.remove(tool);
        }
        turn
    }
}

impl Pass<'_> {
    /// Says how the call ended, and hears what becomes of the breakers.
    pub(super) fn tell(mut self, verdict: Option<Verdict>, now: Instant) -> Turns {
        self.is_told = true;
        self.breaker.tell(&self, verdict, now)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.is_told {
            let _turns = self.breaker.tell(self, None, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
