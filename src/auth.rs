//! Who is calling: the credentials of a request become a [`Principal`](crate::exchange::Principal).
//!
//! Must not know: MCP methods, what a principal may do.

mod bearer;
mod launcher;

pub use bearer::{AuthError, Authenticator};
pub use launcher::{LaunchError, launched_by};
