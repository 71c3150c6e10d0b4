//! The demo server that counts words. It speaks the legacy era.
//!
//! Must not know: transports.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::echo::ECHO;
use super::protocol::Server;
use super::tool::{Arguments, Output, Progress, Run, Tool};
use crate::mcp::Era;

/// The server.
pub(super) static SERVER: Server = Server {
    name: "words",
    instructions: "Counts words, characters and lines of a text, and counts slowly to show progress.",
    eras: &[Era::Legacy],
    tools: &[&COUNT_WORDS, &SLOW_COUNT, &ECHO],
};

static COUNT_WORDS: Tool = Tool {
    name: "count_words",
    definition: r#"{"name":"count_words","title":"Count words","description":"Counts the words, characters and lines of a text.","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"The text to count in."}},"required":["text"]},"outputSchema":{"type":"object","properties":{"words":{"type":"integer"},"characters":{"type":"integer"},"lines":{"type":"integer"}},"required":["words","characters","lines"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Now(count_words),
};

fn count_words(arguments: &Arguments) -> Result<Output, String> {
    let text = arguments.text("text")?;
    Ok(Output::data(json!({
        "words": text.split_whitespace().count(),
        "characters": text.chars().count(),
        "lines": text.lines().count(),
    })))
}

static SLOW_COUNT: Tool = Tool {
    name: "slow_count",
    definition: r#"{"name":"slow_count","title":"Count slowly","description":"Counts up to a number, one step at a time, and reports each step as progress.","inputSchema":{"type":"object","properties":{"to":{"type":"integer","minimum":1,"maximum":100,"default":5,"description":"Where to stop."},"delay_ms":{"type":"integer","minimum":0,"maximum":2000,"default":200,"description":"Milliseconds between two steps."}}},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Slow(slow_count),
};

fn slow_count(arguments: Arguments, progress: Progress) -> BoxFuture<'static, Result<Output, String>> {
    Box::pin(async move {
        let to = arguments.integer("to", 5, 1, 100)?.unsigned_abs();
        let delay = Duration::from_millis(arguments.integer("delay_ms", 200, 0, 2000)?.unsigned_abs());
        for step in 1..=to {
            tokio::time::sleep(delay).await;
            progress.report(step, to, &format!("{step} of {to}")).await;
        }
        Ok(Output::text(&format!("Counted to {to}.")))
    })
}
