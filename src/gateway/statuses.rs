//! What a server said last of each of its tasks, for whoever owns them.
//!
//! There is no queue: of a task, the last word stays. Each has a number; who listens remembers the last one that it
//! has looked at.
//!
//! Spec: 2025-11-25, basic/utilities/tasks, "Task Status Notification". They are optional, and may be left out.
//!
//! Must not know: whose a task is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::mcp::Notification;

/// Tasks of one upstream of which something is remembered; what was said longest ago goes first.
const MOST: usize = 1024;

/// What one server said last of its tasks.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    last: u64,
    /// By its number: what was said, and of which task.
    said: BTreeMap<u64, (Arc<str>, Notification)>,
    /// By the server's own id of the task: the number.
    of: HashMap<Arc<str>, u64>,
}

impl Statuses {
    /// Notes what was said of a task, in place of what was said of it before.
    pub(super) fn note(&mut self, task: &str, said: Notification) {
        self.last += 1;
        let task: Arc<str> = task.into();
        if let Some(before) = self.of.insert(Arc::clone(&task), self.last) {
            self.said.remove(&before);
        }
        self.said.insert(self.last, (task, said));
        while self.said.len() > MOST
            && let Some((_, (task, _))) = self.said.pop_first()
        {
            self.of.remove(&task);
        }
    }

    /// The number of what was said last.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// What was said first after that with the number `seen`, and its own number.
    pub(super) fn after(&self, seen: u64) -> Option<(u64, Notification)> {
        let (number, (_, said)) = self.said.range(seen.saturating_add(1)..).next()?;
        Some((*number, said.clone()))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::mcp::Message;
    use crate::wire::json;

    fn said(text: &str) -> Notification {
        let text =
            format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"x":"{text}"}}}}"#);
        match json::parse(Bytes::from(text)) {
            Ok(Message::Notification(notification)) => notification,
            other => panic!("{other:?}"),
        }
    }

    fn all(statuses: &Statuses, mut seen: u64) -> Vec<String> {
        let next = std::iter::from_fn(|| {
            let (number, said) = statuses.after(seen)?;
            seen = number;
            said.param_string("x")
        });
        next.collect()
    }

    #[test]
    fn of_each_task_the_last_word_stays() {
        let mut statuses = Statuses::default();
        for (task, text) in [("a", "a1"), ("b", "b1"), ("a", "a2")] {
            statuses.note(task, said(text));
        }
        assert_eq!(all(&statuses, 0), ["b1", "a2"]);
        assert_eq!(all(&statuses, 2), ["a2"]);
        assert_eq!(all(&statuses, statuses.last()), [""; 0]);
    }

    #[test]
    fn what_was_said_longest_ago_goes_first() {
        let mut statuses = Statuses::default();
        for number in 0..=MOST {
            statuses.note(&number.to_string(), said(&number.to_string()));
        }
        let all = all(&statuses, 0);
        assert_eq!((all.len(), &*all[0], statuses.of.len()), (MOST, "1", MOST));
    }
}
