//! Sends an admitted call to its upstream: past the breaker, and once more where the first try was lost and
//! repeating does no harm.
//!
//! Must not know: who may call what, how an upstream is reached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::admit::AdmittedCall;
use super::breaker::{Breaker, Spared, Turn, Turns, Verdict};
use super::{Executed, Gateway, GatewayError, GatewayErrorKind, Target, Upstream};
use crate::config::Retry;
use crate::exchange::{Outcome, Principal};
use crate::mcp::{ListKind, Method};
use crate::telemetry::{BreakerClosed, BreakerOpened, CallRepeated, ToolBreakerClosed, ToolBreakerOpened};

/// How long, and how often, a repeated call waits for its upstream to be back.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const WAITS: u32 = 5;
/// The wait where the upstream does not say how long it takes: its end has not got around yet.
const SOON: Duration = Duration::from_millis(100);

/// The hints of a tool that say that repeating does no harm.
const HARMLESS: [&str; 2] = ["readOnlyHint", "idempotentHint"];

impl Gateway {
    /// Runs `carried`, the whole way of a call to the upstream at `place` (and there to `tool`, if it is a call of
    /// one), if their breakers let it through, and tells them how it ended.
    ///
    /// Cancel safe: a call that is dropped says nothing about its upstream.
    ///
    /// # Errors
    /// That a breaker is open, until when; else those of `carried`.
    pub(super) async fn past_breaker(
        &self,
        place: usize,
        tool: Option<Arc<str>>,
        carried: impl Future<Output = Result<Outcome, GatewayError>>,
    ) -> Result<Outcome, GatewayError> {
        let (Some(breaker), Some(upstream)) = (self.breakers.get(place), self.upstreams.get(place)) else {
            return carried.await;
        };
        let pass = breaker.admit(tool.clone(), Instant::now()).map_err(|spared| {
            let failures = breaker.threshold();
            let (text, wait) = match spared {
                Spared::Upstream(wait) => (
                    format!("it is not called for now: its last {failures} calls or more had no answer"),
                    wait,
                ),
                Spared::Tool(wait) => {
                    let said = "this tool of it is not called for now";
                    (format!("{said}: its last {failures} calls or more did not end in time"), wait)
                }
            };
            GatewayError::upstream(GatewayErrorKind::Unavailable, upstream.name(), text).retry_after(wait)
        })?;
        let result = carried.await;
        let turns = pass.tell(verdict(&result), Instant::now());
        self.tell_turns(upstream.name(), tool.as_deref(), breaker, turns);
        result
    }

    fn tell_turns(&self, upstream: &str, tool: Option<&str>, breaker: &Breaker, turns: Turns) {
        let (failures, open) = (breaker.threshold(), breaker.open_for());
        match turns.upstream {
            Some(Turn::Opened) => BreakerOpened { upstream, failures, open }.emit(&self.metrics),
            Some(Turn::Closed) => BreakerClosed { upstream }.emit(&self.metrics),
            None => {}
        }
        let (Some(turn), Some(tool)) = (turns.tool, tool) else { return };
        let open_tools = turns.open_tools;
        match turn {
            Turn::Opened => {
                ToolBreakerOpened { upstream, tool, failures, open, open_tools }.emit(&self.metrics)
            }
            Turn::Closed => ToolBreakerClosed { upstream, tool, open_tools }.emit(&self.metrics),
        }
    }

    /// Sends a call, and once more if the first was lost, may have been executed, and may be repeated: nothing
    /// of it has reached its client yet, and the configuration or the upstream says that repeating does no harm.
    ///
    /// # Errors
    /// Those of the last try.
    pub(super) async fn send(
        &self,
        upstream: &Arc<dyn Upstream>,
        call: AdmittedCall,
    ) -> Result<Outcome, GatewayError> {
        let config = self.config.upstreams.get(call.target().upstream);
        let retry = config.map_or(Retry::Never, |config| config.resilience.retry);
        if retry == Retry::Never {
            return upstream.call(call).await;
        }
        let (method, events) = (call.call().method, call.call().events.clone());
        let (principal, target) = (call.principal().clone(), call.target().clone());
        let again = call.again();
        match upstream.call(call).await {
            Err(error) if is_lost(&error) && !events.is_used() => {
                if !self.is_harmless(retry, method, (&principal, &target)) {
                    return Err(error);
                }
                CallRepeated { upstream: upstream.name(), reason: &error.text }.emit(&self.metrics);
                repeat(upstream, &again).await
            }
            result => result,
        }
    }

    fn is_harmless(&self, retry: Retry, method: Method, (principal, target): (&Principal, &Target)) -> bool {
        match (retry, method) {
            (Retry::Never, _) => false,
            (
                Retry::Hinted | Retry::Always,
                Method::PromptsGet | Method::ResourcesRead | Method::Complete,
            )
            | (Retry::Always, Method::ToolsCall) => true,
            (Retry::Hinted, Method::ToolsCall) => self.is_hinted(principal, target),
            (Retry::Hinted | Retry::Always, _) => false,
        }
    }

    /// Whether a tool says of itself that it changes nothing, or the same once as twice.
    fn is_hinted(&self, principal: &Principal, target: &Target) -> bool {
        let current = self.current.load();
        let tool = current.at(principal).find_native(ListKind::Tools, target.upstream, &target.native);
        tool.is_some_and(|tool| HARMLESS.iter().any(|hint| tool.hints.says(hint) == Some(true)))
    }
}

/// Sends a call whose first try was lost: once, but for tries that did not reach the upstream because it was not
/// back yet. Of whatever fails now it is unknown whether the first try was executed.
async fn repeat(upstream: &Arc<dyn Upstream>, call: &AdmittedCall) -> Result<Outcome, GatewayError> {
    let mut waits = 0;
    loop {
        let error = match upstream.call(call.again()).await {
            Ok(outcome) => return Ok(outcome),
            Err(error) => error,
        };
        let wait = error.retry_after.unwrap_or(SOON);
        let is_absent = error.kind == GatewayErrorKind::Unavailable && error.executed == Executed::No;
        if !is_absent || wait > LONGEST_WAIT || waits >= WAITS {
            return Err(error.maybe_executed());
        }
        sleep(wait).await;
        waits += 1;
    }
}

/// Whether a call was sent and then lost with its connection.
fn is_lost(error: &GatewayError) -> bool {
    error.kind == GatewayErrorKind::Unavailable && error.executed == Executed::Unknown
}

/// What the end of a call says about its upstream, if it says anything.
fn verdict(result: &Result<Outcome, GatewayError>) -> Option<Verdict> {
    match result {
        Ok(_) => Some(Verdict::Answered),
        Err(error) => match error.kind {
            GatewayErrorKind::Timeout => Some(Verdict::Late),
            GatewayErrorKind::Unavailable | GatewayErrorKind::BadUpstream => {
                (error.executed == Executed::Unknown).then_some(Verdict::Lost)
            }
            GatewayErrorKind::Unknown
            | GatewayErrorKind::Denied
            | GatewayErrorKind::MethodNotFound
            | GatewayErrorKind::MethodDenied
            | GatewayErrorKind::InvalidParams
            | GatewayErrorKind::InvalidArguments
            | GatewayErrorKind::RateLimited
            | GatewayErrorKind::EdgeLimited
            | GatewayErrorKind::UpstreamAuth
            | GatewayErrorKind::Unanswered
            | GatewayErrorKind::Cancelled
            | GatewayErrorKind::Internal => None,
        },
    }
}
