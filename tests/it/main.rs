//! One integration binary: the real program between scripted clients and scripted servers.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    clippy::disallowed_methods,
    reason = "a test may stop at once, and drives processes, threads and sockets by hand"
)]

mod cli;
mod container;
mod deadlines;
mod direct;
mod examples;
mod faults;
mod field;
mod lossless;
mod overload;
mod rmcp_peers;
mod robust;
mod soak;
mod sse;
mod supervision;
mod support;
mod translation;
mod wire;
