//! One merged list, and what each client sees of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use super::candidate::Candidate;
use super::narrowed::narrowed;
use super::page::View;
use crate::config::{Filter, Sight};
use crate::exchange::Principal;
use crate::mcp::{Hints, ListKind};

/// One entry of a merged list.
#[derive(Debug)]
pub struct Entry {
    /// The name or URI that clients use.
    pub exposed: Arc<str>,
    /// The name by which rules know it, which is the same at every endpoint.
    pub known: Arc<str>,
    /// The one that the upstream uses.
    pub native: Arc<str>,
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// Whether the upstream's own filter lets it through.
    pub is_offered: bool,
    /// What it says of itself.
    pub hints: Hints,
    /// The entry as it is listed.
    pub(super) text: Bytes,
}

impl Entry {
    /// As rules see it.
    #[must_use]
    pub fn candidate(&self, kind: ListKind) -> Candidate<'_> {
        Candidate { kind, native: &self.native, known: &self.known, hints: Sight::Seen(self.hints) }
    }

    /// The entry as it is listed, with the exposed name.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }
}

/// The entries of one kind.
#[derive(Debug, Default)]
pub(super) struct MergedList {
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
    /// For each client the filters of its layers, and what it sees through them.
    views: Vec<(Vec<Filter>, OnceLock<Arc<View>>)>,
    /// For each role its filter.
    roles: Vec<Filter>,
    /// What clients see who have more roles than the configuration gives them.
    combined: Mutex<Combined>,
}

/// What is seen, by the place of a client and those of the roles beside it.
type Combined = HashMap<(usize, Arc<[usize]>), Arc<View>>;

/// Combinations of a client and roles that are kept; what others see is rendered each time.
const COMBINATIONS: usize = 1_000;

impl MergedList {
    pub(super) fn add_client(&mut self, filters: Vec<Filter>) {
        self.views.push((filters, OnceLock::new()));
    }

    pub(super) fn add_role(&mut self, filter: Filter) {
        self.roles.push(filter);
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.by_name.insert(Arc::clone(&entry.exposed), self.entries.len());
        self.entries.push(entry);
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn find(&self, exposed: &str) -> Option<(usize, &Entry)> {
        let index = *self.by_name.get(exposed)?;
        self.entries.get(index).map(|entry| (index, entry))
    }

    pub(super) fn view(&self, kind: ListKind, principal: &Principal) -> Option<Arc<View>> {
        let (filters, view) = self.views.get(principal.client)?;
        if principal.roles.is_empty() {
            return Some(Arc::clone(view.get_or_init(|| Arc::new(self.render(kind, filters.iter())))));
        }
        let key = (principal.client, Arc::clone(&principal.roles));
        let known = self.combined.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return known;
        }
        let mut all: Vec<&Filter> = filters.iter().collect();
        for role in &*principal.roles {
            all.push(self.roles.get(*role)?);
        }
        let view = Arc::new(self.render(kind, all.iter().copied()));
        let mut combined = self.combined.lock().unwrap_or_else(PoisonError::into_inner);
        if combined.len() < COMBINATIONS {
            combined.insert(key, Arc::clone(&view));
        }
        Some(view)
    }

    /// What is seen through all of `filters`.
    fn render<'a>(&self, kind: ListKind, filters: impl Iterator<Item = &'a Filter> + Clone) -> View {
        let is_seen = |entry: &Entry| {
            entry.is_offered && filters.clone().all(|filter| entry.candidate(kind).passes(filter))
        };
        let visible: Vec<bool> = self.entries.iter().map(is_seen).collect();
        let texts = self.entries.iter().zip(&visible).map(|(entry, is_visible)| {
            let narrows = filters.clone().filter(|_| *is_visible).flat_map(|filter| &filter.narrow);
            let subject = entry.candidate(kind).subject();
            narrowed(entry.text.clone(), narrows.filter(|narrow| narrow.pattern.matches(subject)))
        });
        let texts: Vec<Bytes> = texts.collect();
        View::render(texts.iter(), visible)
    }
}
