//! Processes that become our children because their parents are gone, where we are the first process of a
//! container: they are reaped, or their number would grow until the system has no room for processes.
//!
//! What is left of the group of a child is reaped with that child. This is for what ends while the child lives, and
//! for what has left its group.
//!
//! Must not know: what our own children are for.

use std::collections::HashSet;
use std::fs;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How long the reaper rests after it has looked: children that end in a flood are looked at together.
const REST: Duration = Duration::from_millis(200);

/// Our own children: those that somebody waits for. As many as there are children.
static OWN: LazyLock<Mutex<HashSet<i32>>> = LazyLock::new(Mutex::default);

fn own_children() -> MutexGuard<'static, HashSet<i32>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a child that its maker waits for, and that the reaper leaves alone.
///
/// # Errors
/// Those of `make`.
pub(super) fn own<T>(
    make: impl FnOnce() -> std::io::Result<T>,
    pid: impl FnOnce(&T) -> Option<u32>,
) -> std::io::Result<T> {
    // Held meanwhile: one that ends at once is ours, too.
    let mut own = own_children();
    let child = make()?;
    own.extend(pid(&child).and_then(|pid| i32::try_from(pid).ok()));
    Ok(child)
}

/// A child was waited for; its number may be another process's from now on.
pub(super) fn disown(child: Pid) {
    own_children().remove(&child.as_raw_pid());
}

/// Reaps orphans for as long as it runs, if we are the process that gets them; else ends at once. Must be called
/// within a runtime.
pub(crate) async fn reap_all() {
    if std::process::id() != 1 {
        return;
    }
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    while ended.recv().await.is_some() {
        sleep(REST).await;
        reap();
    }
}

/// Reaps every child that has ended and is not our own.
fn reap() {
    let own = own_children();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| !own.contains(pid)) {
        let is_ours = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| is_ended_child(&text));
        if let (true, Some(pid)) = (is_ours, Pid::from_raw(pid)) {
            let _status = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Whether `/proc/PID/stat` is that of a child of the first process that has ended.
fn is_ended_child(stat: &str) -> bool {
    // The name of the program is in brackets, and may hold anything.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    fields.next() == Some("Z") && fields.next() == Some("1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ended_children_of_the_first_process_are_reaped() {
        for (stat, is_ended) in [
            ("7 (sleep) Z 1 7 7 0", true),
            ("7 (a) S 1 (b) Z 1 7", true),
            ("7 (sleep) S 1 7 7 0", false),
            ("7 (sleep) Z 12 7 7 0", false),
            ("7 (Z 1", false),
            ("", false),
        ] {
            assert_eq!(is_ended_child(stat), is_ended, "{stat}");
        }
    }
}
