//! A ready connection to a server, whichever era it is of.

use std::sync::Arc;

use tokio::time::Instant;

use super::failure::Failure;
use super::legacy::Legacy;
use super::modern::Modern;
use super::question::QuestionSink;
use super::seats::{Seat, Seats};
use super::wire::Wire;
use crate::config::Sharing;
use crate::exchange::{Call, Outcome};
use crate::gateway::Followed;
use crate::mcp::{Raw, Response, tells_of_resources};
use crate::translate::hello::Hello;
use crate::wire::mirror::Mirrors;

/// A ready connection.
#[derive(Debug)]
pub(super) struct Connection {
    dialect: Dialect,
    seats: Arc<Seats>,
}

/// How its server is spoken with.
#[derive(Debug)]
pub(super) enum Dialect {
    Legacy(Legacy),
    Modern(Modern),
}

impl Connection {
    pub(super) fn new(dialect: Dialect, sharing: Sharing) -> Self {
        Self { dialect, seats: Seats::new(sharing) }
    }

    /// Takes the right to one call in flight, or waits for it until `deadline`.
    ///
    /// # Errors
    /// If too many wait already, or none ends in time.
    pub(super) async fn seat(&self, client: usize, deadline: Instant) -> Result<Seat, Failure> {
        self.seats.take(client, deadline).await
    }

    /// Whether calls are in flight on it.
    pub(super) fn is_busy(&self) -> bool {
        self.seats.are_taken()
    }

    /// Whether its server keeps something for this connection that another one does not have: a process, or a
    /// session. A modern server behind HTTP never does.
    pub(super) fn has_state(&self) -> bool {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.has_session(),
            Dialect::Modern(_) => !self.wire().is_http(),
        }
    }

    /// Whether its server asks by requests of its own, which belong to a call that can be told.
    pub(super) fn asks_by_request(&self) -> bool {
        matches!(&self.dialect, Dialect::Legacy(legacy) if legacy.wire().transport.attributes_questions())
    }

    /// Whether retries mean anything to its server.
    pub(super) fn knows_retries(&self) -> bool {
        matches!(&self.dialect, Dialect::Modern(_))
    }

    /// What it is asked to see whether it lives.
    pub(super) fn sign_of_life(&self) -> &'static str {
        match &self.dialect {
            Dialect::Legacy(_) => "ping",
            Dialect::Modern(_) => "server/discover",
        }
    }

    /// What the server said about itself.
    pub(super) fn hello(&self) -> &Hello {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.hello(),
            Dialect::Modern(modern) => modern.hello(),
        }
    }

    /// The connection below the era.
    pub(super) fn wire(&self) -> &Wire {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.wire(),
            Dialect::Modern(modern) => modern.wire(),
        }
    }

    /// Carries one call of somebody who has a seat. Dropping the future cancels it upstream.
    ///
    /// # Errors
    /// Whatever keeps the answer from coming; an error of the server is an outcome.
    pub(super) async fn call(
        &self,
        call: &Call,
        native: &str,
        questions: Option<QuestionSink>,
    ) -> Result<Outcome, Failure> {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.call(call, native, questions).await,
            Dialect::Modern(modern) => modern.call(call, native).await,
        }
    }

    /// Asks something of our own.
    ///
    /// # Errors
    /// Whatever keeps the answer from coming.
    pub(super) async fn ask(&self, method: &str, params: &[(&str, Raw)]) -> Result<Response, Failure> {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.ask(method, params).await,
            Dialect::Modern(modern) => modern.ask(method, params).await,
        }
    }

    /// Whether its server tells of changes of single resources; one that said nothing about itself may.
    pub(super) fn tells_of_resources(&self) -> bool {
        self.hello().capabilities.as_ref().is_none_or(tells_of_resources)
    }

    /// Keeps the server telling of what clients follow, for as long as the future lives. It does not end.
    pub(super) async fn follow(&self, followed: &Followed) {
        match &self.dialect {
            Dialect::Legacy(legacy) if self.tells_of_resources() => legacy.follow(followed).await,
            Dialect::Legacy(_) => {
                followed.unsettle();
                std::future::pending().await
            }
            Dialect::Modern(modern) => modern.follow(followed).await,
        }
    }

    /// Whether arguments of calls go into headers, too.
    pub(super) fn mirrors_arguments(&self) -> bool {
        self.wire().is_http() && matches!(self.dialect, Dialect::Modern(_))
    }

    /// From now on the arguments that these name go into headers.
    pub(super) fn mirror(&self, mirrors: Arc<Mirrors>) {
        if let Dialect::Modern(modern) = &self.dialect {
            modern.mirror(mirrors);
        }
    }

    /// Waits until the server is listened to, as far as it can be, but not for long.
    pub(super) async fn listening(&self) {
        if let Dialect::Legacy(legacy) = &self.dialect {
            legacy.listening().await;
        }
    }

    /// Waits until the connection is of no use any more. Cancel safe.
    pub(super) async fn closed(&self) -> Failure {
        self.wire().transport.closed().await
    }

    /// Ends it in good order, and waits for that.
    pub(super) async fn stop(&self) {
        match &self.dialect {
            Dialect::Legacy(legacy) => legacy.stop().await,
            Dialect::Modern(modern) => modern.stop().await,
        }
    }
}
