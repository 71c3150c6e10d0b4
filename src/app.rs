//! Wires everything: the order of start, reload and drain.
//!
//! Reload is in `live` (what takes the place of what) and `reload` (when). Start: configuration, sockets, upstreams (in the background), endpoint or pipe. Drain: no new connections or
//! messages, calls in flight end, children end.

mod live;
mod look;
mod reload;
mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, AdminState, Offers, Phase, Readiness, Reload};
use crate::config::{Config, ServerTls};
use crate::gateway::{Explanation, Question, Unanswerable};
use crate::telemetry::{Launched, ListenFailed, Listening, Stopped, Stopping};
use crate::tls::{Acceptor, Clients};
use crate::{auth, demo, downstream, upstream};

pub(crate) use look::look;

use live::Live;
use reload::Wishes;

/// How long the children may take to end, on top of `drain_timeout`.
const CHILDREN_END: Duration = Duration::from_secs(10);

/// Serves the configuration until SIGINT or SIGTERM, then drains. A second signal ends at once.
///
/// # Errors
/// If an address cannot be bound, or certificates cannot be used. Upstreams that cannot be reached are no error.
pub(crate) async fn serve(config: Config) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let config = Arc::new(config);
    let tls = certificates("listen.tls", config.listen_tls.as_ref(), MCP)?;
    let admin_tls = certificates("admin.tls", config.admin_tls.as_ref(), ADMIN)?;
    let (is_tls, is_admin_tls) = (tls.is_some(), admin_tls.is_some());
    let mcp = bind("listen", config.listen).await?;
    let admin = optional("admin", config.admin).await?.map(|socket| (socket, admin_tls));
    let demo = optional("demo.listen", config.demo).await?;
    let (address, count) = (mcp.local_addr()?, config.upstreams.len());
    upstream::guard::arm();
    let running = Running::start(config, Sockets { admin, demo })?;
    let stop = running.endpoint.stop.clone();
    running.endpoint.spawn(downstream::serve((mcp, tls), Arc::clone(running.live.face()), stop));
    running.readiness.enter(Phase::Serving);
    let scheme = |is_tls: bool| if is_tls { "https" } else { "http" };
    let schemes = (scheme(is_tls), scheme(is_admin_tls));
    Listening { mcp: address, admin: running.admin, schemes, upstreams: count }.emit();
    service::is_ready();
    running.run(signals).await;
    Ok(())
}

/// Serves the configuration to the client that launched us, on a pipe, until that ends, SIGINT or SIGTERM; then
/// drains. A second signal ends at once. `client` names the client of the configuration that it is, `endpoint` the
/// path of the endpoint that it gets; its first
/// message waits up to `patience` for upstreams that are being connected.
///
/// # Errors
/// If there is no such client. Upstreams that cannot be reached are no error, nor are addresses that are taken:
/// another one that runs from the same file has them.
pub(crate) async fn converse<R, W>(
    config: Config,
    (client, endpoint): (Option<&str>, Option<&str>),
    pipe: (R, W),
    patience: Duration,
) -> anyhow::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let principal = auth::launched_by(&config, client)?;
    let known = || config.endpoints.iter().map(|endpoint| &*endpoint.path).collect::<Vec<_>>().join(", ");
    let endpoint = config.endpoint(endpoint).with_context(|| {
        format!("there is no endpoint {:?}; there are: {}", endpoint.unwrap_or_default(), known())
    })?;
    let principal = principal.at(endpoint);
    let signals = Signals::new()?;
    let config = Arc::new(config);
    let admin_tls = certificates("admin.tls", config.admin_tls.as_ref(), ADMIN)?;
    let admin = if_free("admin", config.admin.filter(|_| config.is_admin_named)).await;
    let admin = admin.map(|socket| (socket, admin_tls));
    let demo = if_free("demo.listen", config.demo).await;
    let count = config.upstreams.len();
    upstream::guard::arm();
    let running = Running::start(config, Sockets { admin, demo })?;
    Launched { client: &principal.name, admin: running.admin, upstreams: count }.emit();
    let (face, stop) = (Arc::clone(running.live.face()), running.endpoint.stop.clone());
    running.endpoint.spawn(downstream::converse(face, principal, pipe, patience, stop));
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
    admin: Option<(TcpListener, Option<Arc<Acceptor>>)>,
    demo: Option<TcpListener>,
}

/// What clients of a listener are offered, and what they need.
type Terms = (Clients, &'static [&'static [u8]]);

const MCP: Terms = (Clients::MayHave, &downstream::PROTOCOLS);
const ADMIN: Terms = (Clients::MustHave, &[b"http/1.1"]);

fn certificates(
    key: &str,
    files: Option<&ServerTls>,
    (clients, protocols): Terms,
) -> anyhow::Result<Option<Arc<Acceptor>>> {
    let opened = files.map(|files| Acceptor::open(files, clients, protocols)).transpose();
    Ok(opened.with_context(|| format!("`{key}` cannot be used"))?.map(Arc::new))
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
    live: Arc<Live>,
    wishes: Wishes,
    readiness: Arc<Readiness>,
    /// Where the admin listener is.
    admin: Option<SocketAddr>,
    /// The endpoint or the pipe, and the calls in it.
    endpoint: Tasks,
    /// What must outlive the endpoint.
    background: Arc<Tasks>,
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
    /// Starts everything but the listener, or the pipe, of clients.
    fn start(config: Arc<Config>, sockets: Sockets) -> anyhow::Result<Self> {
        let readiness = Arc::new(Readiness::default());
        let (endpoint, background) = (Tasks::default(), Arc::new(Tasks::default()));
        if let Some(socket) = sockets.demo {
            background.spawn(demo::http(socket, background.stop.clone()));
        }
        let stop = background.stop.clone();
        background.spawn(async move { stop.run_until_cancelled(upstream::orphans::reap_all()).await });
        let live = Live::start(config, &background, endpoint.stop.clone())?;
        let (wishes, wished) = reload::wishes();
        background.spawn(reload::keep(Arc::clone(&live), wished, background.stop.clone()));
        let admin = sockets.admin.as_ref().and_then(|(socket, _)| socket.local_addr().ok());
        if let Some(socket) = sockets.admin {
            let sights = Arc::new(Sights { live: Arc::clone(&live), wishes: wishes.clone() });
            let state = AdminState::new(Arc::clone(live.metrics()), Arc::clone(&readiness), sights);
            background.spawn(admin::serve(socket, Arc::new(state), background.stop.clone()));
        }
        Ok(Self { live, wishes, readiness, admin, endpoint, background })
    }

    /// Waits for a signal, or for the end of what is served, and drains.
    async fn run(&self, mut signals: Signals) {
        let first = tokio::select! {
            signal = signals.next(&self.wishes) => signal,
            () = self.endpoint.stop.cancelled() => "the pipe ended",
        };
        Stopping { signal: first, drain: self.live.config().drain_timeout }.emit();
        tokio::select! {
            () = self.drain() => {
                upstream::guard::dismiss();
                Stopped { reason: "drained" }.emit();
            }
            second = signals.next(&self.wishes) => Stopped { reason: second }.emit(),
        }
    }

    /// Ends calls in flight within `drain_timeout`, then the upstreams, then the rest.
    async fn drain(&self) {
        self.readiness.enter(Phase::Draining);
        service::is_stopping();
        let patience = self.live.config().drain_timeout;
        let _timed_out = tokio::time::timeout(patience, self.endpoint.end()).await;
        let _timed_out = tokio::time::timeout(CHILDREN_END, self.live.stop()).await;
        let _timed_out = tokio::time::timeout(CHILDREN_END, self.background.end()).await;
    }
}

/// What the admin listener sees, and may wish.
struct Sights {
    live: Arc<Live>,
    wishes: Wishes,
}

impl admin::Sights for Sights {
    fn config(&self) -> Arc<Config> {
        self.live.config()
    }

    fn offers(&self) -> Offers {
        self.live.gateway().offers()
    }

    fn explain(&self, client: Option<&str>, question: &Question) -> Result<Vec<Explanation>, Unanswerable> {
        let gateway = self.live.gateway();
        match client {
            Some(client) => gateway.explain(client, question).map(|one| vec![one]),
            None => gateway.explain_all(question),
        }
    }

    fn last_reload(&self) -> Option<Reload> {
        self.live.last()
    }

    fn reload(&self) -> BoxFuture<'_, Option<Reload>> {
        Box::pin(self.wishes.ask("admin"))
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

    /// The next signal to stop. SIGHUP is a wish to read the configuration again.
    async fn next(&mut self, wishes: &Wishes) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.hangup.recv() => wishes.wish("SIGHUP"),
            }
        }
    }
}
