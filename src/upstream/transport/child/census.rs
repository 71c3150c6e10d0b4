//! What the process groups of this machine take of it: counted for all of them at once, at most twice a second,
//! and for each group when it is asked for.
//!
//! Linux alone: it reads `/proc`. Must not know: whose groups they are.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::Pid;

/// How often groups are looked at.
pub(super) const PERIOD: Duration = Duration::from_millis(500);

/// The last count. One for all children: with many of them the table of processes is still read once.
static LAST: Mutex<Option<Census>> = Mutex::new(None);

/// What a process group takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes of memory that are its own: resident, without files that are mapped and memory that is shared.
    pub(super) memory: u64,
    /// Time on processors, with that of descendants that have ended.
    pub(super) cpu_time: Duration,
}

/// The processes of each group.
#[derive(Debug)]
struct Census {
    taken_at: Instant,
    groups: HashMap<i32, Group>,
}

#[derive(Debug, Default)]
struct Group {
    members: Vec<u32>,
    ticks: u64,
}

/// What a group takes now; nothing, where nobody is left of it. Reads files: for a thread that may wait.
pub(super) fn look_at(leader: Pid) -> Taken {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_none_or(|census| census.taken_at.elapsed() >= PERIOD) {
        *last = Some(Census::take());
    }
    let group = last.as_ref().and_then(|census| census.groups.get(&leader.as_raw_pid()));
    let Some(group) = group else { return Taken::default() };
    let pages: u64 = group.members.iter().filter_map(|pid| own_pages(&read(*pid, "statm")?)).sum();
    let per_second = clock_ticks_per_second().max(1);
    let cpu_time = Duration::from_millis(group.ticks.saturating_mul(1_000) / per_second);
    Taken { memory: pages.saturating_mul(u64::try_from(page_size()).unwrap_or(u64::MAX)), cpu_time }
}

impl Census {
    fn take() -> Self {
        let mut groups: HashMap<i32, Group> = HashMap::new();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
        for pid in names.filter_map(|name| name.to_str()?.parse().ok()) {
            if let Some((group, ticks)) = read(pid, "stat").as_deref().and_then(group_and_ticks) {
                let group = groups.entry(group).or_default();
                group.members.push(pid);
                group.ticks = group.ticks.saturating_add(ticks);
            }
        }
        Self { taken_at: Instant::now(), groups }
    }
}

/// A file about a process; `None` if it has ended.
fn read(pid: u32, file: &str) -> Option<String> {
    fs::read(format!("/proc/{pid}/{file}")).ok().map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// The process group of a `stat`, and the ticks that the process and its ended children were on a processor.
fn group_and_ticks(stat: &str) -> Option<(i32, u64)> {
    // The name of a program may hold anything, brackets too.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let group = fields.get(2)?.parse().ok()?;
    let ticks = fields.get(11..15)?.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some((group, ticks))
}

/// The pages of a `statm` that are resident and not shared.
fn own_pages(statm: &str) -> Option<u64> {
    let mut fields = statm.split_ascii_whitespace().skip(1);
    let resident: u64 = fields.next()?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_proc_says_is_read_whatever_a_program_is_called() {
        let stat = "4242 (a) b (c) R 1 777 777 0 -1 4194304 100 200 0 0 11 7 300 2 20 0 1 0 5 1000 25";
        assert_eq!(group_and_ticks(stat), Some((777, 320)));
        assert_eq!(own_pages("9000 700 300 1 0 500 0"), Some(400));
        for broken in ["", "1 (x)", "1 (x) R 1", "1 x R 1 777 777 0 -1"] {
            assert_eq!(group_and_ticks(broken), None, "{broken:?}");
        }
        assert_eq!(own_pages("9000"), None);
    }

    #[test]
    fn this_very_process_is_counted() {
        let group = rustix::process::getpgrp();
        let spent = Instant::now();
        while spent.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(0);
        }
        let taken = look_at(group);
        assert!(taken.memory > 100_000, "{taken:?}");
        let nobody = look_at(Pid::from_raw(i32::MAX).unwrap());
        assert_eq!(nobody, Taken::default());
    }
}
