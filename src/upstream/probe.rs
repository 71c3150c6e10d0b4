//! The fork per server: which era it is of, found out once and remembered until it stops fitting.
//!
//! Spec: 2026-07-28, basic/versioning and basic/transports, "Backward Compatibility".

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

use super::connection::{Connection, Dialect};
use super::credentials::TokenSource;
use super::failure::{Failure, Scope};
use super::legacy::{Handshake, Legacy, NotOpened, shake_hands};
use super::modern::{self, Modern};
use super::outside::{Outside, Patience};
use super::tenancy::Tenancy;
use super::transport::child::Family;
use super::transport::http::{Endpoint, Surroundings};
use super::transport::sse::Stream;
use super::transport::stdio::{self, Pipe};
use super::transport::{Reply, Transport};
use super::unsolicited::{Doubts, Unsolicited};
use super::wire::Wire;
use crate::config::{self, HttpKind, UpstreamConfig};
use crate::gateway::Followed;
use crate::mcp::{Era, ProtocolVersion};
use crate::telemetry::Metrics;
use crate::translate::hello::{Discovery, Hello, NoHandshake, read_discover, write_discover};

/// The longest time that a server may be silent on a probe before it counts as legacy.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
/// How long a server that turned out to be modern late may take to refuse the handshake, too.
const LATE_GRACE: Duration = Duration::from_secs(2);

/// Makes connections to one server.
#[derive(Debug)]
pub(super) struct Dialer {
    config: Arc<UpstreamConfig>,
    message_limit: usize,
    metrics: Arc<Metrics>,
    tasks: TaskTracker,
    memory: Mutex<Memory>,
    doubts: Arc<Doubts>,
    /// For what is asked outside of calls.
    waits: Patience,
    /// The latest way over HTTP that all share.
    shared: Mutex<Option<Endpoint>>,
    followed: Arc<Followed>,
    /// Access tokens of our own, for all connections.
    tokens: Option<Arc<TokenSource>>,
}

/// What earlier connections showed.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    era: Option<Era>,
    /// Its process ended when it was probed: it must not be probed again.
    dies_of_probe: bool,
    /// It speaks HTTP+SSE.
    speaks_sse: bool,
}

/// What a probe showed.
#[derive(Debug)]
enum Verdict {
    Modern(Hello),
    Legacy,
    /// The process is gone.
    Died(Failure),
}

impl Dialer {
    pub(super) fn new(
        config: Arc<UpstreamConfig>,
        message_limit: usize,
        metrics: Arc<Metrics>,
        (waits, followed): (Patience, Arc<Followed>),
    ) -> Self {
        let tasks = waits.tasks.clone();
        let tokens = match &config.transport {
            config::Transport::Http(http) => {
                http.oauth.clone().map(|oauth| Arc::new(TokenSource::new(*oauth)))
            }
            config::Transport::Stdio(_) => None,
        };
        Self {
            config,
            message_limit,
            metrics,
            tasks,
            waits,
            followed,
            tokens,
            doubts: Arc::default(),
            memory: Mutex::default(),
            shared: Mutex::default(),
        }
    }

    /// Connects on behalf of whom the connection is for, finding out the era where it is neither configured nor
    /// remembered. Whoever calls bounds the time. Cancel safe: whatever was opened is closed again.
    ///
    /// # Errors
    /// If the server cannot be reached, or speaks nothing that we do.
    pub(super) async fn connect(&self, tenancy: &Tenancy) -> Result<Connection, Failure> {
        if let config::Transport::Http(http) = &self.config.transport {
            if http.kind == Some(HttpKind::Sse) {
                return self
                    .open_sse((http, tenancy), self.config.connect_timeout)
                    .await
                    .map_err(NotSse::into_failure);
            }
            if self.memory().speaks_sse {
                match self.open_sse((http, tenancy), self.patience()).await {
                    Err(NotSse::NoStream(_)) => *self.memory() = Memory::default(),
                    opened => return opened.map_err(NotSse::into_failure),
                }
            }
        }
        let memory = *self.memory();
        let wire = self.open(tenancy)?;
        match self.config.era.or(memory.era) {
            Some(Era::Legacy) => self.open_legacy(wire).await,
            None if memory.dies_of_probe => self.open_legacy(wire).await,
            Some(Era::Modern) | None => self.probe(wire).await,
        }
    }

    /// Opens the transport.
    fn open(&self, tenancy: &Tenancy) -> Result<Arc<Wire>, Failure> {
        let unsolicited = self.unsolicited(tenancy);
        let transport = match &self.config.transport {
            config::Transport::Stdio(command) => {
                let family =
                    Family { upstream: &self.config.name, metrics: &self.metrics, tasks: &self.tasks };
                let bounds = stdio::Bounds {
                    message: self.message_limit,
                    stream_idle: self.config.resilience.stream_idle,
                    budget: self.metrics.budget().clone(),
                    write_stall: self.config.longest_silence(),
                };
                let (unsolicited, attribution) = (Arc::clone(&unsolicited), tenancy.attribution);
                let surroundings = stdio::Surroundings { unsolicited, attribution, bounds };
                Transport::Stdio(Pipe::open(command, &family, surroundings)?)
            }
            config::Transport::Http(http) => Transport::Http(self.endpoint((http, tenancy), &unsolicited)?),
        };
        Ok(Arc::new(Wire::new(transport, unsolicited, tenancy.clone())))
    }

    fn unsolicited(&self, tenancy: &Tenancy) -> Arc<Unsolicited> {
        let outside = tenancy.session.clone().map(|session| Outside::new(session, self.waits.clone()));
        let about = (Arc::clone(&self.config.name), Arc::clone(&self.metrics));
        Arc::new(Unsolicited::new(about, (Arc::clone(&self.doubts), Arc::clone(&self.followed)), outside))
    }

    /// A way to the server. Own connections use the TCP connections of the one that all share.
    fn endpoint(
        &self,
        (http, tenancy): (&config::Http, &Tenancy),
        unsolicited: &Arc<Unsolicited>,
    ) -> Result<Endpoint, Failure> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = shared.as_ref().filter(|_| tenancy.is_own) {
            return Ok(endpoint.beside(Arc::clone(unsolicited)));
        }
        let surroundings = Surroundings {
            unsolicited: Arc::clone(unsolicited),
            tasks: &self.tasks,
            message_limit: self.message_limit,
            stream_idle: self.config.resilience.stream_idle,
            budget: self.metrics.budget().clone(),
            connect_timeout: self.config.connect_timeout,
            tokens: self.tokens.clone(),
        };
        let endpoint = Endpoint::new(http, surroundings)?;
        if !tenancy.is_own {
            *shared = Some(endpoint.clone());
        }
        Ok(endpoint)
    }

    /// Connects over HTTP+SSE, which only legacy servers speak. The stream begins within `patience`.
    async fn open_sse(
        &self,
        (http, tenancy): (&config::Http, &Tenancy),
        patience: Duration,
    ) -> Result<Connection, NotSse> {
        let unsolicited = self.unsolicited(tenancy);
        let site = self.endpoint((http, tenancy), &unsolicited).map_err(NotSse::Failed)?;
        let opening =
            Box::pin(Stream::open(&site, (Arc::clone(&unsolicited), tenancy.attribution), &self.tasks));
        let stream = match timeout(patience, opening).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(failure)) if has_no_stream(failure.status) => return Err(NotSse::NoStream(failure)),
            Ok(Err(failure)) => return Err(NotSse::Failed(failure)),
            Err(_) => return Err(NotSse::NoStream(Failure::unavailable("it opened no stream in time"))),
        };
        let wire = Arc::new(Wire::new(Transport::Sse(stream), unsolicited, tenancy.clone()));
        match Box::pin(shake_hands(&wire)).await {
            Ok(handshake) => {
                self.memory().speaks_sse = true;
                Ok(self.legacy(wire, handshake))
            }
            Err(error) => Err(NotSse::Failed(self.unfit(error))),
        }
    }

    /// Tries HTTP+SSE at an address that does not take our messages. That it has no such stream either leaves
    /// the first answer as it was.
    async fn fall_back(
        &self,
        (http, tenancy): (&config::Http, &Tenancy),
        error: NotOpened,
    ) -> Result<Connection, Failure> {
        match self.open_sse((http, tenancy), self.patience()).await {
            Ok(connection) => Ok(connection),
            Err(NotSse::Failed(failure)) => Err(failure),
            Err(NotSse::NoStream(_)) => Err(self.unfit(error)),
        }
    }

    /// Asks a server for its era by `server/discover`, and goes on accordingly.
    async fn probe(&self, wire: Arc<Wire>) -> Result<Connection, Failure> {
        let is_pinned = self.config.era == Some(Era::Modern);
        let mut asking = Box::pin(discover(&wire));
        let heard = match is_pinned {
            true => Ok((&mut asking).await),
            false => timeout(self.patience(), &mut asking).await,
        };
        let verdict = match heard {
            Ok(heard) => {
                drop(asking);
                judge(&wire, heard)?
            }
            Err(_) => match self.shake_hands_while(&wire, asking).await {
                // It started slowly, and then died of the probe.
                Err(NotOpened::Failure(failure)) if failure.scope == Scope::Connection && !wire.is_http() => {
                    Verdict::Died(failure)
                }
                opened => return self.settle(wire, opened).await,
            },
        };
        match verdict {
            Verdict::Modern(hello) => Ok(self.modern(wire, hello)),
            Verdict::Legacy if is_pinned => Ok(self.modern(wire, Hello::silent(ProtocolVersion::NEWEST))),
            Verdict::Died(failure) if is_pinned => Err(failure),
            Verdict::Legacy => self.open_legacy(wire).await,
            Verdict::Died(_) => {
                self.memory().dies_of_probe = true;
                self.open_legacy(self.open(&wire.tenancy)?).await
            }
        }
    }

    /// How long silence is waited for.
    fn patience(&self) -> Duration {
        LONGEST_SILENCE.min(self.config.connect_timeout / 3)
    }

    /// Shakes hands with a server that is silent on the probe, and still listens for a late answer to it: a
    /// server that starts slowly is not legacy for that.
    async fn shake_hands_while(
        &self,
        wire: &Wire,
        mut asking: impl Future<Output = Result<Reply, Failure>> + Unpin,
    ) -> Result<Opened, NotOpened> {
        let mut shaking = pin!(shake_hands(wire));
        // Both may be there at once: the probe was asked first.
        let first = tokio::select! {
            biased;
            heard = &mut asking => heard,
            opened = &mut shaking => return opened.map(Opened::Legacy),
        };
        let Ok(Verdict::Modern(hello)) = judge(wire, first) else {
            return shaking.await.map(Opened::Legacy);
        };
        tokio::select! {
            Ok(handshake) = &mut shaking => Ok(Opened::Legacy(handshake)),
            () = sleep(LATE_GRACE) => Ok(Opened::Modern(hello)),
            else => Ok(Opened::Modern(hello)),
        }
    }

    /// Shakes hands with a server that counts as legacy.
    async fn open_legacy(&self, wire: Arc<Wire>) -> Result<Connection, Failure> {
        let opened = Box::pin(shake_hands(&wire)).await.map(Opened::Legacy);
        self.settle(wire, opened).await
    }

    /// Takes over what was opened. A server that refuses the handshake because it is modern is believed.
    async fn settle(
        &self,
        wire: Arc<Wire>,
        opened: Result<Opened, NotOpened>,
    ) -> Result<Connection, Failure> {
        match opened {
            Ok(Opened::Legacy(handshake)) => Ok(self.legacy(wire, handshake)),
            Ok(Opened::Modern(hello)) => Ok(self.modern(wire, hello)),
            Err(NotOpened::Answer(NoHandshake::Modern, _)) if self.config.era.is_none() => {
                match judge(&wire, Box::pin(discover(&wire)).await)? {
                    Verdict::Modern(hello) => Ok(self.modern(wire, hello)),
                    Verdict::Legacy => Err(self.unfit(NotOpened::Answer(NoHandshake::Modern, None))),
                    Verdict::Died(failure) => Err(failure),
                }
            }
            Err(error) => match &self.config.transport {
                config::Transport::Http(http) if http.kind.is_none() && is_unfit(error.status()) => {
                    self.fall_back((http, &wire.tenancy), error).await
                }
                config::Transport::Http(_) | config::Transport::Stdio(_) => Err(self.unfit(error)),
            },
        }
    }

    /// A handshake failed: what was remembered may be wrong.
    fn unfit(&self, error: NotOpened) -> Failure {
        if matches!(error, NotOpened::Answer(..)) {
            *self.memory() = Memory::default();
        }
        error.into_failure()
    }

    fn legacy(&self, wire: Arc<Wire>, handshake: Handshake) -> Connection {
        self.memory().era = Some(Era::Legacy);
        Connection::new(Dialect::Legacy(Legacy::new(wire, handshake, &self.tasks)), self.config.sharing)
    }

    fn modern(&self, wire: Arc<Wire>, hello: Hello) -> Connection {
        *self.memory() = Memory { era: Some(Era::Modern), ..Memory::default() };
        Connection::new(Dialect::Modern(Modern::new(wire, hello, &self.tasks)), self.config.sharing)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server turned out to be while it was shaken hands with.
#[derive(Debug)]
enum Opened {
    Legacy(Handshake),
    Modern(Hello),
}

/// Why there is no connection over HTTP+SSE.
#[derive(Debug)]
enum NotSse {
    /// There is no stream of that kind.
    NoStream(Failure),
    /// There may be one, but it could not be asked, or is of no use.
    Failed(Failure),
}

impl NotSse {
    fn into_failure(self) -> Failure {
        match self {
            Self::NoStream(failure) | Self::Failed(failure) => failure,
        }
    }
}

/// Whether the answer to a GET says that no HTTP+SSE stream is there.
fn has_no_stream(status: Option<u16>) -> bool {
    is_unfit(status) || matches!(status, Some(200..=299))
}

/// Whether a status says that a server does not take what we sent in that way. Refused credentials, limits
/// and trouble say nothing of the kind.
fn is_unfit(status: Option<u16>) -> bool {
    status.is_some_and(|status| matches!(status, 400..=499) && !matches!(status, 401 | 403 | 408 | 425 | 429))
}

async fn discover(wire: &Wire) -> Result<Reply, Failure> {
    let headers = modern::headers(ProtocolVersion::NEWEST, "server/discover", None);
    wire.ask(write_discover, Arc::new(headers)).await
}

/// What an answer to the probe, or its absence, shows.
///
/// # Errors
/// If it shows nothing about the era: no connection, our credentials refused, a server in trouble.
fn judge(wire: &Wire, heard: Result<Reply, Failure>) -> Result<Verdict, Failure> {
    match heard {
        Ok(Reply { status: Some(status @ (429 | 500..)), .. }) => {
            Err(Failure::unavailable(format!("it answered {status}")).with_status(status))
        }
        Ok(reply) => match read_discover(&reply.response) {
            Discovery::Modern(hello) => Ok(Verdict::Modern(hello)),
            Discovery::ModernUnheard => Ok(Verdict::Modern(Hello::silent(ProtocolVersion::NEWEST))),
            Discovery::Legacy => Ok(Verdict::Legacy),
            Discovery::NoCommonVersion(versions) => {
                let failure = Failure::broken("it speaks no protocol version that we know");
                Err(failure.because(versions.join(", ")))
            }
        },
        Err(failure) => match (&wire.transport, failure.status, failure.scope) {
            (Transport::Stdio(_) | Transport::Sse(_), _, Scope::Connection) => Ok(Verdict::Died(failure)),
            (Transport::Http(_), _, Scope::Connection) => Err(failure),
            (Transport::Http(_), Some(300..=399 | 401 | 403 | 429 | 500..), _) => Err(failure),
            (_, _, Scope::Request) => Ok(Verdict::Legacy),
        },
    }
}
