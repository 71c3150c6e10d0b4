//! Whose business a notification is: the way from an upstream's stream to the events of one call.

use crate::exchange::{Call, Event, EventKind, EventSink};
use crate::mcp::{Message, Notification, Raw, key};
use crate::upstream::question::QuestionSink;
use crate::wire::json;

/// Takes the notifications of one call in flight.
#[derive(Clone, Debug)]
pub(super) struct Listener {
    /// Where its events go.
    pub(super) events: EventSink,
    /// The caller's own progress token, if it wants progress.
    pub(super) caller_token: Option<Raw>,
    /// Who takes questions of the server; `None` where nobody can be asked.
    pub(super) questions: Option<QuestionSink>,
    /// What log messages on a stream that many share have to do with the call.
    pub(super) logs: Logs,
}

/// What log messages on a stream that many share have to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logs {
    /// Nothing that anybody could tell.
    Unknown,
    /// They are its own where no other call in flight has asked for any: the server sends none unasked.
    Asked,
}

/// Whose business a notification is that came on the stream of one call.
#[derive(Debug)]
pub(super) enum Concern {
    /// That call's.
    Call(Event),
    /// That of the connection as a whole.
    Connection(Notification),
    /// Nobody's: progress of another call, or progress that nobody asked for.
    Nobody,
}

/// The token of a progress notification, if it has the form that we mint.
pub(super) fn progress_token(notification: &Notification) -> Option<u64> {
    if &*notification.method != "notifications/progress" {
        return None;
    }
    notification.param(key::PROGRESS_TOKEN)?.text().parse().ok()
}

impl Listener {
    /// Who hears the notifications of a call; questions are refused.
    pub(super) fn of(call: &Call, logs: Logs) -> Self {
        Self {
            events: call.events.clone(),
            caller_token: call.hop.progress_token.clone(),
            logs,
            questions: None,
        }
    }

    /// The event that a progress notification of this call is, under the caller's token; `None` if the
    /// caller wants none.
    pub(super) fn progress(&self, notification: &Notification) -> Option<Event> {
        let token = self.caller_token.as_ref()?.bytes().clone();
        let text = notification.draft(&[(key::PROGRESS_TOKEN, Some(token))], &[]).finish();
        match json::parse(text) {
            Ok(Message::Notification(notification)) => {
                Some(Event { kind: EventKind::Progress, notification })
            }
            Ok(Message::Request(_) | Message::Response(_)) | Err(_) => None,
        }
    }

    /// Sorts a notification that came on the stream that belongs to the call with our id `own`.
    pub(super) fn sort(&self, own: u64, notification: Notification) -> Concern {
        match &*notification.method {
            "notifications/progress" => {
                let is_own = progress_token(&notification) == Some(own);
                let event = is_own.then(|| self.progress(&notification)).flatten();
                event.map_or(Concern::Nobody, Concern::Call)
            }
            "notifications/message" => Concern::Call(Event { kind: EventKind::Log, notification }),
            "notifications/tools/list_changed"
            | "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated"
            | "notifications/tasks"
            | "notifications/tasks/status"
            | "notifications/cancelled" => Concern::Connection(notification),
            _ => Concern::Call(Event { kind: EventKind::Other, notification }),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn notification(text: &str) -> Notification {
        match json::parse(Bytes::from(text.to_owned())).unwrap() {
            Message::Notification(notification) => notification,
            other @ (Message::Request(_) | Message::Response(_)) => panic!("{other:?}"),
        }
    }

    fn listener(token: Option<&str>) -> Listener {
        let caller_token = token.map(|token| Raw::trusted(Bytes::from(token.to_owned())));
        Listener { events: EventSink::new().0, caller_token, logs: Logs::Unknown, questions: None }
    }

    #[test]
    fn progress_comes_back_under_the_token_of_the_caller_type_and_digits_kept() {
        let ours = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":0.10,"progressToken":7,"x":1}}"#;
        for token in ["7", "\"7\"", "340282366920938463463374607431768211456", "\"a\\u0062\"", "-0"] {
            let Concern::Call(event) = listener(Some(token)).sort(7, notification(ours)) else { panic!() };
            let expected = ours.replace(":7,", &format!(":{token},"));
            assert_eq!(event.notification.text, expected.as_bytes());
            assert_eq!(event.kind, EventKind::Progress);
        }
    }

    #[test]
    fn progress_of_another_call_is_nobodys() {
        for token in ["8", "\"7\"", "7.0", "null"] {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token}}}}}"#
            );
            let concern = listener(Some("1")).sort(7, notification(&text));
            assert!(matches!(concern, Concern::Nobody), "{token}");
        }
        let ours = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}"#;
        assert!(matches!(listener(None).sort(7, notification(ours)), Concern::Nobody));
    }

    #[test]
    fn changes_of_lists_concern_the_connection_and_the_rest_the_call() {
        let sorted = |method: &str| {
            listener(None).sort(1, notification(&format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#)))
        };
        assert!(matches!(sorted("notifications/tools/list_changed"), Concern::Connection(_)));
        let Concern::Call(event) = sorted("notifications/message") else { panic!() };
        assert_eq!(event.kind, EventKind::Log);
        let Concern::Call(event) = sorted("notifications/x") else { panic!() };
        assert_eq!(event.kind, EventKind::Other);
    }
}
