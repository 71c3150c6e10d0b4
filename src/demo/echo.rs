//! The tool that every demo server has, for trials with `curl` and for measuring.
//!
//! Must not know: the other tools.

use super::tool::{Arguments, Output, Run, Tool};

/// Gives its argument back, byte for byte: the text is never decoded.
pub(super) static ECHO: Tool = Tool {
    name: "echo",
    definition: r#"{"name":"echo","title":"Echo","description":"Returns its text unchanged.","inputSchema":{"type":"object","properties":{"text":{"type":"string","description":"What to return."}},"required":["text"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Now(run),
};

fn run(arguments: &Arguments) -> Result<Output, String> {
    Ok(Output { text: arguments.raw_text("text")?, structured: None })
}
