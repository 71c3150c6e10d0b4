//! Wires everything: the order of start and of drain.
//!
//! Start: configuration, sockets, upstreams (in the background), endpoint or pipe. Drain: no new connections or
//! messages, calls in flight end, children end.

mod look;
mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, AdminState, Phase, Readiness};
use crate::config::Config;
use crate::gateway::{Gateway, Question, Upstream};
use crate::telemetry::{Launched, ListenFailed, Listening, Metrics, SignalIgnored, Stopped, Stopping};
use crate::{auth, demo, downstream, upstream};

pub(crate) use look::look;

/// How long the children may take to end, on top of `drain_timeout`.
const CHILDREN_END: Duration = Duration::from_secs(10);

/// Serves the configuration until SIGINT or SIGTERM, then drains. A second signal ends at once.
///
/// # Errors
/// If an address cannot be bound. Upstreams that cannot be reached are no error.
pub(crate) async fn serve(config: Config) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let config = Arc::new(config);
    let mcp = bind("listen", config.listen).await?;
    let admin = optional("admin", config.admin).await?;
    let demo = optional("demo.listen", config.demo).await?;
    let (address, count) = (mcp.local_addr()?, config.upstreams.len());
    upstream::guard::arm();
    let running = Running::start(config, Sockets { admin, demo });
    let stop = running.endpoint.stop.clone();
    running.endpoint.spawn(downstream::serve(mcp, Arc::clone(&running.gateway), stop));
    running.readiness.enter(Phase::Serving);
    Listening { mcp: address, admin: running.admin, upstreams: count }.emit();
    service::is_ready();
    running.run(signals).await;
    Ok(())
}

/// Serves the configuration to the client that launched us, on a pipe, until that ends, SIGINT or SIGTERM; then
/// drains. A second signal ends at once. `client` names the client of the configuration that it is; its first
/// message waits up to `patience` for upstreams that are being connected.
///
/// # Errors
/// If there is no such client. Upstreams that cannot be reached are no error, nor are addresses that are taken:
/// another one that runs from the same file has them.
pub(crate) async fn converse<R, W>(
    config: Config,
    client: Option<&str>,
    pipe: (R, W),
    patience: Duration,
) -> anyhow::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let principal = auth::launched_by(&config, client)?;
    let signals = Signals::new()?;
    let config = Arc::new(config);
    let admin = if_free("admin", config.admin.filter(|_| config.is_admin_named)).await;
    let demo = if_free("demo.listen", config.demo).await;
    let count = config.upstreams.len();
    upstream::guard::arm();
    let running = Running::start(config, Sockets { admin, demo });
    Launched { client: &principal.name, admin: running.admin, upstreams: count }.emit();
    let (gateway, stop) = (Arc::clone(&running.gateway), running.endpoint.stop.clone());
    running.endpoint.spawn(downstream::converse(gateway, principal, pipe, patience, stop));
    running.readiness.enter(Phase::Serving);
    running.run(signals).await;
    Ok(())
}

/// The command of the program that runs [`stand_guard`].
pub(crate) const GUARD: &str = upstream::guard::COMMAND;

/// Waits on stdin for the end of the gateway that started this process, and ends the children that it left.
/// Outlives every signal that asks it to stop.
pub(crate) async fn stand_guard() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let _deaf = kinds.map(signal);
    upstream::guard::stand(tokio::io::stdin()).await;
}

/// The listeners besides that of MCP.
struct Sockets {
    admin: Option<TcpListener>,
    demo: Option<TcpListener>,
}

async fn optional(key: &str, address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => bind(key, address).await.map(Some),
        None => Ok(None),
    }
}

async fn if_free(key: &'static str, address: Option<SocketAddr>) -> Option<TcpListener> {
    let address = address?;
    let bound = TcpListener::bind(address).await;
    bound.inspect_err(|error| ListenFailed { key, address, reason: &error.to_string() }.emit()).ok()
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("`{key}`: cannot listen on {address}"))
}

/// A gateway at work.
struct Running {
    config: Arc<Config>,
    gateway: Arc<Gateway>,
    readiness: Arc<Readiness>,
    /// Where the admin listener is.
    admin: Option<SocketAddr>,
    upstreams: Vec<Arc<upstream::Connector>>,
    /// The endpoint or the pipe, and the calls in it.
    endpoint: Tasks,
    /// What must outlive the endpoint.
    background: Tasks,
}

/// Tasks that are told to stop, and waited for.
#[derive(Default)]
struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    fn spawn<F>(&self, task: F)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(task);
    }

    /// Tells the tasks to stop and waits for them.
    async fn end(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Running {
    /// Starts everything but the face towards clients.
    fn start(config: Arc<Config>, sockets: Sockets) -> Self {
        let metrics = Arc::new(Metrics::new(&config));
        let readiness = Arc::new(Readiness::default());
        let (endpoint, background) = (Tasks::default(), Tasks::default());
        if let Some(socket) = sockets.demo {
            background.spawn(demo::http(socket, background.stop.clone()));
        }
        let upstreams = upstream::start_all(&config, &metrics);
        let ports = upstreams.iter().map(|upstream| Arc::clone(upstream) as Arc<dyn Upstream>).collect();
        let gateway = Gateway::new(Arc::clone(&config), Arc::clone(&metrics), ports);
        background.spawn(Arc::clone(&gateway).refresh(background.stop.clone()));
        let admin = sockets.admin.as_ref().and_then(|socket| socket.local_addr().ok());
        if let Some(socket) = sockets.admin {
            let offers = {
                let gateway = Arc::clone(&gateway);
                move || gateway.offers()
            };
            let explain = {
                let gateway = Arc::clone(&gateway);
                move |client: Option<&str>, question: &Question| match client {
                    Some(client) => gateway.explain(client, question).map(|one| vec![one]),
                    None => Ok(gateway.explain_all(question)),
                }
            };
            let state = AdminState::new(&config, metrics, Arc::clone(&readiness), offers, Box::new(explain));
            background.spawn(admin::serve(socket, Arc::new(state), background.stop.clone()));
        }
        Self { config, gateway, readiness, admin, upstreams, endpoint, background }
    }

    /// Waits for a signal, or for the end of what is served, and drains.
    async fn run(&self, mut signals: Signals) {
        let first = tokio::select! {
            signal = signals.next() => signal,
            () = self.endpoint.stop.cancelled() => "the pipe ended",
        };
        Stopping { signal: first, drain: self.config.drain_timeout }.emit();
        tokio::select! {
            () = self.drain() => {
                upstream::guard::dismiss();
                Stopped { reason: "drained" }.emit();
            }
            second = signals.next() => Stopped { reason: second }.emit(),
        }
    }

    /// Ends calls in flight within `drain_timeout`, then the upstreams, then the rest.
    async fn drain(&self) {
        self.readiness.enter(Phase::Draining);
        service::is_stopping();
        let _timed_out = tokio::time::timeout(self.config.drain_timeout, self.endpoint.end()).await;
        let ends = self.upstreams.iter().map(|upstream| upstream.stop());
        let ends = futures_util::future::join_all(ends);
        let _timed_out = tokio::time::timeout(CHILDREN_END, ends).await;
        let _timed_out = tokio::time::timeout(CHILDREN_END, self.background.end()).await;
    }
}

/// The signals that ask us to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let of = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hangup: of(SignalKind::hangup())?,
        })
    }

    /// The next signal to stop. SIGHUP asks others to read their configuration again; it must not end us.
    async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.hangup.recv() => SignalIgnored { signal: "SIGHUP" }.emit(),
            }
        }
    }
}
