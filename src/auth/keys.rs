//! The keys of one issuer: read at the start and every now and then, kept while they cannot be read.
//!
//! No request reads keys. One that names an unknown key has them read, by the one task that does so, and waits for
//! that; but not more often than every [`ASKED`], so that made-up names of keys cost nobody anything.
//!
//! Must not know: where keys come from.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use jsonwebtoken::DecodingKey;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::config::{JwtAlgorithm, JwtIssuer};
use crate::telemetry::{KeysFailed, KeysRead, Metrics};

/// How often unknown names of keys may have the keys read, at the most.
const ASKED: Duration = Duration::from_secs(30);
/// How long a request waits for keys that are being read. Longer than reading takes.
const PATIENCE: Duration = Duration::from_secs(25);
/// How long after a failure they are tried again: first, and at the most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The keys of an issuer, as it published them last.
pub(super) type KeySet = Vec<Key>;

/// One public key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) id: Option<String>,
    /// What it can check; never empty.
    pub(super) algorithms: Vec<JwtAlgorithm>,
    pub(super) decoding: DecodingKey,
}

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer does not publish it.
    Unknown,
    /// The keys of the issuer could never be read.
    Unread,
}

/// Reads the keys of an issuer, or says for the log why not.
pub(super) type Reading = Box<dyn Fn() -> BoxFuture<'static, Result<KeySet, String>> + Send + Sync>;

/// The keys of one issuer.
pub(super) struct KeyStore {
    issuer: Arc<JwtIssuer>,
    current: ArcSwapOption<KeySet>,
    /// How far reading them is.
    progress: watch::Sender<Progress>,
    wanted: Notify,
    /// When an unknown name last had them read.
    asked: Mutex<Option<Instant>>,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// They are being read, or will be at once.
    Underway,
    /// They were read, or could not be.
    Over,
}

impl KeyStore {
    pub(super) fn new(issuer: Arc<JwtIssuer>, reading: Reading) -> Self {
        Self {
            issuer,
            current: ArcSwapOption::empty(),
            progress: watch::Sender::new(Progress::Underway),
            wanted: Notify::new(),
            asked: Mutex::default(),
            reading,
        }
    }

    /// Keeps the keys up to date, for ever.
    pub(super) async fn keep(&self, metrics: &Metrics) {
        let mut failures = 0_u32;
        loop {
            self.progress.send_replace(Progress::Underway);
            match (self.reading)().await {
                Ok(keys) => {
                    failures = 0;
                    KeysRead { issuer: &self.issuer.group.1, keys: keys.len() }.emit(metrics);
                    self.current.store(Some(Arc::new(keys)));
                }
                Err(reason) => {
                    failures = failures.saturating_add(1);
                    let is_stale = self.current.load().is_some();
                    KeysFailed { issuer: &self.issuer.group.1, reason: &reason, is_stale }.emit(metrics);
                }
            }
            self.progress.send_replace(Progress::Over);
            let pause = match failures {
                0 => self.issuer.refresh,
                _ => (AGAIN.0 * 2_u32.saturating_pow(failures.min(6) - 1)).min(AGAIN.1),
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
        }
    }

    /// The keys that may have signed a token that names the key `id`, or none. Cancel safe.
    ///
    /// # Errors
    /// See [`NoKey`].
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: JwtAlgorithm,
    ) -> Result<(Arc<KeySet>, Vec<usize>), NoKey> {
        if let Some(found) = self.look(id, algorithm) {
            return Ok(found);
        }
        if self.has_read_begun() {
            let mut progress = self.progress.subscribe();
            let over = progress.wait_for(|progress| *progress == Progress::Over);
            let _late = timeout(PATIENCE, over).await;
        }
        let found = self.look(id, algorithm);
        found.ok_or(if self.current.load().is_some() { NoKey::Unknown } else { NoKey::Unread })
    }

    fn look(&self, id: Option<&str>, algorithm: JwtAlgorithm) -> Option<(Arc<KeySet>, Vec<usize>)> {
        let keys = self.current.load_full()?;
        let is_named = |key: &Key| id.is_none_or(|id| key.id.as_deref().is_none_or(|known| known == id));
        let fit =
            keys.iter().enumerate().filter(|(_, key)| is_named(key) && key.algorithms.contains(&algorithm));
        let fit: Vec<usize> = fit.map(|(place, _)| place).collect();
        (!fit.is_empty()).then_some((keys, fit))
    }

    /// Whether the keys are being read now, or are from now on because of this.
    fn has_read_begun(&self) -> bool {
        if *self.progress.borrow() == Progress::Underway {
            return true;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_some_and(|asked| asked.elapsed() < ASKED) {
            // Whoever asked may have done so just now.
            return *self.progress.borrow() == Progress::Underway;
        }
        *asked = Some(Instant::now());
        self.progress.send_replace(Progress::Underway);
        self.wanted.notify_one();
        true
    }
}

impl std::fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyStore").field("issuer", &self.issuer.issuer).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::task::TaskTracker;

    use super::*;

    /// A store whose issuer publishes the keys that `published` names, and counts how often it is asked.
    fn store(
        published: &Arc<Mutex<Result<Vec<&'static str>, &'static str>>>,
    ) -> (Arc<KeyStore>, Arc<AtomicUsize>) {
        let file = "upstreams: {}\nauth: {jwt: [{issuer: 'https://as.example', audience: x}]}\n";
        let config = crate::config::parse(file, "x", &|_| None).unwrap().config;
        let reads = Arc::new(AtomicUsize::new(0));
        let (count, published) = (Arc::clone(&reads), Arc::clone(published));
        let reading: Reading = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            let now = published.lock().unwrap().clone();
            Box::pin(async move {
                sleep(Duration::from_millis(50)).await;
                let key = |id: &str| Key {
                    id: Some(id.to_owned()),
                    algorithms: vec![JwtAlgorithm::Es256],
                    decoding: DecodingKey::from_ec_der(&[4]),
                };
                now.map(|names| names.into_iter().map(key).collect()).map_err(str::to_owned)
            })
        });
        let store = Arc::new(KeyStore::new(Arc::clone(&config.jwt[0]), reading));
        let kept = Arc::clone(&store);
        TaskTracker::new().spawn(async move { kept.keep(&Metrics::for_test()).await });
        (store, reads)
    }

    async fn ask(store: &KeyStore, id: &str) -> Result<usize, NoKey> {
        store.find(Some(id), JwtAlgorithm::Es256).await.map(|(_, places)| places.len())
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_read_once_whoever_asks() {
        let published = Arc::new(Mutex::new(Ok(vec!["a"])));
        let (store, reads) = store(&published);
        let asks = (0..50).map(|_| ask(&store, "a"));
        assert!(futures_util::future::join_all(asks).await.iter().all(|found| *found == Ok(1)));
        assert_eq!(reads.load(Ordering::SeqCst), 1);
        assert_eq!(
            store.find(Some("a"), JwtAlgorithm::Rs256).await.map(drop),
            Err(NoKey::Unknown),
            "another kind"
        );
        assert_eq!(store.find(None, JwtAlgorithm::Es256).await.map(|found| found.1.len()), Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_unknown_names_has_them_read_once_in_a_while() {
        let published = Arc::new(Mutex::new(Ok(vec!["a"])));
        let (store, reads) = store(&published);
        assert_eq!(ask(&store, "a").await, Ok(1));
        for name in 0..1_000 {
            assert_eq!(ask(&store, &name.to_string()).await, Err(NoKey::Unknown));
        }
        assert_eq!(reads.load(Ordering::SeqCst), 2);
        sleep(ASKED).await;
        assert_eq!(ask(&store, "x").await, Err(NoKey::Unknown));
        assert_eq!(ask(&store, "a").await, Ok(1), "what is known needs no reading");
        assert_eq!(reads.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_key_is_found_at_once_by_all_who_wait() {
        let published = Arc::new(Mutex::new(Ok(vec!["a"])));
        let (store, reads) = store(&published);
        assert_eq!(ask(&store, "a").await, Ok(1));
        *published.lock().unwrap() = Ok(vec!["b"]);
        let asks = (0..20).map(|_| ask(&store, "b"));
        assert!(futures_util::future::join_all(asks).await.iter().all(|found| *found == Ok(1)));
        assert_eq!(ask(&store, "a").await, Err(NoKey::Unknown), "a key that was taken back is gone");
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn known_keys_hold_while_the_issuer_is_away() {
        let published = Arc::new(Mutex::new(Ok(vec!["a"])));
        let (store, reads) = store(&published);
        assert_eq!(ask(&store, "a").await, Ok(1));
        *published.lock().unwrap() = Err("gone");
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!(ask(&store, "a").await, Ok(1));
        let tries = reads.load(Ordering::SeqCst);
        assert!((50..200).contains(&tries), "{tries}: once in half a minute");
        *published.lock().unwrap() = Ok(vec!["b"]);
        sleep(AGAIN.1 * 2).await;
        assert_eq!(ask(&store, "b").await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_keys_nothing_is_known() {
        let published = Arc::new(Mutex::new(Err("down")));
        let (store, _) = store(&published);
        assert_eq!(ask(&store, "a").await, Err(NoKey::Unread));
        *published.lock().unwrap() = Ok(vec!["a"]);
        sleep(AGAIN.0 * 2).await;
        assert_eq!(ask(&store, "a").await, Ok(1));
    }
}
