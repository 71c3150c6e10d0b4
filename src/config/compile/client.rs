//! Clients and their tokens, and who is let in without one.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use super::access::{self, PlacedFilter};
use crate::config::effective::{self, Block, Origin};
use crate::config::problem::Finding;
use crate::config::reference as keys;
use crate::config::section::{Reader, Section, nearest, quoted};
use crate::config::tree::{Name, Node, Span, Value};
use crate::config::{ClientConfig, Naming};

/// The name of callers without credentials.
const NOBODY: &str = "anonymous";

/// Reads all clients; that of callers without credentials comes last, if they are let in.
pub(crate) fn clients(
    top: &mut Section<'_>,
    listen: SocketAddr,
    prefixes: &[String],
    naming: &Naming,
) -> Vec<ClientConfig> {
    let key = &keys::CLIENTS;
    let node = top.find(key.name);
    let entries =
        node.and_then(|node| top.reader.entries(node, &quoted(key.name), "a mapping of names to clients"));
    let mut clients = Vec::new();
    let mut nobody = None;
    let mut digests = HashMap::new();
    let mut block = Block::default();
    for (name, node) in entries.unwrap_or_default() {
        check_name(top, name);
        let what = format!("the client `{}`", name.text);
        let Some(entries) = top.reader.entries(node, &what, "a mapping with `tokens`") else { continue };
        let mut section = Section::open(top.reader, &keys::CLIENT, entries, name.span);
        let tokens = tokens(&mut section, name, &mut digests);
        let PlacedFilter { filter, places } = access::filter(&mut section, &keys::CLIENT_TOOLS);
        for (pattern, span) in places {
            check_upstream(top, pattern.literal_start(), span, prefixes, naming);
        }
        let limits = access::call_limits(&mut section, &keys::CLIENT_LIMITS);
        let is_anonymous = name.text == NOBODY;
        let client =
            ClientConfig { name: name.text.as_str().into(), tokens, is_anonymous, tools: filter, limits };
        if is_anonymous {
            nobody = Some((client, name.span))
        } else {
            clients.push(client)
        }
        block.put_block(&name.text, section.out);
    }
    top.out.put_block(key.name, block);
    // Clients that could not be read are clients all the same: what is wrong elsewhere must not open the door.
    let has_clients = node.is_some_and(
        |node| !matches!(&node.value, Value::Map(all) if all.iter().all(|(name, _)| name.text == NOBODY)),
    );
    if is_open(top, listen, has_clients) {
        clients.push(nobody.map_or_else(anonymous, |(client, _)| client));
    } else if let Some((_, span)) = nobody {
        let finding =
            Finding::error("`clients.anonymous` has no effect: callers without credentials are not let in");
        top.report(finding.at(span).help("write `auth: {anonymous: true}`, or take it out"));
    }
    clients
}

fn anonymous() -> ClientConfig {
    ClientConfig {
        name: NOBODY.into(),
        tokens: Vec::new(),
        is_anonymous: true,
        tools: crate::config::Filter::default(),
        limits: crate::config::CallLimits::default(),
    }
}

/// Whether callers without credentials are let in.
fn is_open(top: &mut Section<'_>, listen: SocketAddr, has_clients: bool) -> bool {
    let is_loopback = listen.ip().is_loopback();
    let (said, is_open) = top.within(&keys::AUTH_KEY, |auth| {
        let said = auth.flag(&keys::ANONYMOUS);
        let is_open = said.unwrap_or(!has_clients && is_loopback);
        if said.is_none() {
            auth.out.put(keys::ANONYMOUS.name, is_open.to_string(), Origin::Default);
        }
        (said, is_open)
    });
    if !is_open && !has_clients {
        let place = top.find(keys::LISTEN.name).map_or(top.at, |node| node.span);
        let finding = match said {
            None => Finding::error(format!(
                "anybody on the network could call: `listen` is {listen}, and there are no `clients`"
            ))
            .help("add `clients`, or listen on 127.0.0.1, or say `auth: {anonymous: true}` if it is meant"),
            Some(_) => {
                Finding::warning("nobody can call: there are no `clients`, and `auth.anonymous` is false")
                    .help("add `clients`")
            }
        };
        top.report(finding.at(place));
    }
    is_open
}

fn check_name(top: &Section<'_>, name: &Name) {
    let text = &name.text;
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_.-@".contains(c);
    if text.is_empty() || text.chars().count() > 64 || !text.chars().all(is_fit) {
        let finding = Finding::error(format!("`{}` cannot be the name of a client", text.escape_debug()));
        top.report(
            finding
                .at(name.span)
                .help("names have letters, digits, `_`, `-`, `.` and `@`, at most 64 of them"),
        );
    }
}

/// Reports a pattern that names an upstream which is not there. `start` is what stands before its first wildcard.
fn check_upstream(top: &Section<'_>, start: &str, span: Span, prefixes: &[String], naming: &Naming) {
    let Some((named, _)) = start.split_once(&naming.separator) else {
        return;
    };
    let mapped = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '?' }).collect()
    };
    // Characters that are mapped may come out as anything.
    let may_match = |prefix: &String| {
        mapped(prefix).chars().zip(start.chars()).all(|(wanted, found)| wanted == '?' || wanted == found)
    };
    if named.is_empty() || prefixes.iter().any(may_match) {
        return;
    }
    let known = prefixes.iter().filter_map(|prefix| prefix.strip_suffix(&naming.separator));
    let finding = Finding::error(format!("no upstream is called `{named}`")).at(span);
    top.report(match nearest(known, named) {
        Some(nearest) => finding.help(format!("did you mean `{nearest}{}…`?", naming.separator)),
        None => finding.help("a client's patterns are over exposed names, which begin with the upstream's"),
    });
}

/// A digest, and where it was seen first.
type Digests = HashMap<[u8; 32], (String, usize)>;

fn tokens(section: &mut Section<'_>, client: &Name, digests: &mut Digests) -> Vec<[u8; 32]> {
    let key = keys::TOKENS.name;
    let node = section.find(key);
    if client.text == NOBODY {
        if node.is_some() {
            let finding = Finding::error("`anonymous` is the client without credentials: it has no tokens");
            section.report(finding.at(section.place(key)).help("give the client another name"));
        }
        return Vec::new();
    }
    let Some(node) = node else {
        let finding = Finding::error(format!("the client `{}` has no `tokens`", client.text)).at(section.at);
        section.report(finding.help("add `tokens: [{env: NAME}]`, or `sha256:` and a digest"));
        return Vec::new();
    };
    let Some(items) = section.reader.items(node, &quoted(key), "a list of tokens") else {
        return Vec::new();
    };
    if items.is_empty() {
        let finding =
            Finding::error(format!("`tokens` is empty: the client `{}` could never call", client.text));
        section.report(finding.at(node.span).help("add `{env: NAME}`, or `sha256:` and a digest"));
    }
    section.out.put(key, effective::secrets(items.len()), Origin::Line(node.span.line));
    let mut tokens = Vec::new();
    for item in items {
        let Some(digest) = token(section.reader, item) else { continue };
        if let Some((other, line)) = digests.get(&digest) {
            let finding = Finding::error(format!("this token is also one of `{other}`, on line {line}"));
            section.report(finding.at(item.span).help("every client needs tokens of its own"));
            continue;
        }
        digests.insert(digest, (client.text.clone(), item.span.line));
        tokens.push(digest);
    }
    tokens
}

/// The digest of one token.
fn token(reader: &Reader<'_>, item: &Node) -> Option<[u8; 32]> {
    let what = "a token";
    if !matches!(item.value, Value::Scalar(_)) {
        return read_secret(reader, item, what).and_then(|token| digest_of(reader, item.span, &token));
    }
    let text = reader.secret_text(item, what)?;
    if let Some(hex) = text.value.strip_prefix("sha256:") {
        let digest = from_hex(hex);
        if digest.is_none() {
            let finding = Finding::error("after `sha256:` come 64 hexadecimal digits").at(item.span);
            reader.report(finding.help("`printf %s \"$TOKEN\" | sha256sum` prints them"));
        }
        return digest;
    }
    if text.is_expanded && text.written.contains("${") {
        return digest_of(reader, item.span, &text.value);
    }
    let finding = Finding::error("a token must not stand in the file as it is").at(item.span);
    let finding = finding.help("write `sha256:` and its digest: `printf %s \"$TOKEN\" | sha256sum`");
    reader.report(finding.help("or `{env: NAME}`, or `{file: PATH}`"));
    None
}

fn digest_of(reader: &Reader<'_>, span: Span, token: &str) -> Option<[u8; 32]> {
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let finding = Finding::error("this token holds spaces or other characters that no header can carry");
        reader.report(finding.at(span));
        return None;
    }
    if token.len() < MIN_TOKEN {
        let finding = Finding::warning("this token is short enough to be guessed").at(span);
        reader.report(finding.help("make one with `openssl rand -hex 32`"));
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().ok()
}

/// Tokens below this length are warned of.
const MIN_TOKEN: usize = 16;

fn from_hex(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Reads a secret that is a text, `{env: NAME}` or `{file: PATH}`; never empty. The text never gets out of here
/// but as the value.
pub(crate) fn read_secret(reader: &Reader<'_>, node: &Node, what: &str) -> Option<String> {
    let wanted = "a text, `{env: NAME}` or `{file: PATH}`";
    let Value::Map(_) = node.value else {
        let text = match node.value {
            Value::Scalar(_) => reader.secret_text(node, what)?.value,
            Value::Null | Value::List(_) | Value::Map(_) => {
                reader.report_kind(node, what, wanted);
                return None;
            }
        };
        if text.is_empty() {
            reader.report(Finding::error(format!("{what} is empty")).at(node.span));
        }
        return (!text.is_empty()).then_some(text);
    };
    let entries = reader.entries(node, what, wanted)?;
    let mut source = None;
    for (name, value) in entries {
        match name.text.as_str() {
            "env" | "file" if source.is_none() => source = Some((name, value)),
            "env" | "file" => reader.report(Finding::error("a secret has one source").at(name.span)),
            "expires" => {
                let finding = Finding::error("`expires` is not supported yet").at(name.span);
                reader.report(finding.help("it is a key of a later version: take it out for now"));
            }
            other => {
                let finding = Finding::error(format!("unknown key `{other}`")).at(name.span);
                reader.report(finding.help(format!("{what} is {wanted}")));
            }
        }
    }
    let Some((name, value)) = source else {
        reader.report(Finding::error(format!("{what} has neither `env` nor `file`")).at(node.span));
        return None;
    };
    let text = reader.text(value, &quoted(&name.text))?;
    let secret =
        if name.text == "env" { from_env(reader, &text.value) } else { from_file(reader, &text.value) };
    secret.map_err(|message| reader.report(Finding::error(message).at(value.span))).ok()
}

fn from_env(reader: &Reader<'_>, name: &str) -> Result<String, String> {
    if !crate::config::expand::is_name(name) {
        return Err("`env` is the name of a variable, without `$` or braces".to_owned());
    }
    match (reader.env)(name) {
        None => Err(format!("the variable `{name}` is not set")),
        Some(value) if value.is_empty() => Err(format!("the variable `{name}` is set but empty")),
        Some(value) => Ok(value),
    }
}

/// Longest file of a secret, in bytes.
const MAX_SECRET: u64 = 64 << 10;

fn from_file(reader: &Reader<'_>, path: &str) -> Result<String, String> {
    let path = reader.folder.join(path);
    let text = read_file(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let secret =
        text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if secret.is_empty() { Err(format!("`{}` is empty", path.display())) } else { Ok(secret.to_owned()) }
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_SECRET + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(std::io::Error::other("it is larger than 64 KiB"));
    }
    Ok(text)
}
