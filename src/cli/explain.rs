//! `waypost explain` and `waypost who`: who may use what, and why.
//!
//! Asks a running gateway through its admin address, or connects to the upstreams of the file itself.
//!
//! Must not know: how it is decided.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use url::Url;

use super::check::Report;
use crate::gateway::{Explanation, Question, Step, StepOutcome, Topic, Unanswerable, Verdict};
use crate::mcp::ListKind;

/// What is asked about, as it stands on the command line.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct Subject {
    /// A tool, by the name that clients see.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// A prompt, by the name that clients see.
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// A resource, by its URI.
    #[arg(long, value_name = "URI")]
    resource: Option<String>,
    /// An extension of the protocol, by its identifier, like `com.example/search`.
    #[arg(long, value_name = "ID")]
    extension: Option<String>,
}

/// Where the answer comes from, and in which form.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Source {
    /// Ask the running gateway whose admin address this is, like `http://127.0.0.1:9090`. Without it, the
    /// upstreams of the file are connected to for the occasion.
    #[arg(long, value_name = "URL")]
    admin: Option<Url>,
    /// At which endpoint, by its path; without it `/mcp`, or else the first of the file.
    #[arg(long, value_name = "PATH")]
    endpoint: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Bytes of an answer of a gateway that are read.
const MAX_ANSWER: usize = 16 << 20;

/// Says whether a client may use something, and why. The client may be left out where there is only one.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn explain(
    file: &Path,
    client: Option<&str>,
    subject: &Subject,
    source: &Source,
) -> anyhow::Result<Report> {
    let question = Question { endpoint: source.endpoint.clone(), ..subject.question() };
    let explanations = match (&source.admin, client) {
        (Some(admin), Some(client)) => vec![ask(admin, "explain", Some(client), &question).await?],
        (Some(admin), None) => ask_all(admin, &question).await?,
        (None, client) => look(file, client, &question).await?,
    };
    let [explanation] = explanations.as_slice() else {
        let known: Vec<&str> = explanations.iter().map(|one| &*one.client).collect();
        bail!("say for whom: `--client` is one of {}", known.join(", "));
    };
    let stdout = if source.json { json(explanation)? } else { page(explanation) };
    Ok(Report { stdout, stderr: String::new(), code: code(explanation.verdict) })
}

/// Says who may use something. Ends with 0 if anybody may.
///
/// # Errors
/// If nobody can be asked.
pub(super) async fn who(file: &Path, subject: &Subject, source: &Source) -> anyhow::Result<Report> {
    let question = Question { endpoint: source.endpoint.clone(), ..subject.question() };
    let explanations = match &source.admin {
        Some(admin) => ask_all(admin, &question).await?,
        None => look(file, None, &question).await?,
    };
    let stdout = if source.json { json(&explanations)? } else { table(&question, &explanations) };
    let best = explanations.iter().map(|one| code(one.verdict)).min();
    Ok(Report { stdout, stderr: String::new(), code: best.unwrap_or_else(|| code(Verdict::Denied)) })
}

impl Subject {
    fn question(&self) -> Question {
        let named = |topic: Topic, name: &Option<String>| {
            name.clone().map(|name| Question { topic, name, endpoint: None })
        };
        named(Topic::Listed(ListKind::Tools), &self.tool)
            .or_else(|| named(Topic::Listed(ListKind::Prompts), &self.prompt))
            .or_else(|| named(Topic::Listed(ListKind::Resources), &self.resource))
            .or_else(|| named(Topic::Extension, &self.extension))
            // The command line has one of them, or has been refused.
            .unwrap_or_else(|| {
                let topic = Topic::Listed(ListKind::Tools);
                Question { topic, name: String::new(), endpoint: None }
            })
    }
}

/// How the program ends.
fn code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Allowed => 0,
        Verdict::Denied => 3,
        Verdict::Unknown => 4,
        Verdict::Unavailable => 5,
    }
}

/// Connects to the upstreams of the file.
async fn look(file: &Path, client: Option<&str>, question: &Question) -> anyhow::Result<Vec<Explanation>> {
    let config = super::load(file)?;
    let explained: Result<Vec<Explanation>, Unanswerable> =
        crate::app::look(config, async |gateway| match client {
            Some(client) => gateway.explain(client, question).map(|one| vec![one]),
            None => gateway.explain_all(question),
        })
        .await;
    Ok(explained?)
}

#[derive(Deserialize)]
struct One {
    explanation: Explanation,
}

#[derive(Deserialize)]
struct All {
    explanations: Vec<Explanation>,
}

async fn ask(
    admin: &Url,
    page: &str,
    client: Option<&str>,
    question: &Question,
) -> anyhow::Result<Explanation> {
    let body = fetch(admin, page, client, question).await?;
    let one: One = serde_json::from_slice(&body).context("the gateway gave an answer of another version")?;
    Ok(one.explanation)
}

async fn ask_all(admin: &Url, question: &Question) -> anyhow::Result<Vec<Explanation>> {
    let body = fetch(admin, "who", None, question).await?;
    let all: All = serde_json::from_slice(&body).context("the gateway gave an answer of another version")?;
    Ok(all.explanations)
}

#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// Reads a page of the admin listener.
async fn fetch(
    admin: &Url,
    page: &str,
    client: Option<&str>,
    question: &Question,
) -> anyhow::Result<bytes::Bytes> {
    if admin.scheme() != "http" {
        bail!("the admin listener speaks http: write `--admin http://…`");
    }
    let mut url = admin.join(&format!("/api/{page}"))?;
    {
        let mut query = url.query_pairs_mut();
        if let Some(client) = client {
            query.append_pair("client", client);
        }
        if let Some(endpoint) = &question.endpoint {
            query.append_pair("endpoint", endpoint);
        }
        query.append_pair(question.topic.noun(), &question.name);
    }
    let host = url.host_str().context("the admin address has no host")?.to_owned();
    let port = url.port_or_known_default().unwrap_or(80);
    let address = (host.trim_start_matches('[').trim_end_matches(']'), port);
    let socket = tokio::net::TcpStream::connect(address).await;
    let socket = socket.with_context(|| format!("no gateway answers at {host}:{port}"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let request = http::Request::get(&url[url::Position::BeforePath..])
        .header(http::header::HOST, format!("{host}:{port}"))
        .body(Empty::<bytes::Bytes>::new())?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow!("the gateway's answer broke off: {error}"))?.to_bytes();
        match (status.is_success(), serde_json::from_slice::<Refused>(&body)) {
            (true, _) => Ok(body),
            (false, Ok(Refused { error })) => Err(anyhow!("{error}")),
            (false, Err(_)) => Err(anyhow!("the gateway answered {status}")),
        }
    };
    tokio::select! {
        answer = answer => answer,
        broken = connection => Err(anyhow!("the connection to the gateway ended: {broken:?}")),
    }
}

fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// The answer for one client: the verdict, then the checks.
fn page(explanation: &Explanation) -> String {
    let Explanation { client, kind, name, verdict, steps, .. } = explanation;
    let mut page = format!("{kind} {name} for {client}: {}\n\n", verdict.as_str());
    let width = steps.iter().map(|step| step.check.chars().count()).max().unwrap_or_default();
    for Step { check, outcome, text, place } in steps {
        let mark = match outcome {
            StepOutcome::Pass => "ok  ",
            StepOutcome::Stop => "STOP",
            StepOutcome::Note => "    ",
        };
        let place = place.as_deref().map(|place| format!("  ({place})")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(page, "  {mark}  {check:width$}  {text}{place}");
    }
    page
}

/// The answer for all clients: one line each.
fn table(question: &Question, explanations: &[Explanation]) -> String {
    let mut page = format!("{} {}\n\n", question.topic.noun(), question.name);
    let width = explanations.iter().map(|one| one.client.chars().count()).max().unwrap_or_default();
    for one in explanations {
        let why = one.obstacle().map(|Step { check, text, place, .. }| {
            let place = place.as_deref().map(|place| format!(" ({place})")).unwrap_or_default();
            format!("{check}: {text}{place}")
        });
        let line =
            format!("  {:width$}  {:11}  {}", one.client, one.verdict.as_str(), why.unwrap_or_default());
        let _ = writeln!(page, "{}", line.trim_end());
    }
    page
}
