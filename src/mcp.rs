//! The vocabulary of MCP: messages, methods, revisions, error codes. Pure data.
//!
//! Must not know: sockets, tasks, configuration.

mod capability;
mod code;
mod draft;
pub mod extension;
mod hints;
mod id;
mod kind;
mod message;
mod meta;
mod method;
mod object;
pub mod task;
mod version;

pub use capability::{has_capability, merge_capabilities, tells_of_resources};
pub use code::{Code, code_of};
pub use draft::Draft;
pub use hints::Hints;
pub use id::Id;
pub use kind::{ListKind, PerKind};
pub use message::{Body, Message, Notification, Request, Response};
pub use meta::{HOP_KEYS, key};
pub use method::{Method, Routing};
pub use object::{DuplicateKey, Look, Member, ObjectView, Raw, Span, elements};
pub use task::TaskMode;
pub use version::{Era, ProtocolVersion};
