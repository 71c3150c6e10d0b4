//! The ids of events: where in which stream of which session one stands, sealed. Nobody can make one up, and one
//! of another session means nothing.
//!
//! That of a call names a place in what is kept. That of a session's own stream says what its client had been
//! told, so nothing has to be kept for it.
//!
//! Must not know: how events are kept, and sent.

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::config::Sessions;
use crate::gateway::Seen;
use crate::mcp::{Id, ListKind};
use crate::seal::{Purpose, SealError, Sealer};

/// Longest id of a request that is put into ids of events, in bytes.
const MAX_REQUEST_ID: usize = 64;

/// Seals and opens the ids of events.
pub(super) struct EventIds(Sealer);

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// In the stream of a call.
    Call(CallPosition),
    /// In a session's own stream.
    Session(SessionPosition),
}

/// A place in the stream of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallPosition {
    /// The stream.
    pub(super) stream: u64,
    /// The number of the event within it.
    pub(super) number: u64,
    /// The id of the request; `None` where there are several, or it is very long.
    pub(super) request: Option<Id>,
}

/// What the client of a session had been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionPosition {
    /// Of the lists.
    pub(super) seen: Seen,
    /// How many updates of resources.
    pub(super) updates: u64,
}

/// What an id says, behind a digest of its session.
#[derive(Serialize, Deserialize)]
enum Place {
    #[serde(rename = "c")]
    Call(u64, u64, Option<Box<str>>),
    #[serde(rename = "s")]
    Session(Vec<(Box<str>, Box<str>)>, u64),
}

impl EventIds {
    /// # Errors
    /// If the key cannot be set up.
    pub(super) fn new(config: &Sessions) -> Result<Self, SealError> {
        Ok(Self(Sealer::new(config, Purpose::Event)?))
    }

    /// The id of an event, in visible ASCII; the same for the same place.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub(super) fn write(&self, session: &str, position: &Position) -> Result<String, SealError> {
        let place = match position {
            Position::Call(CallPosition { stream, number, request }) => {
                let request = request.as_ref().and_then(|id| std::str::from_utf8(id.bytes()).ok());
                let request = request.filter(|id| id.len() <= MAX_REQUEST_ID).map(Box::from);
                Place::Call(*stream, *number, request)
            }
            Position::Session(SessionPosition { seen, updates }) => {
                let digests = seen.digests().map(|(kind, digest)| (kind.entries_key().into(), digest.into()));
                Place::Session(digests.collect(), *updates)
            }
        };
        let mut content = tag(session).to_vec();
        serde_json::to_writer(&mut content, &place).map_err(|_| SealError)?;
        self.0.seal_name(&content)
    }

    /// Where the event with this id stands; `None` for what is no id of this session.
    pub(super) fn read(&self, session: &str, id: &str) -> Option<Position> {
        let opened = self.0.open(id)?;
        let place = opened.content.strip_prefix(&tag(session))?;
        Some(match serde_json::from_slice(place).ok()? {
            Place::Call(stream, number, request) => {
                let request = request.and_then(|id| Id::from_text(String::from(id).into()));
                Position::Call(CallPosition { stream, number, request })
            }
            Place::Session(digests, updates) => {
                let kind_of = |key: &str| ListKind::ALL.into_iter().find(|kind| kind.entries_key() == key);
                let digests = digests.into_iter().filter_map(|(key, digest)| Some((kind_of(&key)?, digest)));
                Position::Session(SessionPosition { seen: digests.collect(), updates })
            }
        })
    }
}

fn tag(session: &str) -> [u8; 16] {
    let mut tag = [0; 16];
    let digest = digest(&SHA256, session.as_bytes());
    tag.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
    tag
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::for_test;

    fn ids() -> EventIds {
        EventIds::new(&for_test::config(&[], &[]).sessions).unwrap()
    }

    fn in_call(request: Option<&'static str>) -> Position {
        let request = request.and_then(|id| Id::from_text(id.into()));
        Position::Call(CallPosition { stream: u64::MAX, number: 7, request })
    }

    #[test]
    fn an_id_means_something_in_its_session_only() {
        let (ids, of_another_process) = (ids(), ids());
        let seen = [(ListKind::Tools, "abc".into()), (ListKind::Prompts, "d".into())].into_iter().collect();
        let in_session = Position::Session(SessionPosition { seen, updates: 3 });
        for position in [in_call(Some("7")), in_call(Some("\"a\"")), in_call(None), in_session] {
            let id = ids.write("one", &position).unwrap();
            assert!(id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id}");
            assert_eq!(ids.read("one", &id).as_ref(), Some(&position));
            assert_eq!(ids.read("other", &id), None);
            assert_eq!(of_another_process.read("one", &id), None, "another key");
        }
    }

    #[test]
    fn a_very_long_id_of_a_request_is_left_out() {
        let long = format!("\"{}\"", "a".repeat(MAX_REQUEST_ID));
        let request = Id::from_text(long.into());
        let position = Position::Call(CallPosition { stream: 1, number: 2, request });
        let ids = ids();
        let read = ids.read("one", &ids.write("one", &position).unwrap());
        assert_eq!(read, Some(Position::Call(CallPosition { stream: 1, number: 2, request: None })));
    }

    proptest! {
        #[test]
        fn nobody_makes_one_up(text in ".{0,100}") {
            prop_assert_eq!(ids().read("one", &text), None);
        }
    }
}
