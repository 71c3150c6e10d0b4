//! Our face towards clients: one HTTP endpoint, or one pipe, for both eras.
//!
//! A request's road: `accept` (connections) → `http` (paths, Host, Origin, credentials) → `post` (body) →
//! `classify` (era) → `modern` or `legacy` → the gateway → `running` (the call) → `reply` (what its end looks
//! like) → `stream` (one document, or events before it). The stream of a call in a session is
//! carried by `resumption`, which keeps what was sent on the `shelf`. Streams that stay open are in `listening`. A pipe
//! (`pipe`) takes the same road from `classify` on, and so does a connection over HTTP+SSE (`sse`), which is a pipe
//! whose lines are POSTs and events.
//!
//! Must not know: upstreams.

mod accept;
mod ask;
mod batch;
mod body;
mod classify;
mod departed;
mod detached;
mod endpoint;
mod event_id;
mod face;
mod filter;
#[cfg(test)]
mod for_test;
mod http;
mod identity;
mod in_flight;
mod legacy;
mod legacy_session;
mod level;
mod listening;
mod media;
mod modern;
mod outlet;
mod patience;
mod pipe;
mod post;
mod reply;
mod resumption;
mod running;
mod shelf;
mod site;
mod sse;
mod stream;
mod threads;

pub(crate) use self::accept::PROTOCOLS;
pub use self::face::Face;
pub(crate) use self::http::serve;
pub use self::pipe::converse;
