//! Limits on calls, per client and per upstream, and the edge limit that guards the gateway itself.
//!
//! A refused call uses nothing up of the limit that refused it.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{GatewayError, GatewayErrorKind};
use crate::config::{CallLimits, Config};
use crate::telemetry::LimitScope;

/// How long to wait for a place among calls in flight, as far as one can say.
const CONCURRENCY_WAIT: Duration = Duration::from_secs(1);

/// Callers that the edge limit tells apart; beyond, all but clients of the configuration share one allowance until
/// idle ones are swept.
const EDGE_CALLERS: usize = 100_000;

/// All limits of a configuration, by the places of clients and upstreams in it.
#[derive(Debug)]
pub(super) struct CallGuards {
    clients: Vec<Guard>,
    upstreams: Vec<Guard>,
    edge: Option<Edge>,
}

/// The right to one call in flight; ends with it.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(super) struct Permit {
    _places: [Option<OwnedSemaphorePermit>; 2],
}

#[derive(Debug)]
struct Guard {
    /// Whom it guards, in the words of a refusal.
    subject: String,
    rate: Option<DefaultDirectRateLimiter>,
    places: Option<Arc<Semaphore>>,
    limits: CallLimits,
}

impl CallGuards {
    pub(super) fn new(config: &Config) -> Self {
        let client = |name: &str| format!("the limit of client {name:?}");
        let upstream = |name: &str| format!("the limit of upstream {name:?}");
        Self {
            clients: config.clients.iter().map(|c| Guard::new(client(&c.name), &c.limits)).collect(),
            upstreams: config.upstreams.iter().map(|u| Guard::new(upstream(&u.name), &u.limits)).collect(),
            edge: config.limits.edge.as_ref().and_then(Edge::new),
        }
    }

    /// Takes one call of `client` to `upstream`. The client's own limit is asked first, so that a client
    /// over its limit takes nothing from the others.
    ///
    /// # Errors
    /// `RateLimited` with the wait, and whose limit it was.
    pub(super) fn admit(&self, client: usize, upstream: usize) -> Result<Permit, (LimitScope, GatewayError)> {
        let guards = [
            (LimitScope::Client, self.clients.get(client)),
            (LimitScope::Upstream, self.upstreams.get(upstream)),
        ];
        let mut places = [None, None];
        for (place, (scope, guard)) in places.iter_mut().zip(guards) {
            if let Some(guard) = guard {
                *place = guard.place().map_err(|error| (scope, error))?;
            }
        }
        for (scope, guard) in guards {
            guard.map_or(Ok(()), Guard::count).map_err(|error| (scope, error))?;
        }
        Ok(Permit { _places: places })
    }

    /// Counts one request at the edge.
    ///
    /// # Errors
    /// `EdgeLimited` with the wait.
    pub(super) fn admit_edge(&self, caller: &EdgeCaller) -> Result<(), GatewayError> {
        self.edge.as_ref().map_or(Ok(()), |edge| edge.count(caller))
    }

    /// How many callers the edge limit tells apart now.
    pub(super) fn edge_callers(&self) -> usize {
        self.edge.as_ref().map_or(0, |edge| edge.callers.len())
    }

    /// Forgets callers at the edge whose allowance is whole again. To be called about once a minute.
    pub(super) fn sweep(&self) {
        if let Some(edge) = &self.edge {
            edge.callers.retain_recent();
            edge.callers.shrink_to_fit();
        }
    }
}

impl Guard {
    fn new(subject: String, limits: &CallLimits) -> Self {
        Self {
            subject,
            rate: quota(limits).map(RateLimiter::direct),
            places: limits.concurrency.map(|count| Arc::new(Semaphore::new(count as usize))),
            limits: limits.clone(),
        }
    }

    fn place(&self) -> Result<Option<OwnedSemaphorePermit>, GatewayError> {
        let Some(places) = &self.places else { return Ok(None) };
        Arc::clone(places).try_acquire_owned().map(Some).map_err(|_full| {
            let most = self.limits.concurrency.unwrap_or_default();
            self.refuse(CONCURRENCY_WAIT, &format!("{most} calls at the same time"))
        })
    }

    fn count(&self) -> Result<(), GatewayError> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check().map_err(|early| {
            let limit = self.limits.rate.map(|rate| rate.to_string()).unwrap_or_default();
            self.refuse(early.wait_time_from(DefaultClock::default().now()), &limit)
        })
    }

    fn refuse(&self, wait: Duration, limit: &str) -> GatewayError {
        let text = format!("Rate limited: {} is {limit}; try again in {}", self.subject, in_words(wait));
        GatewayError::new(GatewayErrorKind::RateLimited, text).retry_after(wait)
    }
}

/// Whom the edge limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EdgeCaller {
    /// A client of the configuration, by its place.
    Client(usize),
    /// One of many callers that are one client, by its own name.
    Member(Arc<str>),
    /// An anonymous caller, by its address; IPv6 counts by /64.
    Address(IpAddr),
}

#[derive(Debug)]
struct Edge {
    callers: DefaultKeyedRateLimiter<EdgeCaller>,
    overflow: DefaultDirectRateLimiter,
}

impl Edge {
    fn new(limits: &CallLimits) -> Option<Self> {
        let quota = quota(limits)?;
        Some(Self { callers: RateLimiter::keyed(quota), overflow: RateLimiter::direct(quota) })
    }

    fn count(&self, caller: &EdgeCaller) -> Result<(), GatewayError> {
        let is_named = matches!(caller, EdgeCaller::Client(_));
        let checked = match is_named || self.callers.len() < EDGE_CALLERS {
            true => self.callers.check_key(&network_of(caller)),
            false => self.overflow.check(),
        };
        checked.map_err(|early| {
            let wait = early.wait_time_from(DefaultClock::default().now());
            let text = format!("Too many requests; try again in {}", in_words(wait));
            GatewayError::new(GatewayErrorKind::EdgeLimited, text).retry_after(wait)
        })
    }
}

/// One household has one IPv6 /64, and all addresses in it.
fn network_of(caller: &EdgeCaller) -> EdgeCaller {
    match caller {
        EdgeCaller::Address(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(address) => EdgeCaller::Address(IpAddr::V4(address)),
            None => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                EdgeCaller::Address(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
        },
        EdgeCaller::Address(IpAddr::V4(_)) | EdgeCaller::Client(_) | EdgeCaller::Member(_) => caller.clone(),
    }
}

fn quota(limits: &CallLimits) -> Option<Quota> {
    let rate = limits.rate?;
    let burst = NonZeroU32::new(limits.burst.unwrap_or(rate.count))?;
    let quota = Quota::with_period(rate.period.checked_div(rate.count)?)?;
    Some(quota.allow_burst(burst))
}

fn in_words(wait: Duration) -> String {
    match wait.as_millis() {
        0..1000 => "1 second".to_owned(),
        millis => format!("{} seconds", millis.div_ceil(1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rate;

    fn guard(count: u32, seconds: u64, concurrency: Option<u32>) -> Guard {
        let rate = Some(Rate { count, period: Duration::from_secs(seconds) });
        Guard::new("the limit of x".into(), &CallLimits { rate, burst: None, concurrency })
    }

    fn guards(client: Guard, upstream: Guard) -> CallGuards {
        CallGuards { clients: vec![client], upstreams: vec![upstream], edge: None }
    }

    #[test]
    fn exactly_the_limit_passes_and_a_refusal_names_the_wait() {
        let guards = guards(guard(50, 3600, None), guard(1000, 60, None));
        let passed = (0..200).filter(|_| guards.admit(0, 0).is_ok()).count();
        assert_eq!(passed, 50);
        let (scope, refusal) = guards.admit(0, 0).unwrap_err();
        assert_eq!(scope, LimitScope::Client);
        assert_eq!(refusal.kind, GatewayErrorKind::RateLimited);
        let wait = refusal.retry_after.unwrap();
        assert!(wait > Duration::from_secs(60) && wait <= Duration::from_secs(72), "{wait:?}");
        assert!(refusal.text.contains("seconds"), "{}", refusal.text);
    }

    #[test]
    fn a_client_over_its_limit_takes_nothing_from_the_upstream() {
        let guards = CallGuards {
            clients: vec![guard(1, 3600, None), guard(100, 3600, None)],
            upstreams: vec![guard(5, 3600, None)],
            edge: None,
        };
        let greedy = (0..100).filter(|_| guards.admit(0, 0).is_ok()).count();
        assert_eq!(greedy, 1);
        let other = (0..100).filter(|_| guards.admit(1, 0).is_ok()).count();
        assert_eq!(other, 4);
    }

    #[test]
    fn places_come_back_with_the_permit() {
        let guards = guards(guard(1000, 1, Some(2)), guard(1000, 1, None));
        let (one, _two) = (guards.admit(0, 0).unwrap(), guards.admit(0, 0).unwrap());
        assert_eq!(guards.admit(0, 0).unwrap_err().1.kind, GatewayErrorKind::RateLimited);
        drop(one);
        assert!(guards.admit(0, 0).is_ok());
    }

    #[test]
    fn the_edge_counts_each_caller_by_itself() {
        let rate = Some(Rate { count: 3, period: Duration::from_secs(3600) });
        let edge = Edge::new(&CallLimits { rate, burst: None, concurrency: None }).unwrap();
        let address = |text: &str| EdgeCaller::Address(text.parse().unwrap());
        for _ in 0..3 {
            edge.count(&address("2001:db8::1")).unwrap();
        }
        assert_eq!(edge.count(&address("2001:db8::2")).unwrap_err().kind, GatewayErrorKind::EdgeLimited);
        assert!(edge.count(&address("2001:db8:1::1")).is_ok());
        assert!(edge.count(&EdgeCaller::Client(0)).is_ok());
        for _ in 0..3 {
            edge.count(&address("10.0.0.1")).unwrap();
        }
        assert!(edge.count(&address("::ffff:10.0.0.1")).is_err(), "another spelling of one address");
    }
}
