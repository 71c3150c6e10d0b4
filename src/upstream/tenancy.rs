//! To whom a connection belongs, and what follows from it: what it declares to its server, and whose a question
//! is that comes on no call's stream.
//!
//! Must not know: how connections are made.

use std::sync::Arc;

use bytes::Bytes;

use crate::config::{Isolation, Sharing, Transport};
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
    /// What is declared to a server that asks by requests of its own.
    pub(super) capabilities: Raw,
    /// Whose a question on a pipe is.
    pub(super) attribution: Attribution,
    /// Who can be asked outside of a call.
    pub(super) session: Option<Arc<CallerSession>>,
    /// Whether the server is listened to outside of calls.
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
    pub(super) fn shared(transport: &Transport, sharing: Sharing) -> Self {
        let attribution = match (sharing.isolation, sharing.concurrency) {
            (Isolation::Shared, 1) => Attribution::OneCall,
            _ => Attribution::Unknown,
        };
        // The lists are for everybody: a server that shows less to a client without capabilities shows all.
        let is_askable = attribution == Attribution::OneCall
            || sharing.isolation != Isolation::Shared
            || matches!(transport, Transport::Http(_));
        Self { is_own: false, capabilities: declared(is_askable), attribution, session: None, listens: true }
    }

    /// That of a connection which this call's client or session has for itself. `anonymous` is the client that
    /// many people may be.
    pub(super) fn owned(
        call: &Call,
        (transport, sharing): (&Transport, Sharing),
        anonymous: Option<usize>,
    ) -> Self {
        let session = call.session.clone().filter(|_| sharing.isolation == Isolation::PerSession);
        let is_one_user = session.is_some() || anonymous != Some(call.principal.client);
        let attribution = match (is_one_user, sharing.concurrency) {
            (true, _) => Attribution::OneUser,
            (false, 1) => Attribution::OneCall,
            (false, _) => Attribution::Unknown,
        };
        let is_askable = attribution != Attribution::Unknown || matches!(transport, Transport::Http(_));
        let capabilities = match &session {
            Some(session) => session.capabilities.clone(),
            None => declared(is_askable),
        };
        let listens = session.as_ref().is_some_and(|session| can_be_asked(Some(&session.capabilities)));
        Self { is_own: true, capabilities, attribution, session, listens }
    }
}

fn declared(is_askable: bool) -> Raw {
    Raw::trusted(Bytes::from_static(if is_askable { ASKABLE } else { b"{}" }))
}
