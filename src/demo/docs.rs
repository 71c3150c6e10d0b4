//! The demo server with a few pages about MCP and gateways. It speaks both eras.
//!
//! Must not know: transports.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::echo::ECHO;
use super::protocol::Server;
use super::tool::{Arguments, Output, Progress, Run, Tool};
use crate::mcp::Era;

/// The server.
pub(super) static SERVER: Server = Server {
    name: "docs",
    instructions: "Searches, reads and summarizes a few pages about MCP. Search first, then read by id.",
    eras: &[Era::Legacy, Era::Modern],
    tools: &[&SEARCH_DOCS, &READ_DOC, &SUMMARIZE, &ECHO],
};

/// A page.
struct Page {
    id: &'static str,
    title: &'static str,
    text: &'static str,
}

static PAGES: [Page; 6] = [
    Page {
        id: "tools",
        title: "Tools",
        text: "A tool is a function that a model may call. It has a name, a description and a JSON Schema for \
               its arguments. A client lists tools with tools/list and calls one with tools/call. A tool that \
               fails says so in its result, so that the model can read the reason and try something else.",
    },
    Page {
        id: "transports",
        title: "Transports",
        text: "Messages travel over standard input and output of a child process, or over HTTP. On stdio each \
               message is one line. Over HTTP each message is a POST, and the answer is one JSON object or a \
               stream of events that ends with the response.",
    },
    Page {
        id: "eras",
        title: "Eras",
        text: "Revisions up to 2025-11-25 open with an initialize handshake and may keep a session. From \
               2026-07-28 on every request stands alone and carries its own version and capabilities. The two \
               do not understand each other, so a gateway translates between them.",
    },
    Page {
        id: "progress",
        title: "Progress",
        text: "A request may carry a progress token. The server may then send progress notifications under \
               that token before it answers. Each notification says how much is done, and often how much there \
               is to do. They stop once the answer is there.",
    },
    Page {
        id: "names",
        title: "Names behind a gateway",
        text: "A gateway offers the tools of many servers at one endpoint. To keep them apart it puts the name \
               of the server in front of the name of the tool. The server itself sees its own name. Two \
               servers may thus have tools of one name without a clash.",
    },
    Page {
        id: "limits",
        title: "Limits",
        text: "A limit says how many calls a client may make in a period. A refused call says when to try \
               again. A limit of one client does not touch another. A gateway also guards itself against \
               floods of requests that are no calls at all.",
    },
];

static SEARCH_DOCS: Tool = Tool {
    name: "search_docs",
    definition: r#"{"name":"search_docs","title":"Search pages","description":"Finds the pages that hold the words of a query, best first.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"Words to look for."},"limit":{"type":"integer","minimum":1,"maximum":10,"default":5,"description":"How many pages at most."}},"required":["query"]},"outputSchema":{"type":"object","properties":{"matches":{"type":"array","items":{"type":"object","properties":{"id":{"type":"string"},"title":{"type":"string"},"snippet":{"type":"string"}},"required":["id","title","snippet"]}}},"required":["matches"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Now(search_docs),
};

fn search_docs(arguments: &Arguments) -> Result<Output, String> {
    let query = arguments.text("query")?;
    let limit = usize::try_from(arguments.integer("limit", 5, 1, 10)?).unwrap_or(5);
    let wanted: Vec<String> = words(&query).collect();
    if wanted.is_empty() {
        return Err("`query` holds no word".to_owned());
    }
    let score = |page: &Page| {
        let count = |text: &str| words(text).filter(|word| wanted.contains(word)).count();
        3 * count(page.title) + count(page.text)
    };
    let mut found: Vec<(usize, &Page)> =
        PAGES.iter().map(|page| (score(page), page)).filter(|(score, _)| *score > 0).collect();
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let best = |page: &Page| {
        let hits = |sentence: &str| words(sentence).filter(|word| wanted.contains(word)).count();
        // The first of the best: `max_by_key` would give the last.
        sentences(page.text).into_iter().rev().max_by_key(|sentence| hits(sentence)).unwrap_or_default()
    };
    let matches: Vec<_> = found
        .iter()
        .take(limit)
        .map(|(_, page)| json!({"id": page.id, "title": page.title, "snippet": best(page)}))
        .collect();
    Ok(Output::data(json!({"matches": matches})))
}

static READ_DOC: Tool = Tool {
    name: "read_doc",
    definition: r#"{"name":"read_doc","title":"Read a page","description":"Returns a page by its id.","inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"The id, from search_docs."}},"required":["id"]},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Now(read_doc),
};

fn read_doc(arguments: &Arguments) -> Result<Output, String> {
    let page = page(&arguments.text("id")?)?;
    Ok(Output::text(&format!("# {}\n\n{}", page.title, page.text)))
}

fn page(id: &str) -> Result<&'static Page, String> {
    PAGES.iter().find(|page| page.id == id).ok_or_else(|| {
        let ids: Vec<&str> = PAGES.iter().map(|page| page.id).collect();
        format!("there is no page {id:?}; there are {}", ids.join(", "))
    })
}

static SUMMARIZE: Tool = Tool {
    name: "summarize",
    definition: r#"{"name":"summarize","title":"Summarize","description":"Picks the sentences that say most about a page, or about a text of your own. Takes a moment, and reports its progress.","inputSchema":{"type":"object","properties":{"id":{"type":"string","description":"The id of a page."},"text":{"type":"string","description":"A text, instead of a page."},"sentences":{"type":"integer","minimum":1,"maximum":10,"default":2,"description":"How many sentences to keep."}}},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}"#,
    run: Run::Slow(summarize),
};

/// Long enough to be seen as a stream, short enough not to annoy.
const STEP: Duration = Duration::from_millis(60);

fn summarize(arguments: Arguments, progress: Progress) -> BoxFuture<'static, Result<Output, String>> {
    Box::pin(async move {
        let text = match (arguments.optional_text("id")?, arguments.optional_text("text")?) {
            (Some(id), None) => page(&id)?.text.to_owned(),
            (None, Some(text)) => text,
            (Some(_), Some(_)) | (None, None) => return Err("give either `id` or `text`".to_owned()),
        };
        let keep = usize::try_from(arguments.integer("sentences", 2, 1, 10)?).unwrap_or(2);
        for (step, message) in (1..).zip(["reading", "weighing the sentences", "choosing"]) {
            tokio::time::sleep(STEP).await;
            progress.report(step, 3, message).await;
        }
        Ok(Output::text(&summary(&text, keep)))
    })
}

/// The sentences whose words are the most frequent ones of the text, in the order of the text.
fn summary(text: &str, keep: usize) -> String {
    let mut frequency: HashMap<String, usize> = HashMap::new();
    for word in words(text).filter(|word| word.chars().count() > 3) {
        *frequency.entry(word).or_default() += 1;
    }
    let weight = |sentence: &str| {
        let count = words(sentence).count().max(1);
        let sum: usize = words(sentence).filter_map(|word| frequency.get(&word)).sum();
        sum * 1000 / count
    };
    let mut ranked: Vec<(usize, &str)> = sentences(text).into_iter().enumerate().collect();
    ranked.sort_by_key(|(place, sentence)| (std::cmp::Reverse(weight(sentence)), *place));
    ranked.truncate(keep);
    ranked.sort_by_key(|(place, _)| *place);
    let kept: Vec<&str> = ranked.into_iter().map(|(_, sentence)| sentence).collect();
    kept.join(" ")
}

fn sentences(text: &str) -> Vec<&str> {
    text.split_inclusive(['.', '!', '?']).map(str::trim).filter(|sentence| !sentence.is_empty()).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::Raw;

    fn search(query: &str) -> Vec<String> {
        let arguments = Arguments::new(Some(Raw::from_value(&json!({"query": query}))));
        let found = search_docs(&arguments).unwrap().structured.unwrap();
        let ids = found["matches"].as_array().unwrap().iter();
        ids.map(|found| found["id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn search_finds_the_page_that_is_about_it() {
        assert_eq!(search("progress token").first().unwrap(), "progress");
        assert_eq!(search("ERAS").first().unwrap(), "eras");
        assert!(search("xylophone").is_empty());
        assert!(search_docs(&Arguments::new(Some(Raw::from_value(&json!({"query": " "}))))).is_err());
    }

    #[test]
    fn a_summary_keeps_whole_sentences_in_their_order() {
        let text = "Cats purr loudly. Dogs bark. Cats love cats and cats. Fish swim.";
        assert_eq!(summary(text, 2), "Cats purr loudly. Cats love cats and cats.");
        assert_eq!(summary(text, 9), text);
        assert_eq!(summary("", 2), "");
    }
}
