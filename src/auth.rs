//! Who is calling: the credentials of a request become a [`Principal`](crate::exchange::Principal).
//!
//! Must not know: MCP methods, what a principal may do.

mod bearer;
mod discovery;
mod jwt;
mod keys;
mod launcher;
mod refusal;
mod resource;

pub use bearer::Authenticator;
pub use launcher::{LaunchError, launched_by};
pub use refusal::{AuthError, Rejection};
pub use resource::Resource;
