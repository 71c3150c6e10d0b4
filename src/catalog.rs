//! What is offered: the merged lists of the upstreams of one endpoint at one instant, as each client may see them.
//!
//! A snapshot is pure data, made from the offers and the configuration alone: the same input gives the same
//! bytes, in whatever order the upstreams came up.
//!
//! Must not know: upstreams as peers, how anything is transported.

mod candidate;
mod implied;
mod list;
mod merge;
mod name;
mod narrowed;
mod page;
mod rewrite;
mod spelling;
mod template;
mod uri;

pub use candidate::Candidate;
pub use list::Entry;
pub use merge::{Finding, Listed, Location, Snapshot, Source};
pub use name::ExposedNames;
pub use page::{CursorError, View};
pub use rewrite::Tags;
pub use spelling::admits_uri;
pub use uri::split_tag;
