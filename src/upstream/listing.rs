//! Reading the lists of a server to their last page. Bounded in pages, entries and bytes; what is malformed
//! is left out singly.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::failure::Failure;
use crate::config::Limits;
use crate::gateway::{List, Listed};
use crate::mcp::{Body, Code, ListKind, ObjectView, Raw, Response, code_of};
use crate::telemetry::{EntrySkipped, Metrics};
use crate::wire::mirror::{Mirror, Mirrors};

/// How far a list is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pages: usize,
    items: usize,
    bytes: usize,
}

impl From<&Limits> for Bounds {
    fn from(limits: &Limits) -> Self {
        Self { pages: limits.list_pages, items: limits.list_items, bytes: limits.message }
    }
}

/// A list, read to its end.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// What it is.
    pub(super) list: List,
    /// Which arguments go into headers, by tool, where there are any.
    pub(super) mirrors: Arc<Mirrors>,
}

/// Reads the lists of one server.
#[derive(Debug)]
pub(super) struct ListReader {
    pub(super) upstream: Arc<str>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bounds: Bounds,
}

/// How reading goes on after a page.
enum Next {
    Page(Raw),
    End,
}

impl ListReader {
    /// Reads one list. A server that does not know the method has none.
    ///
    /// # Errors
    /// If a page cannot be had: half a list is none.
    pub(super) async fn read(&self, kind: ListKind, connection: &Connection) -> Result<Listing, Failure> {
        let list = List { is_served: true, ..List::default() };
        let mut reading = Reading {
            reader: self,
            kind,
            listing: Listing { list, ..Listing::default() },
            names: HashSet::new(),
            bytes: 0,
            mirrors: kind == ListKind::Tools && connection.mirrors_arguments(),
        };
        let mut cursors = HashSet::new();
        let mut cursor: Option<Raw> = None;
        for page in 0..self.bounds.pages {
            let params = cursor.as_ref().map(|cursor| ("cursor", cursor.clone()));
            let response = connection.ask(kind.method().as_str(), params.as_slice()).await?;
            if let Body::Error(_) = response.body {
                return match response.error_code() {
                    Some(code) if code == code_of(Code::MethodNotFound) && page == 0 => {
                        Ok(Listing::default())
                    }
                    code => Err(refused(kind, code, &response)),
                };
            }
            match reading.take(&response)? {
                Next::End => return Ok(reading.listing),
                Next::Page(next) if cursors.insert(next.clone()) => cursor = Some(next),
                Next::Page(_) => {
                    self.skip("", "the list repeats a cursor: the pages behind it are not read");
                    return Ok(reading.listing);
                }
            }
        }
        self.skip("", "the list has more pages than limits.list_pages: the rest is not read");
        Ok(reading.listing)
    }

    fn skip(&self, entry: &str, reason: &str) {
        EntrySkipped { upstream: &self.upstream, entry, reason }.emit(&self.metrics);
    }
}

fn refused(kind: ListKind, code: Option<i64>, response: &Response) -> Failure {
    let code = code.map_or_else(|| "without a code".to_owned(), |code| code.to_string());
    let message = response.error_message().unwrap_or_default();
    Failure::broken(format!("it refused to list its {}s with error {code}", kind.noun())).because(message)
}

/// A list on its way.
struct Reading<'a> {
    reader: &'a ListReader,
    kind: ListKind,
    listing: Listing,
    names: HashSet<Arc<str>>,
    bytes: usize,
    /// Whether arguments go into headers on this connection.
    mirrors: bool,
}

impl Reading<'_> {
    /// Takes one page.
    fn take(&mut self, page: &Response) -> Result<Next, Failure> {
        let broken = || Failure::broken(format!("its list of {}s is not a list", self.kind.noun()));
        let array = page.result(self.kind.entries_key()).ok_or_else(broken)?;
        let entries: Vec<&RawValue> = serde_json::from_slice(array.bytes()).map_err(|_| broken())?;
        self.bytes = self.bytes.saturating_add(array.bytes().len());
        if self.bytes > self.reader.bounds.bytes {
            self.reader.skip("", "the list is larger than limits.message: the rest is not read");
            return Ok(Next::End);
        }
        for entry in entries {
            if self.listing.list.entries.len() >= self.reader.bounds.items {
                self.reader
                    .skip("", "the list has more entries than limits.list_items: the rest is left out");
                return Ok(Next::End);
            }
            self.take_entry(array.bytes().slice_ref(entry.get().as_bytes()));
        }
        self.take_hints(page);
        let next =
            page.result("nextCursor").filter(|raw| raw.string().is_some_and(|cursor| !cursor.is_empty()));
        Ok(next.map_or(Next::End, Next::Page))
    }

    fn take_entry(&mut self, text: Bytes) {
        let key = self.kind.name_key();
        let name = ObjectView::of(&text).string(&text, key).unwrap_or_default();
        if name.is_empty() {
            return self.reader.skip("", &format!("it has no {key}"));
        }
        let name: Arc<str> = name.into();
        if !self.names.insert(Arc::clone(&name)) {
            return self.reader.skip(&name, &format!("an earlier entry of the list has the same {key}"));
        }
        if self.mirrors {
            match Mirror::of(&text) {
                Err(error) => return self.reader.skip(&name, &error.to_string()),
                Ok(mirror) if mirror.is_empty() => {}
                Ok(mirror) => {
                    Arc::make_mut(&mut self.listing.mirrors).insert(Arc::clone(&name), mirror);
                }
            }
        }
        self.listing.list.entries.push(Listed { name, text: Raw::trusted(text) });
    }

    fn take_hints(&mut self, page: &Response) {
        let ttl = page.result("ttlMs").and_then(|raw| raw.text().parse().ok()).map(Duration::from_millis);
        self.listing.list.ttl = [self.listing.list.ttl, ttl].into_iter().flatten().min();
        let scope = page.result("cacheScope").and_then(|raw| raw.string());
        self.listing.list.is_private |= scope.is_some_and(|scope| scope == "private");
    }
}
