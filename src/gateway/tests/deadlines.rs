//! How long calls are waited for: without a word, with progress, and altogether. The clock is paused.

use super::*;
use crate::exchange::{Event, EventKind};

/// Never answers; says something each second and a half, so many times, of the kind that a tool is named after.
struct Talking {
    inner: Arc<Scripted>,
    times: usize,
}

impl Upstream for Talking {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.inner.offer()
    }

    fn followed(&self) -> &Arc<Followed> {
        self.inner.followed()
    }

    fn call(&self, call: AdmittedCall) -> BoxFuture<'_, Result<Outcome, GatewayError>> {
        let times = self.times;
        async move {
            let kind = match &*call.target().native {
                "progress" => EventKind::Progress,
                _ => EventKind::Log,
            };
            for _ in 0..times {
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                call.call().events.send(Event { kind, notification: notification() }).await;
            }
            std::future::pending().await
        }
        .boxed()
    }
}

fn notification() -> crate::mcp::Notification {
    let text = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
    let Ok(Message::Notification(notification)) = json::parse(Bytes::from(text)) else { unreachable!() };
    notification
}

/// How long a call of `tool` takes, and what its caller is told.
async fn time_of(
    tool: &str,
    times: usize,
    change: impl FnOnce(&mut crate::config::UpstreamConfig),
) -> (Duration, String) {
    let a = Arc::new(Talking { inner: scripted("a", ready(&["progress", "log"])), times });
    let gateway = gateway(vec![a, scripted("b", ready(&[]))], |config| {
        let upstream = Arc::make_mut(&mut config.upstreams[0]);
        upstream.timeout = Duration::from_secs(2);
        change(upstream);
    });
    refreshed(&gateway).await;
    let (events, mut heard) = EventSink::new();
    let slow = Call { events, ..call(0, &format!("a__{tool}")) };
    let began = tokio::time::Instant::now();
    let reading = async {
        while heard.recv().await.is_some() {}
        std::future::pending::<()>().await
    };
    let error = tokio::select! {
        result = gateway.call(slow) => result.unwrap_err(),
        () = reading => unreachable!("it waits"),
    };
    assert_eq!((error.kind, error.executed), (GatewayErrorKind::Timeout, Executed::Unknown));
    (began.elapsed(), error.text.into_owned())
}

fn is_about(time: Duration, millis: u64) -> bool {
    time.as_millis().abs_diff(u128::from(millis)) <= 5
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_call_after_its_timeout() {
    let (time, text) = time_of("log", 0, |_| {}).await;
    assert!(is_about(time, 2_000) && text.contains("within 2 s"), "{time:?} {text}");
}

#[tokio::test(start_paused = true)]
async fn each_word_of_progress_begins_the_timeout_anew() {
    let (time, text) = time_of("progress", 3, |_| {}).await;
    assert!(is_about(time, 6_500) && text.contains("within 2 s of its last progress"), "{time:?} {text}");
}

#[tokio::test(start_paused = true)]
async fn log_messages_put_nothing_off() {
    let (time, _) = time_of("log", 3, |_| {}).await;
    assert!(is_about(time, 2_000), "{time:?}");
}

#[tokio::test(start_paused = true)]
async fn progress_without_end_ends_after_the_most_that_a_call_may_take() {
    let (time, text) = time_of("progress", 1_000, |_| {}).await;
    assert!(is_about(time, 20_000) && text.contains("within 20 s, the most"), "ten times: {time:?} {text}");
    let (time, text) = time_of("progress", 1_000, |upstream| {
        upstream.resilience.max_timeout = Some(Duration::from_millis(7_200));
    })
    .await;
    assert!(is_about(time, 7_200) && text.contains("within 7.2 s, the most"), "{time:?} {text}");
    let (time, _) = time_of("progress", 1_000, |upstream| {
        upstream.resilience.max_timeout = Some(Duration::from_secs(1));
    })
    .await;
    assert!(is_about(time, 2_000), "never less than the timeout: {time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_the_timeout_of_the_first_pattern_that_matches_it() {
    let timeouts = |upstream: &mut crate::config::UpstreamConfig| {
        let entry = |pattern: &str, seconds| (Pattern::from(pattern), Duration::from_secs(seconds));
        upstream.resilience.timeouts = vec![entry("prog*", 1), entry("*", 5), entry("log", 9)];
    };
    let (time, text) = time_of("progress", 9, timeouts).await;
    assert!(is_about(time, 1_000) && text.contains("within 1 s"), "{time:?} {text}");
    let (time, _) = time_of("log", 0, timeouts).await;
    assert!(is_about(time, 5_000), "{time:?}");
}
