//! A gateway that serves nobody: it connects, so that somebody can be told what it would offer.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::{CHILDREN_END, Tasks, optional};
use crate::config::Config;
use crate::gateway::{Gateway, Health, Upstream};
use crate::telemetry::Metrics;
use crate::{demo, upstream};

/// How often it is looked whether all upstreams are there.
const LOOK: Duration = Duration::from_millis(20);
/// How long nothing must have changed for the lists to count as read.
const SETTLED: Duration = Duration::from_millis(200);

/// Connects to the upstreams of a configuration, waits until each has been read or could not be reached, asks
/// `question`, and ends what it started. Besides the question, takes no longer than the longest `connect_timeout` and `list_timeout`,
/// and the end of the children. Listens on no address but that of the built-in demo server.
pub(crate) async fn look<T>(config: Config, question: impl AsyncFnOnce(&Gateway) -> T) -> T {
    let config = Arc::new(config);
    let metrics = Arc::new(Metrics::new(&config));
    let background = Tasks::default();
    // Where the address is taken, a gateway that runs already serves the demo.
    if let Some(socket) = optional("demo.listen", config.demo).await.ok().flatten() {
        background.spawn(demo::http(socket, background.stop.clone()));
    }
    let upstreams = upstream::start_all(&config, &metrics);
    let ports = upstreams.iter().map(|upstream| Arc::clone(upstream) as Arc<dyn Upstream>).collect();
    let gateway = Gateway::new(Arc::clone(&config), metrics, ports);
    background.spawn(Arc::clone(&gateway).refresh(background.stop.clone()));
    let budgets = config.upstreams.iter().map(|upstream| upstream.connect_timeout + upstream.list_timeout);
    let _timed_out = timeout(budgets.max().unwrap_or_default(), settled(&gateway)).await;
    let answer = question(&gateway).await;
    let ends = upstreams.iter().map(|upstream| upstream.stop());
    let _timed_out = timeout(CHILDREN_END, futures_util::future::join_all(ends)).await;
    let _timed_out = timeout(CHILDREN_END, background.end()).await;
    answer
}

/// Waits until no upstream is on its way any more, and nothing changes.
async fn settled(gateway: &Gateway) {
    let mut last = gateway.offers();
    let mut since = Instant::now();
    loop {
        sleep(LOOK).await;
        let now = gateway.offers();
        let is_same = now.iter().zip(&last).all(|((_, new), (_, old))| Arc::ptr_eq(new, old));
        let is_underway = now.iter().any(|(_, offer)| matches!(offer.health, Health::Connecting));
        if is_underway || !is_same {
            since = Instant::now();
        } else if since.elapsed() >= SETTLED {
            return;
        }
        last = now;
    }
}
