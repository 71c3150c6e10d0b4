//! How we get access tokens of our own.

use url::Url;

use super::{secret, way};
use crate::config::ClientCredentials;
use crate::config::effective::Origin;
use crate::config::problem::SECRET;
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;

/// Reads `oauth` of an upstream, if it is there.
pub(crate) fn credentials(upstream: &mut Section<'_>) -> Option<ClientCredentials> {
    if !upstream.has(keys::OAUTH.name) {
        upstream.out.put_unset(keys::OAUTH.name);
        return None;
    }
    upstream.within(&keys::OAUTH, |oauth| {
        for key in [keys::OAUTH_TOKEN_URL.name, keys::OAUTH_ID.name, keys::OAUTH_SECRET.name] {
            if !oauth.has(key) && !oauth.misspells(key) {
                oauth.report(Finding::error(format!("`oauth` has no {}", quoted(key))).at(oauth.at));
            }
        }
        let token_url = token_url(oauth);
        let client_id = text(oauth, &keys::OAUTH_ID);
        let client_secret = client_secret(oauth);
        let scopes: Vec<String> =
            oauth.texts(&keys::OAUTH_SCOPES).into_iter().map(|text| text.value).collect();
        let resource = text(oauth, &keys::OAUTH_RESOURCE);
        let audience = text(oauth, &keys::OAUTH_AUDIENCE);
        let way = way::common(oauth);
        let (token_url, client_id, client_secret) = (token_url?, client_id?, client_secret?);
        Some(ClientCredentials {
            token_url,
            client_id,
            client_secret: client_secret.into(),
            scope: scopes.join(" "),
            resource,
            audience,
            way,
        })
    })
}

fn client_secret(oauth: &mut Section<'_>) -> Option<String> {
    let node = oauth.find(keys::OAUTH_SECRET.name)?;
    oauth.out.put(keys::OAUTH_SECRET.name, SECRET.to_owned(), Origin::Line(node.span.line));
    secret::read_secret(oauth.reader, node, &quoted(keys::OAUTH_SECRET.name))
}

fn text(oauth: &mut Section<'_>, key: &'static keys::Key<keys::Free>) -> Option<String> {
    let text = oauth.text(key)?;
    if text.value.trim().is_empty() {
        oauth.report(Finding::error(format!("{} is empty", quoted(key.name))).at(text.span));
        return None;
    }
    Some(text.value)
}

/// Our secret goes there: not in the clear, unless it stays on this machine or in its network by will.
fn token_url(oauth: &mut Section<'_>) -> Option<Url> {
    let text: Text = oauth.text(&keys::OAUTH_TOKEN_URL)?;
    let url = Url::parse(&text.value).ok().filter(|url| {
        let is_http = matches!(url.scheme(), "http" | "https");
        is_http && url.username().is_empty() && url.password().is_none() && url.fragment().is_none()
    });
    if url.is_none() {
        let finding = Finding::error("`token_url` is no URL that a form can be sent to").at(text.span);
        oauth.report(finding.help("it is written `https://login.example.com/oauth/token`"));
    }
    url
}
