//! The books: what was done, how it ended, and what must never be.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many broken promises are written down in full.
const MOST_BREACHES: usize = 50;

/// The books of one run.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Requests by what was asked and how that ended.
    outcomes: Mutex<BTreeMap<(&'static str, String), u64>>,
    /// Mishaps by kind.
    faults: Mutex<BTreeMap<String, u64>>,
    /// How often a server ran the calls under way, by their tokens.
    runs: Mutex<HashMap<String, u32>>,
    /// Promises that were broken: how many of a kind, and the first ones in words.
    breaches: Mutex<(BTreeMap<&'static str, u64>, Vec<String>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// A request ended.
    pub fn ended(&self, what: &'static str, outcome: impl Into<String>) {
        *locked(&self.outcomes).entry((what, outcome.into())).or_default() += 1;
    }

    /// Something was made to go wrong.
    pub fn fault(&self, kind: impl Into<String>) {
        *locked(&self.faults).entry(kind.into()).or_default() += 1;
    }

    /// A promise was broken.
    pub fn breach(&self, kind: &'static str, text: String) {
        let mut breaches = locked(&self.breaches);
        *breaches.0.entry(kind).or_default() += 1;
        if breaches.1.len() < MOST_BREACHES {
            breaches.1.push(format!("{kind}: {text:.600}"));
        }
    }

    /// A call begins that a server may run once.
    pub fn begin(&self, token: &str) {
        locked(&self.runs).insert(token.to_owned(), 0);
    }

    /// A server runs a call.
    pub fn run(&self, token: &str) {
        if let Some(runs) = locked(&self.runs).get_mut(token) {
            *runs += 1;
        }
    }

    /// A call is over; how often a server ran it.
    pub fn end(&self, token: &str) -> u32 {
        locked(&self.runs).remove(token).unwrap_or_default()
    }

    /// How many broken promises of a kind there are.
    pub fn breaches_of(&self, kind: &str) -> u64 {
        locked(&self.breaches).0.get(kind).copied().unwrap_or_default()
    }

    /// The broken promises in words.
    pub fn breaches(&self) -> Vec<String> {
        locked(&self.breaches).1.clone()
    }

    /// How many requests have ended.
    pub fn requests(&self) -> u64 {
        locked(&self.outcomes).values().sum()
    }

    /// The tables, for people.
    pub fn tables(&self) -> String {
        let mut text = format!("requests: {}\n", self.requests());
        for ((what, outcome), count) in &*locked(&self.outcomes) {
            text.push_str(&format!("  {what:<14} {outcome:<28} {count:>8}\n"));
        }
        let faults = locked(&self.faults);
        text.push_str(&format!("faults injected: {}\n", faults.values().sum::<u64>()));
        for (kind, count) in &*faults {
            text.push_str(&format!("  {kind:<43} {count:>8}\n"));
        }
        text
    }
}
