//! How an upstream is reached: a child process, or an HTTP endpoint.

use std::path::{Path, PathBuf};

use secrecy::SecretString;
use url::Url;

use super::{command, oauth, way};
use crate::config::effective::{self, Origin};
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Name, Value};
use crate::config::{Http, HttpKind, Process, Stdio, Transport, mask};

/// Reads where an upstream is; `None`, with a finding, if that cannot be known.
pub(crate) fn transport(section: &mut Section<'_>) -> Option<Transport> {
    let has_command = section.has(keys::COMMAND.name);
    let has_url = section.has(keys::URL.name);
    let word = check_type(section);
    match (has_command, has_url) {
        (true, false) => {
            let stdio = stdio(section);
            refuse(section, &[keys::HEADERS.name], "a `command` has no headers");
            refuse(section, &[keys::TRANSPORT.name], "a `command` speaks on stdio");
            let way = [&keys::CA_FILE, &keys::CLIENT_CERT, &keys::CLIENT_KEY].map(|key| key.name);
            for key in way
                .into_iter()
                .chain([keys::DENY_PRIVATE.name, keys::OAUTH.name])
                .filter(|key| section.has_own(key))
            {
                refuse(section, &[key], "only a `url` is connected to");
            }
            stdio.map(Transport::Stdio)
        }
        (false, true) => {
            let http = http(section, word);
            refuse(
                section,
                &[keys::ARGS.name, keys::ENV.name, keys::CWD.name],
                "only a `command` has `args`, `env` and `cwd`",
            );
            if section.has_own(keys::PROCESS_KEY.name) {
                refuse(section, &[keys::PROCESS_KEY.name], "only a `command` has a process");
            }
            http.map(Transport::Http)
        }
        (true, true) => {
            let finding = Finding::error("an upstream has either `command` or `url`, not both");
            let later = [section.place(keys::COMMAND.name), section.place(keys::URL.name)];
            let span = later.into_iter().max_by_key(|span| span.start).unwrap_or(section.at);
            section.report(finding.at(span).help("make two upstreams of it"));
            let _checked = (stdio(section), http(section, word));
            None
        }
        (false, false) if section.misspells(keys::COMMAND.name) || section.misspells(keys::URL.name) => None,
        (false, false) => {
            let finding = Finding::error("an upstream needs `command` or `url`").at(section.at);
            section.report(
                finding.help("`command` starts a program that speaks MCP on stdio, `url` is an HTTP server"),
            );
            None
        }
    }
}

fn refuse(section: &Section<'_>, names: &[&str], message: &str) {
    for name in names {
        if section.has(name) {
            let finding = Finding::error(format!("`{name}` does not go with this upstream: {message}"));
            section.report(finding.at(section.place(name)));
        }
    }
}

/// Reads `type`, and checks that it agrees with what is there; empty if it is absent.
fn check_type(section: &mut Section<'_>) -> &'static str {
    let key = &keys::TYPE;
    let span = section.find(key.name).map(|node| node.span);
    let word = section.choice(key);
    let has_command = section.has(keys::COMMAND.name);
    let has_url = section.has(keys::URL.name);
    let mismatch = match word {
        "" => None,
        "stdio" => (has_url && !has_command).then_some("`type: stdio` needs a `command`"),
        _ => (has_command && !has_url).then_some("this `type` needs a `url`"),
    };
    if let (Some(message), Some(span)) = (mismatch, span) {
        section.report(
            Finding::error(message).at(span).help("`type` follows from `command` or `url`: take it out"),
        );
    }
    word
}

/// Reads which transport a `url` has, where that is said.
fn kind(section: &mut Section<'_>, word: &str) -> Option<HttpKind> {
    let is_typed_sse = word == "sse";
    let said = section.choice(&keys::TRANSPORT);
    if is_typed_sse && said == "http" {
        let finding = Finding::error("`type: sse` and `transport: http` contradict each other");
        section.report(finding.at(section.place(keys::TRANSPORT.name)).help("take one of them out"));
    }
    let kind = match said {
        "sse" => Some(HttpKind::Sse),
        _ if is_typed_sse => Some(HttpKind::Sse),
        "http" => Some(HttpKind::Streamable),
        _ => None,
    };
    if let (Some(HttpKind::Sse), Some(era)) = (kind, section.find(keys::ERA.name))
        && matches!(&era.value, Value::Scalar(scalar) if scalar.text == "modern")
    {
        let finding =
            Finding::error("`era: modern` does not go with HTTP+SSE, which only legacy servers speak");
        section.report(finding.at(era.span).help("take it out, or speak `transport: http`"));
    }
    kind
}

fn stdio(section: &mut Section<'_>) -> Option<Stdio> {
    let command = command(section);
    let args = args(section);
    let env = env(section);
    let cwd = cwd(section);
    let command = command?;
    if command.value.trim().is_empty() || command.value.contains('\0') {
        section.report(Finding::error("`command` is empty").at(command.span));
        return None;
    }
    command::check(section, &command, &args, cwd.as_deref());
    let args = args.into_iter().map(|text| text.value).collect();
    Some(Stdio { command: command.value, args, env, cwd, process: Process::default() })
}

fn command(section: &mut Section<'_>) -> Option<Text> {
    let key = &keys::COMMAND;
    let node = section.find(key.name)?;
    let text = section.reader.text(node, &quoted(key.name))?;
    let shown = effective::scalar(&mask::line(&text.written));
    section.out.put(key.name, shown, Origin::Line(node.span.line));
    Some(text)
}

fn args(section: &mut Section<'_>) -> Vec<Text> {
    let key = &keys::ARGS;
    let Some(node) = section.find(key.name) else {
        section.out.put(key.name, "[]".to_owned(), Origin::Default);
        return Vec::new();
    };
    let texts = section.parse_texts(node, &quoted(key.name));
    let written: Vec<String> = mask::args(texts.iter().map(|text| text.written.as_str())).collect();
    section.out.put(
        key.name,
        effective::list(written.iter().map(String::as_str)),
        Origin::Line(node.span.line),
    );
    for text in texts.iter().filter(|text| text.value.contains('\0')) {
        section.report(Finding::error("an argument cannot hold a NUL character").at(text.span));
    }
    texts
}

fn env(section: &mut Section<'_>) -> Vec<(String, SecretString)> {
    let mut env = Vec::new();
    for (name, text) in section.secret_map(&keys::ENV) {
        let key = &name.text;
        if key.is_empty() || key.contains(['=', '\0']) || text.value.contains('\0') {
            let finding =
                Finding::error(format!("`{}` cannot be a variable", key.escape_debug())).at(name.span);
            section
                .report(finding.help("names have no `=`, and neither names nor values hold NUL characters"));
        }
        env.push((key.clone(), text.value.into()));
    }
    env
}

fn cwd(section: &mut Section<'_>) -> Option<PathBuf> {
    let text = section.text(&keys::CWD)?;
    if text.value.is_empty() || text.value.contains('\0') {
        section.report(Finding::error("`cwd` is empty").at(text.span));
        return None;
    }
    section.reader.check_bare(&text, "`cwd`");
    let folder = section.reader.folder.join(&text.value);
    if !folder.is_dir() {
        let finding = Finding::warning("`cwd` is no folder: nothing can be started there").at(text.span);
        section.report(if Path::new(&text.value).is_absolute() {
            finding.help("it must be there when the program is started")
        } else {
            finding.help("a relative path counts from the folder of the file")
        });
    }
    Some(folder)
}

fn http(section: &mut Section<'_>, word: &str) -> Option<Http> {
    let url = url(section);
    let headers = headers(section);
    let kind = kind(section, word);
    let way = way::of_upstream(section);
    let oauth = oauth::credentials(section).map(Box::new);
    if oauth.is_some() && headers.iter().any(|(name, _)| name == http::header::AUTHORIZATION) {
        let finding =
            Finding::error("`oauth` and `headers.Authorization` are two credentials for one server");
        section.report(finding.at(section.place(keys::OAUTH.name)).help("take one of them out"));
    }
    Some(Http { url: url?, headers, kind, oauth, way })
}

fn url(section: &mut Section<'_>) -> Option<Url> {
    let node = section.find(keys::URL.name)?;
    let text = section.reader.text(node, "`url`")?;
    section.out.put(
        keys::URL.name,
        effective::scalar(&mask::url(&text.written)),
        Origin::Line(node.span.line),
    );
    section.reader.check_bare(&text, "`url`");
    match check_url(&text) {
        Ok(url) => Some(url),
        Err((message, help)) => {
            section.report(Finding::error(message).at(text.span).help(help));
            None
        }
    }
}

/// Messages never repeat a URL: there may be a key in it.
fn check_url(text: &Text) -> Result<Url, (String, &'static str)> {
    let form = "it is written like `https://mcp.example.com/mcp`";
    let url = Url::parse(text.value.trim()).map_err(|error| (format!("`url` is no URL: {error}"), form))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err((format!("`url` has the scheme `{}`: expected `http` or `https`", url.scheme()), form));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(("`url` holds credentials".to_owned(), "put them in `headers: {Authorization: …}`"));
    }
    if url.fragment().is_some() {
        return Err(("`url` has a `#`, which is never sent".to_owned(), "take it out"));
    }
    Ok(url)
}

/// Headers that the protocol and the connection set.
const OWN_HEADERS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// Whether a header is none that a configuration can set.
pub(crate) fn is_own_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OWN_HEADERS.contains(&name.as_str()) || name.starts_with("mcp-")
}

fn headers(section: &mut Section<'_>) -> Vec<(http::HeaderName, SecretString)> {
    let mut headers: Vec<(http::HeaderName, SecretString)> = Vec::new();
    for (name, text) in section.secret_map(&keys::HEADERS) {
        match check_header(name, &text, &headers) {
            Ok(header) => headers.push((header, text.value.into())),
            Err(message) => section.report(Finding::error(message).at(name.span)),
        }
    }
    headers
}

fn check_header(
    name: &Name,
    text: &Text,
    earlier: &[(http::HeaderName, SecretString)],
) -> Result<http::HeaderName, String> {
    let shown = quoted(&name.text.escape_debug().to_string());
    let header = http::HeaderName::from_bytes(name.text.as_bytes())
        .map_err(|_| format!("{shown} cannot be the name of a header"))?;
    if is_own_header(header.as_str()) {
        return Err(format!("the header {shown} is set by Waypost itself"));
    }
    if earlier.iter().any(|(other, _)| *other == header) {
        return Err(format!("the header {shown} is there twice: upper and lower case are the same"));
    }
    if header == http::header::AUTHORIZATION && !has_credential(&text.value) {
        return Err(format!("the header {shown} holds no credential: fill it in, or leave the header out"));
    }
    if http::HeaderValue::from_str(&text.value).is_err() {
        return Err(format!(
            "the value of the header {shown} holds characters that no header can: line ends, most likely"
        ));
    }
    Ok(header)
}

/// Whether there is more than a scheme. Other headers may be empty where that is said; an empty credential is
/// always a mistake.
fn has_credential(value: &str) -> bool {
    let value = value.trim();
    !value.is_empty() && !["bearer", "basic", "token"].iter().any(|scheme| value.eq_ignore_ascii_case(scheme))
}
