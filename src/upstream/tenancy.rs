//! To whom a connection belongs, and what follows from it: what it declares to its server, and whose a question
//! is that comes on no call's stream.
//!
//! Must not know: how connections are made.

use std::sync::Arc;

use bytes::Bytes;

use super::transport::Transport;
use crate::config::{Isolation, Sharing};
use crate::exchange::{Call, CallerSession};
use crate::mcp::Raw;
use crate::translate::hello::ASKABLE;
use crate::translate::input::can_be_asked;

/// Who alone uses a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    /// A client of the configuration, by its place.
    Client(usize),
    /// A session.
    Session(Arc<str>),
}

/// To whom a connection belongs.
#[derive(Clone, Debug)]
pub(super) struct Tenancy {
    /// Whether one client or session has it for itself.
    pub(super) is_own: bool,
    /// Whether no calls go over it.
    is_for_lists: bool,
    /// What is declared to a server that asks by requests of its own.
    capabilities: Raw,
    /// Whose a question on a pipe is.
    pub(super) attribution: Attribution,
    /// Who can be asked outside of a call.
    pub(super) session: Option<Arc<CallerSession>>,
    /// Whether the server is listened to outside of calls, whatever it declares.
    pub(super) listens: bool,
}

/// Whose a question is, or a log message, that comes on a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribution {
    /// There is no telling.
    Unknown,
    /// Any call's: one user made them all. The oldest that may be asked takes it.
    OneUser,
    /// The only call's that is in flight.
    OneCall,
}

impl Owner {
    /// Who owns the connection that this call goes to; `None` where all share one.
    pub(super) fn of(call: &Call, isolation: Isolation) -> Option<Self> {
        let client = Self::Client(call.principal.client);
        match (isolation, &call.session) {
            (Isolation::Shared, _) => None,
            (Isolation::PerSession, Some(session)) => Some(Self::Session(Arc::clone(&session.id))),
            (Isolation::PerClient | Isolation::PerSession, _) => Some(client),
        }
    }
}

impl Tenancy {
    /// That of the connection on which lists are read, and all calls go where nobody has one of its own.
    pub(super) fn shared(sharing: Sharing) -> Self {
        let attribution = match (sharing.isolation, sharing.concurrency) {
            (Isolation::Shared, 1) => Attribution::OneCall,
            _ => Attribution::Unknown,
        };
        Self {
            is_own: false,
            // The lists are for everybody: a server that shows less to a client without capabilities shows all.
            is_for_lists: sharing.isolation != Isolation::Shared,
            capabilities: everything(),
            attribution,
            session: None,
            listens: true,
        }
    }

    /// That of a connection which this call's client or session has for itself. `anonymous` is the client that
    /// many people may be.
    pub(super) fn owned(call: &Call, sharing: Sharing, anonymous: Option<usize>) -> Self {
        let session = call.session.clone().filter(|_| sharing.isolation == Isolation::PerSession);
        let is_one_user = session.is_some() || anonymous != Some(call.principal.client);
        let attribution = match (is_one_user, sharing.concurrency) {
            (true, _) => Attribution::OneUser,
            (false, 1) => Attribution::OneCall,
            (false, _) => Attribution::Unknown,
        };
        let capabilities = session.as_ref().map_or_else(everything, |session| session.capabilities.clone());
        let listens = session.as_ref().is_some_and(|session| can_be_asked(Some(&session.capabilities)));
        Self { is_own: true, is_for_lists: false, capabilities, attribution, session, listens }
    }

    /// What is declared to the server: nothing, where whose a question is could not be told.
    pub(super) fn declared(&self, transport: &Transport) -> Raw {
        match transport.attributes_questions() || self.is_for_lists {
            true => self.capabilities.clone(),
            false => Raw::trusted(Bytes::from_static(b"{}")),
        }
    }
}

fn everything() -> Raw {
    Raw::trusted(Bytes::from_static(ASKABLE))
}
