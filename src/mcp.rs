//! The vocabulary of MCP: messages, methods, revisions, error codes. Pure data.
//!
//! Must not know: sockets, tasks, configuration.

mod capability;
mod code;
mod draft;
mod id;
mod message;
mod meta;
mod method;
mod object;
mod version;

pub use capability::merge_capabilities;
pub use code::{Code, code_of};
pub use draft::Draft;
pub use id::Id;
pub use message::{Body, Message, Notification, Request, Response};
pub use meta::{HOP_KEYS, key};
pub use method::{ListKind, Method, Routing};
pub use object::{DuplicateKey, Look, Member, ObjectView, Raw, Span};
pub use version::{Era, ProtocolVersion};
