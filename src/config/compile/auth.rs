//! Who is let in besides the clients with tokens: everybody, or whom an issuer vouches for.

use std::collections::HashSet;
use std::net::SocketAddr;

use url::{Host, Url};

use super::client::has_clients;
use crate::config::effective::{self, Origin};
use crate::config::nearest::nearest;
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Node, Span, Value};
use crate::config::{JwtAlgorithm, JwtIssuer};

/// Most issuers, and most audiences of one.
const MANY: usize = 16;
/// Most scopes of one issuer.
const SCOPES: usize = 32;
/// Longest issuer, audience, scope or name of a claim, in bytes.
const LONG: usize = 256;
/// Before the name of the client that the callers of an issuer are.
const GROUP: &str = "jwt:";

/// What `auth` and `public_url` say.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    /// Whether callers without credentials are let in.
    pub(crate) is_open: bool,
    /// Issuers of JWTs. The places of their groups are not known yet.
    pub(crate) jwt: Vec<JwtIssuer>,
    pub(crate) public_url: Option<Url>,
}

impl Auth {
    /// Whether a client of the file can be known by what an issuer says.
    pub(crate) fn names_clients(&self) -> bool {
        self.jwt.iter().any(|issuer| issuer.client_claim.is_some())
    }

    /// Whether an issuer says who has a role.
    pub(crate) fn names_roles(&self) -> bool {
        self.jwt.iter().any(|issuer| issuer.roles_claim.is_some())
    }
}

/// Reads who is let in.
pub(crate) fn auth(top: &mut Section<'_>, listen: SocketAddr) -> Auth {
    let has_clients = has_clients(top);
    let public_url = public_url(top);
    let is_loopback = listen.ip().is_loopback();
    let (said, is_open, jwt, has_jwt) = top.within(&keys::AUTH_KEY, |auth| {
        let said = auth.flag(&keys::ANONYMOUS);
        let has_jwt = match auth.find(keys::JWT.name).map(|node| &node.value) {
            None => auth.misspells(keys::JWT.name),
            Some(Value::List(items)) => !items.is_empty(),
            Some(Value::Null | Value::Scalar(_) | Value::Map(_)) => true,
        };
        let is_open = said.unwrap_or(!has_clients && !has_jwt && is_loopback);
        if said.is_none() {
            auth.out.put(keys::ANONYMOUS.name, is_open.to_string(), Origin::Default);
        }
        (said, is_open, issuers(auth, public_url.as_ref()), has_jwt)
    });
    if !is_open && !has_clients && !has_jwt {
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
    if has_jwt && !is_loopback && !top.has(keys::PUBLIC_URL.name) {
        let finding =
            Finding::error("`auth.jwt` needs a `public_url`: clients are told where to get tokens for");
        let finding = finding.at(top.place(keys::AUTH_KEY.name));
        top.report(finding.help("write `public_url: https://…/mcp`, as clients reach the endpoint"));
    }
    Auth { is_open, jwt, public_url }
}

fn public_url(top: &mut Section<'_>) -> Option<Url> {
    let text = top.text(&keys::PUBLIC_URL)?;
    let url = Url::parse(&text.value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let is_bare = |url: &Url| {
        url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    let url = url.filter(is_bare).filter(|url| !url.path().contains('"'));
    if url.is_none() {
        let finding = Finding::error("`public_url` is no URL of an endpoint").at(text.span);
        top.report(
            finding.help("it is written `https://mcp.example.com/mcp`, without user, query or fragment"),
        );
    }
    url
}

fn issuers(auth: &mut Section<'_>, public_url: Option<&Url>) -> Vec<JwtIssuer> {
    let key = &keys::JWT;
    let Some(node) = auth.find(key.name) else {
        auth.out.put(key.name, "[]".to_owned(), Origin::Default);
        return Vec::new();
    };
    let items = auth.reader.items(node, &quoted(key.name), "a list of issuers").unwrap_or_default();
    if items.len() > MANY {
        auth.report(Finding::error(format!("`jwt` has more than {MANY} entries")).at(node.span));
    }
    let mut issuers: Vec<JwtIssuer> = Vec::new();
    let mut names = HashSet::new();
    let mut shown = Vec::new();
    for item in items.iter().take(MANY) {
        let Some((issuer, text)) = issuer(auth, item, public_url) else { continue };
        shown.push(text);
        if names.insert(issuer.group.1.clone()) {
            issuers.push(issuer);
            continue;
        }
        let finding = Finding::error(format!("the issuer `{}` is there twice", issuer.issuer)).at(item.span);
        auth.report(finding.help("`audience` takes a list"));
    }
    auth.out.put(key.name, format!("[{}]", shown.join(", ")), Origin::Line(node.span.line));
    issuers
}

fn issuer(auth: &Section<'_>, item: &Node, public_url: Option<&Url>) -> Option<(JwtIssuer, String)> {
    let entries = auth.reader.entries(item, "an issuer", "a mapping with `issuer`")?;
    let mut section = Section::open(auth.reader, &keys::JWT_TABLE, entries, item.span);
    if !section.has(keys::JWT_ISSUER.name) && !section.misspells(keys::JWT_ISSUER.name) {
        section.report(Finding::error("an entry of `jwt` has no `issuer`").at(item.span));
    }
    let issuer = section.text(&keys::JWT_ISSUER);
    let url = issuer.as_ref().and_then(|text| issuer_url(&section, keys::JWT_ISSUER.name, text));
    let jwks = section.text(&keys::JWT_JWKS);
    let jwks_url = jwks.as_ref().and_then(|text| issuer_url(&section, keys::JWT_JWKS.name, text));
    let audiences = audiences(&mut section, public_url);
    let read = JwtIssuer {
        issuer: issuer.as_ref().map(|text| text.value.clone()).unwrap_or_default(),
        group: (0, group_name(issuer.as_ref().map(|text| text.value.as_str()).unwrap_or_default()).into()),
        audiences,
        algorithms: algorithms(&mut section),
        jwks_url,
        clock_skew: section.bounded(&keys::JWT_SKEW).unwrap_or_default(),
        refresh: section.bounded(&keys::JWT_REFRESH).unwrap_or_default(),
        client_claim: claim(&mut section, &keys::JWT_CLIENT),
        roles_claim: claim(&mut section, &keys::JWT_ROLES),
        scopes: scopes(&mut section),
    };
    let shown = section.finish().inline();
    url.map(|_| (read, shown))
}

/// What the callers of an issuer are called together: no client of the file can have this name.
fn group_name(issuer: &str) -> String {
    let bare = issuer.split_once("://").map_or(issuer, |(_, rest)| rest);
    format!("{GROUP}{}", bare.trim_end_matches('/'))
}

/// A URL that keys are fetched from. Over plain http, anybody on the way could make keys.
fn issuer_url(section: &Section<'_>, key: &str, text: &Text) -> Option<Url> {
    let url = Url::parse(&text.value).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
            && text.value.len() <= LONG
            && text.value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"')
    });
    let Some(url) = url else {
        let finding = Finding::error(format!("{} is no URL of an issuer", quoted(key))).at(text.span);
        section.report(finding.help("it is written `https://login.example.com/`"));
        return None;
    };
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() == "http" && !is_loopback {
        let finding =
            Finding::warning(format!("{} is not https: whoever is on the way can make tokens", quoted(key)));
        section.report(finding.at(text.span).help("write `https://…`"));
    }
    Some(url)
}

fn audiences(section: &mut Section<'_>, public_url: Option<&Url>) -> Vec<String> {
    let key = &keys::JWT_AUDIENCE;
    let Some(node) = section.find(key.name) else {
        match public_url {
            Some(url) => section.out.put(key.name, effective::scalar(url.as_str()), Origin::Default),
            None => {
                let finding = Finding::error("an entry of `jwt` has no `audience`").at(section.at);
                let help =
                    "write what the authorization server calls this gateway in `aud`, or a `public_url`";
                section.report(finding.help(help));
            }
        }
        return public_url.map(|url| url.as_str().to_owned()).into_iter().collect();
    };
    let texts = match &node.value {
        Value::List(_) => section.texts(key),
        Value::Null | Value::Scalar(_) | Value::Map(_) => section.text(key).into_iter().collect(),
    };
    if texts.is_empty() && matches!(node.value, Value::List(_)) {
        let finding = Finding::error("`audience` is empty: no token could be good").at(node.span);
        section.report(finding.help("write what the authorization server calls this gateway in `aud`"));
    }
    bounded_texts(section, (key.name, node.span), texts, MANY)
}

fn algorithms(section: &mut Section<'_>) -> Vec<JwtAlgorithm> {
    let key = &keys::JWT_ALGORITHMS;
    let Some(node) = section.find(key.name) else {
        let names = JwtAlgorithm::DEFAULT.map(JwtAlgorithm::as_str);
        section.out.put(key.name, effective::list(names), Origin::Default);
        return JwtAlgorithm::DEFAULT.to_vec();
    };
    let mut algorithms = Vec::new();
    for text in section.texts(key) {
        if let Some(known) = JwtAlgorithm::ALL.into_iter().find(|known| known.as_str() == text.value) {
            algorithms.push(known);
            continue;
        }
        let finding =
            Finding::error(format!("`{}` is no algorithm that is taken", text.written)).at(text.span);
        let names = JwtAlgorithm::ALL.map(JwtAlgorithm::as_str);
        section.report(match nearest(names, &text.value) {
            _ if text.value.starts_with("HS") => {
                finding.help("a shared secret could make tokens, too: only public keys are taken")
            }
            Some(nearest) => finding.help(format!("did you mean `{nearest}`?")),
            None => finding.help(format!("it is one of {}", names.join(", "))),
        });
    }
    if algorithms.is_empty() && matches!(&node.value, Value::List(items) if items.is_empty()) {
        section.report(Finding::error("`algorithms` is empty: no token could be good").at(node.span));
    }
    algorithms
}

fn claim(section: &mut Section<'_>, key: &'static keys::Key<keys::Free>) -> Option<String> {
    let text = section.text(key)?;
    if text.value.trim().is_empty() || text.value.len() > LONG {
        let finding = Finding::error(format!("{} is no name of a claim", quoted(key.name))).at(text.span);
        section.report(finding.help("it is written like `groups`, or `realm_access.roles`"));
        return None;
    }
    Some(text.value)
}

fn scopes(section: &mut Section<'_>) -> Vec<String> {
    let key = &keys::JWT_SCOPES;
    let texts = section.texts(key);
    // RFC 6749, 3.3.
    let is_scope = |text: &Text| {
        !text.value.is_empty()
            && text.value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
    };
    for text in texts.iter().filter(|text| !is_scope(text)) {
        let finding = Finding::error(format!("`{}` is no scope", text.written)).at(text.span);
        section.report(finding.help("a scope is one word, without quotes and backslashes"));
    }
    let place = section.place(key.name);
    bounded_texts(section, (key.name, place), texts, SCOPES)
}

fn bounded_texts(
    section: &Section<'_>,
    (key, at): (&str, Span),
    texts: Vec<Text>,
    most: usize,
) -> Vec<String> {
    if texts.len() > most {
        section.report(Finding::error(format!("{} has more than {most} entries", quoted(key))).at(at));
    }
    let is_fit = |text: &Text| !text.value.is_empty() && text.value.len() <= LONG;
    for text in texts.iter().filter(|text| !is_fit(text)) {
        let what = if text.value.is_empty() { "empty" } else { "too long" };
        section.report(Finding::error(format!("an entry of {} is {what}", quoted(key))).at(text.span));
    }
    texts.into_iter().map(|text| text.value).collect()
}
