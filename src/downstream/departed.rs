//! What is remembered of sessions that are no longer in the table: which ids have ended before their time, and
//! when those that had to make room were used last.
//!
//! Bounded, and on the safe side: what no longer fits is unknown, so an ended id never lives again.
//!
//! Must not know: what an id says.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many more are remembered than are in the table.
const TIMES: usize = 16;

/// Sessions that are no longer in the table.
#[derive(Debug)]
pub(super) struct Departed {
    most: usize,
    idle_ms: u64,
    hashers: [RandomState; 2],
    memory: Mutex<Memory>,
}

/// An id, by its hash: ids may be long.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Memory {
    /// Ids that have ended, by the time when they were given out.
    ended: BTreeSet<(u64, Key)>,
    /// What was given out until then, and is not in the table, may have ended.
    forgotten_until: Option<u64>,
    /// When those were used last that made room.
    crowded: HashMap<Key, u64>,
    /// The same by time.
    by_use: BTreeSet<(u64, Key)>,
}

impl Departed {
    /// For a table of `sessions` that live `idle_ms` unused.
    pub(super) fn new(sessions: usize, idle_ms: u64) -> Self {
        let hashers = [RandomState::new(), RandomState::new()];
        Self { most: sessions.saturating_mul(TIMES), idle_ms, hashers, memory: Mutex::default() }
    }

    /// The session with this id, given out at that time, has ended.
    pub(super) fn end(&self, id: &str, issued_ms: u64, now: u64) {
        let key = self.key(id);
        let mut memory = self.memory();
        memory.forget_use(key);
        memory.sweep(self.idle_ms, now);
        memory.ended.insert((issued_ms, key));
        if memory.ended.len() > self.most
            && let Some((oldest, _)) = memory.ended.pop_first()
        {
            memory.forgotten_until = memory.forgotten_until.max(Some(oldest));
        }
    }

    /// The session with this id made room for another, and was used last at that time.
    pub(super) fn crowd_out(&self, id: &str, last_use_ms: u64, now: u64) {
        let key = self.key(id);
        let mut memory = self.memory();
        memory.sweep(self.idle_ms, now);
        memory.crowded.insert(key, last_use_ms);
        memory.by_use.insert((last_use_ms, key));
        if memory.crowded.len() > self.most
            && let Some((_, oldest)) = memory.by_use.pop_first()
        {
            memory.crowded.remove(&oldest);
        }
    }

    /// Whether an id that was given out at that time, and is not in the table, still lives: it has not ended,
    /// and was given out, or used, not too long ago.
    pub(super) fn is_alive(&self, id: &str, issued_ms: u64, now: u64) -> bool {
        let key = self.key(id);
        let memory = self.memory();
        let has_ended = memory.ended.contains(&(issued_ms, key));
        let is_forgotten = memory.forgotten_until.is_some_and(|until| issued_ms <= until);
        let last_use = memory.crowded.get(&key).copied();
        if has_ended || (is_forgotten && last_use.is_none()) {
            return false;
        }
        now.saturating_sub(last_use.unwrap_or(issued_ms).max(issued_ms)) <= self.idle_ms
    }

    /// The session with this id is in the table again.
    pub(super) fn bring_back(&self, id: &str) {
        let key = self.key(id);
        self.memory().forget_use(key);
    }

    /// Forgets what makes no difference any more.
    pub(super) fn sweep(&self, now: u64) {
        self.memory().sweep(self.idle_ms, now);
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        let memory = self.memory();
        memory.ended.len() + memory.crowded.len()
    }

    fn key(&self, id: &str) -> Key {
        let [one, two] = &self.hashers;
        (one.hash_one(id), two.hash_one(id))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn forget_use(&mut self, key: Key) {
        if let Some(last_use) = self.crowded.remove(&key) {
            self.by_use.remove(&(last_use, key));
        }
    }

    fn sweep(&mut self, idle_ms: u64, now: u64) {
        let is_over = |time: u64| now.saturating_sub(time) > idle_ms;
        while self.ended.first().is_some_and(|(issued, _)| is_over(*issued)) {
            self.ended.pop_first();
        }
        while let Some((last, key)) = self.by_use.first().copied().filter(|(last, _)| is_over(*last)) {
            self.by_use.remove(&(last, key));
            self.crowded.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: u64 = 1_000;

    #[test]
    fn an_ended_id_never_lives_again_however_many_end() {
        let departed = Departed::new(1, IDLE);
        let ids: Vec<String> = (0..100).map(|at| format!("id {at}")).collect();
        for (at, id) in (0..).zip(&ids) {
            departed.end(id, at, 100);
        }
        assert!(ids.iter().zip(0..).all(|(id, at)| !departed.is_alive(id, at, 100)));
        assert!(departed.is_alive("given out later", 100, 100));
        assert!(departed.memory().ended.len() <= TIMES);
    }

    #[test]
    fn who_made_room_lives_as_long_as_in_the_table() {
        let departed = Departed::new(10, IDLE);
        departed.crowd_out("busy", 5_000, 5_000);
        assert!(departed.is_alive("busy", 0, 6_000), "used a second ago");
        assert!(!departed.is_alive("busy", 0, 6_001), "idle");
        assert!(!departed.is_alive("unheard of", 0, 6_000), "too old by itself");
        departed.end("busy", 0, 5_500);
        assert!(!departed.is_alive("busy", 0, 5_600), "deleted");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_goes_with_time() {
        let departed = Departed::new(2, IDLE);
        for at in 0..1_000 {
            departed.crowd_out(&format!("id {at}"), at, at);
        }
        assert!(departed.memory().crowded.len() <= 2 * TIMES);
        departed.crowd_out("again", 1_000, 1_000);
        departed.bring_back("again");
        departed.sweep(10_000);
        let memory = departed.memory();
        assert_eq!((memory.crowded.len(), memory.by_use.len(), memory.ended.len()), (0, 0, 0));
    }
}
