//! What rules are asked about: an entry of a list, or what could be one.
//!
//! Must not know: whose rules they are.

use super::spelling::admits_uri;
use crate::config::{Filter, Sight, Subject, Verdict};
use crate::mcp::ListKind;

/// An entry, or what could be one, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The kind of its list.
    pub kind: ListKind,
    /// What its upstream calls it.
    pub native: &'a str,
    /// The name by which rules know it, besides those of its upstream. It is the same at every endpoint, whatever
    /// clients call it there. Means nothing for what has a URI.
    pub known: &'a str,
    /// What it says of itself.
    pub hints: Sight,
}

impl<'a> Candidate<'a> {
    /// What has a URI.
    #[must_use]
    pub fn uri(kind: ListKind, native: &'a str) -> Self {
        Self { kind, native, known: native, hints: Sight::Unseen }
    }

    /// Whether a filter of its upstream lets it through.
    #[must_use]
    pub fn passes_within(&self, filter: &Filter) -> bool {
        Candidate { known: self.native, ..*self }.passes(filter)
    }

    /// Whether a filter of an endpoint, a role or a client lets it through: tools and prompts by the name that
    /// rules know, all else by the native one.
    #[must_use]
    pub fn passes(&self, filter: &Filter) -> bool {
        match self.kind {
            ListKind::Resources => admits_uri(filter, self.native),
            ListKind::Tools | ListKind::Prompts | ListKind::Templates => filter.admits(self.subject()),
        }
    }

    /// Which rule of such a filter says so, as far as one does.
    #[must_use]
    pub fn judged<'f>(&self, filter: &'f Filter) -> Verdict<'f> {
        filter.judge(self.subject())
    }

    /// As a pattern of such a filter sees it.
    #[must_use]
    pub fn subject(&self) -> Subject<'a> {
        match self.kind {
            ListKind::Tools | ListKind::Prompts => Subject { name: self.known, hints: self.hints },
            ListKind::Resources | ListKind::Templates => self.native.into(),
        }
    }

    /// Whether such a filter may let it through: what is not known of it may be what is asked for.
    #[must_use]
    pub fn may_pass(&self, filter: &Filter) -> bool {
        match self.hints {
            Sight::Unseen if self.kind == ListKind::Tools => filter.may_admit(self.known),
            Sight::Seen(_) | Sight::Unseen => self.passes(filter),
        }
    }
}
