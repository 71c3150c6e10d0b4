//! The gateway as an OAuth protected resource: where clients learn who gives out tokens. RFC 9728.

use http::header::{HOST, HeaderMap, HeaderValue};
use serde_json::json;
use url::Url;

use super::AuthError;
use crate::config::Config;

/// Before the path of the resource, in the path of its metadata. RFC 9728, 3.1.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// The path of the endpoint.
const ENDPOINT: &str = "/mcp";
/// The path of HTTP+SSE, which stands beside it.
const SSE: &str = "/sse";

/// What is told to clients about tokens.
#[derive(Debug)]
pub struct Resource {
    /// Issuers, in the order of the configuration; none where there are only static tokens.
    issuers: Vec<String>,
    /// Scopes that any of them needs, each once.
    scopes: Vec<String>,
    public_url: Option<Url>,
    name: String,
}

impl Resource {
    /// What a configuration makes of it.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let mut scopes: Vec<String> = Vec::new();
        for scope in config.jwt.iter().flat_map(|issuer| &issuer.scopes) {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        let info = &config.server_info;
        Self {
            issuers: config.jwt.iter().map(|issuer| issuer.issuer.clone()).collect(),
            scopes,
            public_url: config.public_url.clone(),
            name: info.title.clone().unwrap_or_else(|| info.name.clone()),
        }
    }

    /// The metadata at a path, as JSON; `None` if there is none. `headers` are those of the request.
    #[must_use]
    pub fn metadata(&self, path: &str, headers: &HeaderMap) -> Option<String> {
        let rest = path.strip_prefix(WELL_KNOWN)?;
        let (base, place) = (self.base(headers)?, self.place());
        let resource = match rest.trim_end_matches('/') {
            "" | ENDPOINT => place,
            SSE => self.beside(SSE),
            // The path of the public URL, which a proxy in front may leave in.
            public if public == place => place,
            public if public == self.beside(SSE) => self.beside(SSE),
            _ => return None,
        };
        let mut document = json!({
            "resource": format!("{base}{resource}"),
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": self.name,
        });
        if let Some(members) = document.as_object_mut().filter(|_| !self.scopes.is_empty()) {
            members.insert("scopes_supported".to_owned(), json!(self.scopes));
        }
        Some(document.to_string())
    }

    /// The value of `WWW-Authenticate` for a refusal of a request to `path`; `None` where none belongs.
    #[must_use]
    pub fn challenge(&self, error: &AuthError, path: &str, headers: &HeaderMap) -> Option<HeaderValue> {
        let has_challenge = matches!(error.status(), 401) || matches!(error, AuthError::Scopes(_));
        if !has_challenge {
            return None;
        }
        let mut parts = Vec::new();
        parts.extend(error.code().map(|code| format!("error=\"{code}\"")));
        if !self.issuers.is_empty() {
            let scopes = match error {
                AuthError::Scopes(scopes) => scopes,
                AuthError::Missing
                | AuthError::Malformed
                | AuthError::Invalid(_)
                | AuthError::Stranger
                | AuthError::Unavailable => &self.scopes,
            };
            parts.extend((!scopes.is_empty()).then(|| format!("scope=\"{}\"", scopes.join(" "))));
            let place = if path.trim_end_matches('/') == ENDPOINT { self.place() } else { self.beside(SSE) };
            let base = self.base(headers);
            parts.extend(base.map(|base| format!("resource_metadata=\"{base}{WELL_KNOWN}{place}\"")));
        }
        let text = match parts.is_empty() {
            true => "Bearer".to_owned(),
            false => format!("Bearer {}", parts.join(", ")),
        };
        HeaderValue::try_from(text).ok()
    }

    /// Scheme, host and port under which clients reach us; `None` where nobody could tell.
    ///
    /// Without a public URL we are on loopback, where the `Host` was looked at before: it is a name of this machine.
    fn base(&self, headers: &HeaderMap) -> Option<String> {
        if self.issuers.is_empty() {
            return None;
        }
        match &self.public_url {
            Some(url) => Some(url.origin().ascii_serialization()),
            None => {
                let host = headers.get(HOST)?.to_str().ok()?;
                let is_host = host.parse::<http::uri::Authority>().is_ok();
                is_host.then(|| format!("http://{host}"))
            }
        }
    }

    /// The path of the endpoint, as clients see it; as it is written, so that it is equal to what they have.
    fn place(&self) -> String {
        match self.public_url.as_ref().map(Url::path) {
            None => ENDPOINT.to_owned(),
            Some("/") => String::new(),
            Some(path) => path.to_owned(),
        }
    }

    /// A path beside that of the endpoint, as clients see it.
    fn beside(&self, path: &str) -> String {
        let place = self.place();
        format!("{}{path}", place.trim_end_matches('/').strip_suffix(ENDPOINT).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn resource(public_url: &str, scopes: &str) -> Resource {
        let file = format!(
            "listen: 0.0.0.0:1\n{public_url}\nupstreams: {{}}\nauth: {{jwt: [{{issuer: \"https://as.example/\", \
             audience: x{scopes}}}]}}\n"
        );
        let file = if public_url.is_empty() { file.replace("0.0.0.0", "127.0.0.1") } else { file };
        Resource::new(&config::parse(&file, "x", &|_| None).unwrap_or_else(|p| panic!("{p}")).config)
    }

    fn headers() -> HeaderMap {
        HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost:8080"))])
    }

    fn told(resource: &Resource, path: &str) -> Option<String> {
        let document: serde_json::Value =
            serde_json::from_str(&resource.metadata(path, &headers())?).unwrap();
        assert_eq!(document["authorization_servers"], json!(["https://as.example/"]));
        Some(document["resource"].as_str().unwrap().to_owned())
    }

    #[test]
    fn aut_03_the_metadata_is_where_the_public_url_says() {
        let public = resource("public_url: https://gw.example/team/mcp", "");
        let at = |path: &str| told(&public, &format!("{WELL_KNOWN}{path}"));
        let whole = Some("https://gw.example/team/mcp".to_owned());
        assert_eq!(
            [at(""), at("/team/mcp"), at("/mcp"), at("/mcp/")],
            [whole.clone(), whole.clone(), whole.clone(), whole]
        );
        assert_eq!(at("/team/sse"), Some("https://gw.example/team/sse".to_owned()));
        assert_eq!([at("/team"), at("/x"), at("x"), at("/mcp/x")], [None, None, None, None]);
        assert_eq!(told(&public, "/.well-known/openid-configuration"), None);
        let challenge = public.challenge(&AuthError::Missing, "/mcp", &headers()).unwrap();
        let wanted =
            r#"Bearer resource_metadata="https://gw.example/.well-known/oauth-protected-resource/team/mcp""#;
        assert_eq!(challenge, wanted);
        let rooted = resource("public_url: https://gw.example", "");
        assert_eq!(told(&rooted, WELL_KNOWN), Some("https://gw.example".to_owned()));
    }

    #[test]
    fn on_loopback_the_host_of_the_request_is_the_resource() {
        let local = resource("", ", scopes: [a, b]");
        assert_eq!(told(&local, &format!("{WELL_KNOWN}/mcp")), Some("http://localhost:8080/mcp".to_owned()));
        assert_eq!(told(&local, &format!("{WELL_KNOWN}/sse")), Some("http://localhost:8080/sse".to_owned()));
        let invalid = AuthError::Invalid(super::super::Rejection::Expired);
        let challenge = local.challenge(&invalid, "/sse", &headers()).unwrap();
        let wanted = "Bearer error=\"invalid_token\", scope=\"a b\", \
                      resource_metadata=\"http://localhost:8080/.well-known/oauth-protected-resource/sse\"";
        assert_eq!(challenge, wanted);
        let lacking = AuthError::Scopes(vec!["b".to_owned()]);
        let challenge = local.challenge(&lacking, "/mcp", &headers()).unwrap();
        assert!(
            challenge.to_str().unwrap().starts_with("Bearer error=\"insufficient_scope\", scope=\"b\", ")
        );
        assert_eq!(local.challenge(&AuthError::Stranger, "/mcp", &headers()), None);
        assert_eq!(local.challenge(&AuthError::Unavailable, "/mcp", &headers()), None);
    }

    #[test]
    fn without_issuers_the_challenge_is_bare() {
        let file = "upstreams: {}\nclients: {a: {tokens: ['${T}']}}\n";
        let env = |_: &str| Some("0123456789abcdef".to_owned());
        let none = Resource::new(&config::parse(file, "x", &env).unwrap().config);
        assert_eq!(none.metadata(WELL_KNOWN, &headers()), None);
        assert_eq!(none.challenge(&AuthError::Missing, "/mcp", &headers()).unwrap(), "Bearer");
        let invalid = AuthError::Invalid(super::super::Rejection::Unknown);
        assert_eq!(none.challenge(&invalid, "/mcp", &headers()).unwrap(), "Bearer error=\"invalid_token\"");
    }
}
