//! Our face towards clients: one HTTP endpoint for both eras.
//!
//! A request's road: `accept` (connections) → `http` (paths, Host, Origin, credentials) → `post` (body) →
//! `classify` (era) → `modern` or `legacy` → the gateway → `reply` (what it looks like) → `stream` (one document, or
//! events before it). Streams that stay open are in `listening`.
//!
//! Must not know: upstreams.

mod accept;
mod ask;
mod body;
mod classify;
mod endpoint;
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
mod patience;
mod post;
mod reply;
mod site;
mod stream;

pub use self::http::serve;
