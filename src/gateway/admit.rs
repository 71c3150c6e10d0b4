//! Access, route, limits, deadline, in that order: the only maker of an [`AdmittedCall`].

use std::sync::Arc;
use std::time::Instant;

use crate::exchange::Call;

/// A call that passed every check. Only this module makes one, so no path to an upstream skips them.
#[derive(Debug)]
pub struct AdmittedCall {
    call: Call,
    target: Target,
    deadline: Instant,
}

/// Where a call goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// The name under which the upstream knows what is called.
    pub native: Arc<str>,
}

impl AdmittedCall {
    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Where it goes.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// When its caller stops waiting.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
impl AdmittedCall {
    /// A call past every check, for tests of what lies behind them.
    pub(crate) fn for_test(call: Call, target: Target, deadline: Instant) -> Self {
        Self { call, target, deadline }
    }
}
