//! Endpoints.

use std::sync::Arc;

use super::client::{RULES, check_upstream};
use super::upstream::{self, Upstreams};
use super::{access, instructions};
use crate::config::effective::{self, Block, Origin};
use crate::config::nearest::nearest;
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::Name;
use crate::config::{EndpointConfig, Naming};

/// Longest path, in bytes.
const MAX_PATH: usize = 128;
/// What comes behind a path where HTTP+SSE is served.
const TAKEN_ENDS: [&str; 2] = ["/sse", "/messages"];
/// Where something else is served, or clients look for it.
const TAKEN: [&str; 2] = ["/healthz", "/.well-known"];

/// Reads all endpoints; without the key there is `/mcp`, with everything.
pub(crate) fn endpoints(
    top: &mut Section<'_>,
    upstreams: &Upstreams,
    naming: &Naming,
) -> Vec<Arc<EndpointConfig>> {
    let key = &keys::ENDPOINTS;
    let whole = || vec![Arc::new(EndpointConfig::whole())];
    let Some(node) = top.find(key.name) else {
        top.out.put_unset(key.name);
        return whole();
    };
    let entries = top.reader.entries(node, &quoted(key.name), "a mapping of paths to endpoints");
    if entries.is_some_and(<[_]>::is_empty) {
        let finding = Finding::error("`endpoints` is empty: nobody could call").at(node.span);
        top.report(finding.help("write `/mcp: {}` under it, or leave it out, which is the same"));
    }
    let prefixes = upstreams.prefixes(naming);
    let mut endpoints: Vec<Arc<EndpointConfig>> = Vec::new();
    let mut block = Block::default();
    for (name, node) in entries.unwrap_or_default() {
        let Some(path) = path(top, name) else { continue };
        let what = format!("the endpoint `{}`", name.text);
        let Some(entries) = top.reader.entries(node, &what, "a mapping of rules") else { continue };
        if endpoints.iter().any(|other| *other.path == *path) {
            let finding = Finding::error(format!("there are two endpoints at `{path}`")).at(name.span);
            top.report(finding.help("a slash at the end makes no other path"));
            continue;
        }
        let mut section = Section::open(top.reader, &keys::ENDPOINT, entries, name.span);
        let served = chosen(&mut section, upstreams);
        let own_prefixes = own_prefixes(&mut section, upstreams, naming);
        let (rules, places) = access::rules(&mut section, &RULES);
        for (pattern, span) in places {
            check_upstream(top, pattern.literal_start(), span, &prefixes, naming);
        }
        let instructions = instructions(&mut section, &keys::ENDPOINT_INSTRUCTIONS);
        block.put_block(&name.text, section.finish());
        endpoints.push(Arc::new(EndpointConfig {
            path: path.into(),
            upstreams: served,
            prefixes: own_prefixes,
            rules,
            instructions,
        }));
    }
    top.out.put_block(key.name, block);
    if endpoints.is_empty() { whole() } else { endpoints }
}

/// A path that can be that of an endpoint, without a slash at its end.
fn path<'a>(top: &Section<'_>, name: &'a Name) -> Option<&'a str> {
    let text = name.text.strip_suffix('/').unwrap_or(&name.text);
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "_-.~".contains(c);
    let is_segment =
        |part: &str| !part.is_empty() && part.chars().all(is_fit) && !part.chars().all(|c| c == '.');
    let is_path =
        text.strip_prefix('/').is_some_and(|rest| text.len() <= MAX_PATH && rest.split('/').all(is_segment));
    let begins =
        |taken: &&str| text.strip_prefix(*taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let taken = TAKEN
        .iter()
        .find(|taken| begins(taken))
        .or_else(|| TAKEN_ENDS.iter().find(|end| text.ends_with(**end)));
    let finding = match (is_path, taken) {
        (true, None) => return Some(text),
        (true, Some(taken)) => {
            let finding = Finding::error(format!("`{text}` cannot be an endpoint: `{taken}` is taken"));
            finding.help("give it another path, like `/mcp/tools`")
        }
        (false, _) => {
            Finding::error(format!("`{}` cannot be the path of an endpoint", name.text.escape_debug()))
                .help("a path is like `/mcp/readonly`: segments of letters, digits, `_`, `-`, `.` and `~`")
        }
    };
    top.report(finding.at(name.span));
    None
}

/// Reads which upstreams an endpoint has: the places of those that are connected to.
fn chosen(section: &mut Section<'_>, upstreams: &Upstreams) -> Option<Vec<usize>> {
    let key = &keys::ENDPOINT_UPSTREAMS;
    if !section.has(key.name) {
        section.out.put_unset(key.name);
        return None;
    }
    let mut places = Vec::new();
    for text in section.texts(key) {
        match known(section, upstreams, &text) {
            Some(Some(place)) if places.contains(&place) => {
                let finding = Finding::warning(format!("the upstream `{}` is named twice", text.written));
                section.report(finding.at(text.span).help("once is enough"));
            }
            Some(place) => places.extend(place),
            None => {}
        }
    }
    Some(places)
}

/// The place of an upstream that is named; nothing inside where it is disabled.
fn known(section: &Section<'_>, upstreams: &Upstreams, text: &Text) -> Option<Option<usize>> {
    if let Some(enabled) = upstreams.enabled.iter().find(|enabled| *enabled.name == *text.value) {
        return Some(Some(enabled.index));
    }
    if upstreams.names().any(|name| name == text.value) {
        return Some(None);
    }
    let finding = Finding::error(format!("no upstream is called `{}`", text.written.escape_debug()));
    section.report(match nearest(upstreams.names(), &text.value) {
        Some(nearest) => finding.at(text.span).help(format!("did you mean `{nearest}`?")),
        None => finding.at(text.span).help("an upstream is a key under `upstreams`"),
    });
    None
}

/// Reads what goes before the names of upstreams at an endpoint.
fn own_prefixes(section: &mut Section<'_>, upstreams: &Upstreams, naming: &Naming) -> Vec<(usize, String)> {
    let key = &keys::ENDPOINT_PREFIXES;
    let Some(node) = section.find(key.name) else {
        section.out.put(key.name, "{}".to_owned(), Origin::Default);
        return Vec::new();
    };
    let what = "a mapping of names of upstreams to prefixes";
    let entries = section.reader.entries(node, &quoted(key.name), what).unwrap_or_default();
    let mut prefixes = Vec::new();
    let mut block = Block::default();
    for (name, value) in entries {
        let what = format!("the prefix of `{}`", name.text);
        let Some(text) = section.reader.text(value, &what) else { continue };
        block.put(&name.text, effective::scalar(&text.written), Origin::Line(value.span.line));
        let named =
            Text { value: name.text.clone(), written: name.text.clone(), span: name.span, ..text.clone() };
        let place = known(section, upstreams, &named);
        let prefix = upstream::checked_prefix(section, &text, naming);
        if let (Some(Some(place)), Some(prefix)) = (place, prefix) {
            prefixes.push((place, prefix));
        }
    }
    section.out.put_block(key.name, block);
    prefixes
}
