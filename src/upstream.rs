//! We are the client: connections to MCP servers of either era, over pipes and HTTP.
//!
//! Must not know: the rest of the gateway, who calls, and what callers may.

mod backoff;
mod connection;
mod failure;
mod inflight;
mod legacy;
mod listener;
mod modern;
mod transport;
mod unsolicited;
mod wire;
