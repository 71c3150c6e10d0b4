//! Bytes to messages and back. Bounded, without IO.
//!
//! Must not know: sockets, configuration, what a message means.

pub mod headers;
pub mod json;
pub mod mirror;
pub mod ndjson;
pub mod sse;
