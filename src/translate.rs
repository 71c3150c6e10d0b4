//! Legacy to canonical and back: pure functions on messages. The canonical shape is that of the modern
//! revision, so only legacy is translated.
//!
//! Must not know: sockets, sessions, upstreams.

pub mod from_legacy;
pub mod hello;
pub mod input;
pub mod to_legacy;
