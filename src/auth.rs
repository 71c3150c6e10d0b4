//! Who is calling: the credentials of a request become a [`Principal`](crate::exchange::Principal).
//!
//! Must not know: MCP methods, what a principal may do.

mod bearer;

pub use bearer::{AuthError, Authenticator};
