//! The stream of what a legacy server behind HTTP says by itself.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Session;
use crate::upstream::backoff::Backoff;
use crate::upstream::failure::Failure;
use crate::upstream::transport::http::Endpoint;

/// The first wait before a stream is opened again. It doubles: some eight tries in half a minute.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a stream must have lived for the next wait to be a short one again.
const SUSTAINED: Duration = Duration::from_secs(30);
/// The longest wait that a server may ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(300);

/// Why a stream is over.
enum End {
    /// The server has none, or will not give it to us.
    Never,
    /// Its session is gone: a new one may have a stream again.
    Session,
    /// It broke, and may be opened again, after the wait that the server asked for.
    Broken(Option<Duration>),
}

/// What is known of the streams before.
pub(super) struct Course {
    /// The id of the last event, where they have ids.
    last_id: Option<String>,
    /// Whether something may have been told before this stream.
    was_open: bool,
    /// Has that looked at again which may have been told while nobody listened.
    doubt: fn(&Endpoint),
}

impl Course {
    /// That of the connection that all share: nothing is read or subscribed to there before it listens.
    pub(super) fn shared() -> Self {
        Self { last_id: None, was_open: false, doubt: Endpoint::doubt_all }
    }

    /// That of a connection of somebody's own: its first call may change lists before it listens. Nothing is
    /// subscribed to there.
    pub(super) fn own() -> Self {
        Self { last_id: None, was_open: true, doubt: Endpoint::doubt_lists }
    }
}

/// Listens for as long as the server has such a stream, and says nothing to it that it did not ask for.
pub(super) async fn listen(endpoint: Endpoint, mut sessions: watch::Receiver<Session>, mut course: Course) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let session = sessions.borrow_and_update().clone();
        let opened = Instant::now();
        let reading = read(&endpoint, &session, &mut course);
        let end = tokio::select! {
            end = Box::pin(reading) => end,
            Ok(()) = sessions.changed() => {
                course.last_id = None;
                continue;
            }
        };
        if opened.elapsed() >= SUSTAINED {
            backoff.reset();
        }
        match end {
            End::Never => return,
            End::Session => {
                course.last_id = None;
                // Reading the lists makes a new session, where no call does.
                (course.doubt)(&endpoint);
                if sessions.changed().await.is_err() {
                    return;
                }
            }
            End::Broken(retry) => {
                let wait = backoff.next().max(retry.unwrap_or_default().min(LONGEST_RETRY));
                tokio::select! {
                    () = sleep(wait) => {}
                    Ok(()) = sessions.changed() => course.last_id = None,
                }
            }
        }
    }
}

async fn read(endpoint: &Endpoint, session: &Session, course: &mut Course) -> End {
    let mut stream = match endpoint.listen(&session.headers, course.last_id.as_deref()).await {
        Ok(stream) => stream,
        Err(failure) => return end_of(&failure, session),
    };
    if std::mem::replace(&mut course.was_open, true) && course.last_id.is_none() {
        // What changed meanwhile was told to nobody.
        (course.doubt)(endpoint);
    }
    while let Ok(Some(event)) = stream.next().await {
        endpoint.hear(event.data, &session.headers);
    }
    course.last_id = stream.last_id().map(str::to_owned).or(course.last_id.take());
    End::Broken(stream.retry())
}

fn end_of(failure: &Failure, session: &Session) -> End {
    match failure.status {
        Some(404) if session.id.is_some() => End::Session,
        Some(200..=499) => End::Never,
        Some(_) | None => End::Broken(None),
    }
}
