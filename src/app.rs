//! Wires everything: the order of start and of drain.
//!
//! Start: configuration, sockets, upstreams (in the background), endpoint. Drain: no new connections, calls
//! in flight end, children end.

mod look;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, AdminState, Phase, Readiness};
use crate::config::Config;
use crate::gateway::{Gateway, Question, Upstream};
use crate::telemetry::{Listening, Metrics, SignalIgnored, Stopped, Stopping};
use crate::{demo, downstream, upstream};

pub(crate) use look::look;

/// How long the children may take to end, on top of `drain_timeout`.
const CHILDREN_END: Duration = Duration::from_secs(10);

/// Serves the configuration until SIGINT or SIGTERM, then drains. A second signal ends at once.
///
/// # Errors
/// If an address cannot be bound. Upstreams that cannot be reached are no error.
pub(crate) async fn serve(config: Config) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let config = Arc::new(config);
    let sockets = Sockets::bind(&config).await?;
    let running = Running::start(config, sockets)?;
    let first = signals.next().await;
    Stopping { signal: first, drain: running.config.drain_timeout }.emit();
    tokio::select! {
        () = running.drain() => Stopped { reason: "drained" }.emit(),
        second = signals.next() => Stopped { reason: second }.emit(),
    }
    Ok(())
}

struct Sockets {
    mcp: TcpListener,
    admin: Option<TcpListener>,
    demo: Option<TcpListener>,
}

impl Sockets {
    async fn bind(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            mcp: bind("listen", config.listen).await?,
            admin: optional("admin", config.admin).await?,
            demo: optional("demo.listen", config.demo).await?,
        })
    }
}

async fn optional(key: &str, address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    match address {
        Some(address) => bind(key, address).await.map(Some),
        None => Ok(None),
    }
}

async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| format!("`{key}`: cannot listen on {address}"))
}

/// A gateway at work.
struct Running {
    config: Arc<Config>,
    readiness: Arc<Readiness>,
    upstreams: Vec<Arc<upstream::Connector>>,
    /// The endpoint and the calls in it.
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
    fn start(config: Arc<Config>, sockets: Sockets) -> anyhow::Result<Self> {
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
        let admin_address = sockets.admin.as_ref().and_then(|socket| socket.local_addr().ok());
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
        let mcp_address = sockets.mcp.local_addr()?;
        endpoint.spawn(downstream::serve(sockets.mcp, gateway, endpoint.stop.clone()));
        readiness.enter(Phase::Serving);
        Listening { mcp: mcp_address, admin: admin_address, upstreams: config.upstreams.len() }.emit();
        Ok(Self { config, readiness, upstreams, endpoint, background })
    }

    /// Ends calls in flight within `drain_timeout`, then the upstreams, then the rest.
    async fn drain(&self) {
        self.readiness.enter(Phase::Draining);
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
