//! HTTP towards others: connections to one origin that are kept for the next request, and what they carry.
//!
//! Must not know: MCP, what is asked for, what becomes of an answer.

mod client;
mod dial;
mod fetch;
mod received;

use std::error::Error;

pub(crate) use client::{Client, SendError};
pub(crate) use dial::{DialError, source_of};
pub(crate) use fetch::{Bounds, fetch, path};
pub(crate) use received::{ReadError, Received};

/// Why nothing can be sent to an address at all.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}: {cause}")]
pub(crate) struct Unusable {
    /// What anybody may read: no path, address or header.
    pub(crate) text: &'static str,
    /// What only our log may read besides; empty if there is nothing.
    pub(crate) cause: String,
}

impl Unusable {
    fn because(text: &'static str, error: &(dyn Error + 'static)) -> Self {
        Self { text, cause: chain(error) }
    }
}

/// An error and its sources on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
