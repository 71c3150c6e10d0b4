//! The upstream side as a whole, in front of scripted servers.

mod bench;
mod eras;
mod lives;
mod pipes;
mod posts;
mod sessions;
mod site;
mod sse;
