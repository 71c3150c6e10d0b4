//! When the configuration is read again: on SIGHUP, when its file is another one, and when somebody asks for it.
//!
//! Must not know: what is done with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::live::Live;
use super::service;
use crate::admin::Reload;

/// How long a file must have been the same to be read: who writes it may not be through.
const SETTLED: Duration = Duration::from_millis(200);
/// How long it is waited for that.
const PATIENCE: Duration = Duration::from_secs(5);
/// Wishes that wait. One more is granted with them.
const WISHES: usize = 16;

/// A wish that the configuration is read again.
pub(super) struct Wish {
    cause: &'static str,
    answer: Option<oneshot::Sender<Reload>>,
}

/// Where wishes go.
#[derive(Clone)]
pub(super) struct Wishes(mpsc::Sender<Wish>);

/// Makes a way for wishes.
pub(super) fn wishes() -> (Wishes, mpsc::Receiver<Wish>) {
    let (sender, receiver) = mpsc::channel(WISHES);
    (Wishes(sender), receiver)
}

impl Wishes {
    /// Has it read, and does not wait for that. Where many wish already, they wish the same.
    pub(super) fn wish(&self, cause: &'static str) {
        let _many = self.0.try_send(Wish { cause, answer: None });
    }

    /// Has it read, and waits for what comes of it; `None` if the gateway stops.
    pub(super) async fn ask(&self, cause: &'static str) -> Option<Reload> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Wish { cause, answer: Some(answer) }).await.ok()?;
        answered.await.ok()
    }
}

/// Grants wishes, one after the other, and looks at the file, until `stop`.
pub(super) async fn keep(live: Arc<Live>, mut wishes: mpsc::Receiver<Wish>, stop: CancellationToken) {
    let mut seen = look(&live).await;
    loop {
        let wish = tokio::select! {
            () = stop.cancelled() => return,
            wish = wishes.recv() => match wish {
                Some(wish) => wish,
                None => return,
            },
            () = changed(&live, &seen) => Wish { cause: "file", answer: None },
        };
        // What is read now is what was seen now: a change that comes later is seen later.
        seen = look(&live).await;
        service::is_reloading();
        let reload = live.reload(wish.cause).await;
        service::is_ready();
        // Other files may have a part in it now. One that had before may have changed since it was read.
        if reload.is_applied() {
            seen = joined(seen, look(&live).await);
        }
        if let Some(answer) = wish.answer {
            let _gone = answer.send(reload);
        }
    }
}

/// What tells one state of a file from another: where it really is, its size and when it was written. `None` where
/// there is none.
type State = Option<(u64, u64, u64, SystemTime)>;
/// The state of each file that has a part in the configuration.
type Look = BTreeMap<PathBuf, State>;

/// The files of a later look, those that were seen before as they were seen.
fn joined(mut seen: Look, later: Look) -> Look {
    let kept = |(file, state)| {
        let before = seen.remove(&file).unwrap_or(state);
        (file, before)
    };
    later.into_iter().map(kept).collect()
}

/// Looks at the configuration, and at the files with its secrets.
async fn look(live: &Live) -> Look {
    let config = live.config();
    let files: Vec<PathBuf> =
        std::iter::once(PathBuf::from(&*config.file)).chain(config.files.iter().cloned()).collect();
    let looks = move || {
        let state = |file: PathBuf| {
            let state = stat(&file);
            (file, state)
        };
        files.into_iter().map(state).collect()
    };
    tokio::task::spawn_blocking(looks).await.unwrap_or_default()
}

fn stat(file: &Path) -> State {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.len(), metadata.modified().ok()?))
}

/// Waits until a file is another one than was `seen`, and stays it for a moment.
async fn changed(live: &Live, seen: &Look) {
    let interval = live.config().reload_interval;
    if interval.is_zero() {
        return std::future::pending().await;
    }
    loop {
        sleep(interval).await;
        let mut now = look(live).await;
        if now == *seen {
            continue;
        }
        let end = Instant::now() + PATIENCE;
        loop {
            sleep(SETTLED).await;
            let then = look(live).await;
            if then == now || Instant::now() >= end {
                return;
            }
            now = then;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_while_it_is_read_is_seen_as_changed() {
        let state = |size| Some((1, 1, size, SystemTime::UNIX_EPOCH));
        let look = |files: &[(&str, u64)]| -> Look {
            files.iter().map(|(file, size)| (PathBuf::from(file), state(*size))).collect()
        };
        let seen = look(&[("gateway.yaml", 1), ("old", 1)]);
        let later = look(&[("gateway.yaml", 2), ("new", 1)]);
        assert_eq!(joined(seen, later), look(&[("gateway.yaml", 1), ("new", 1)]));
    }
}
