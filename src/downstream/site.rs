//! Which `Host` and `Origin` are served, and what a browser is told: DNS rebinding ends here.
//!
//! Must not know: MCP, credentials.

use std::net::{IpAddr, SocketAddr};

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST, ORIGIN,
    VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::config::Config;
use crate::wire::headers::PARAM_PREFIX;

/// Why a request is not for us, or from nobody whom we serve. HTTP 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Foreign {
    #[error("this Host is not served here; add it to `allowed_hosts` if it should be")]
    Host,
    #[error("this Origin is not served here; add it to `allowed_origins` if it should be")]
    Origin,
}

/// The rules of one listener.
#[derive(Debug)]
pub(super) struct Site {
    hosts: Hosts,
    origins: Vec<String>,
}

#[derive(Debug)]
enum Hosts {
    Any,
    /// Loopback names and addresses, the address we listen on, and these.
    Named {
        own: IpAddr,
        names: Vec<String>,
    },
}

const METHODS: HeaderValue = HeaderValue::from_static("POST, GET, DELETE, OPTIONS");
const REQUEST_HEADERS: &str = "authorization, content-type, accept, last-event-id, mcp-session-id, mcp-protocol-version, mcp-method, mcp-name";
const EXPOSED: HeaderValue = HeaderValue::from_static("mcp-session-id, www-authenticate, retry-after");
/// How long a browser may remember a preflight, in seconds.
const PREFLIGHT_AGE: HeaderValue = HeaderValue::from_static("600");

impl Site {
    /// The rules for a listener on `address`. On loopback, only loopback names and `allowed_hosts` are
    /// served; elsewhere any name is, unless `allowed_hosts` says which.
    pub(super) fn new(config: &Config, address: SocketAddr) -> Self {
        let own = address.ip().to_canonical();
        let names = &config.allowed_hosts;
        let is_open = names.iter().any(|name| name == "*") || (!own.is_loopback() && names.is_empty());
        Self {
            hosts: if is_open { Hosts::Any } else { Hosts::Named { own, names: names.clone() } },
            origins: config.allowed_origins.clone(),
        }
    }

    /// Lets a request through whose `Host` (or `:authority`) and `Origin` are served. No `Origin` is fine:
    /// only browsers send one.
    ///
    /// # Errors
    /// The header that is foreign.
    pub(super) fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Foreign> {
        if !self.is_our_host(uri, headers) {
            return Err(Foreign::Host);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Ok(()),
            (Some(origin), None) if origin.to_str().is_ok_and(|origin| self.serves_origin(origin)) => Ok(()),
            (Some(_), _) => Err(Foreign::Origin),
        }
    }

    fn is_our_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Hosts::Named { .. } = &self.hosts else { return true };
        let named = headers.get_all(HOST).iter().map(|value| value.to_str().ok());
        let mut named = named.chain(uri.authority().map(|authority| Some(authority.as_str()))).peekable();
        let is_served = |name: Option<&str>| name.is_some_and(|name| self.hosts.serve(name));
        headers.get_all(HOST).iter().count() <= 1 && named.peek().is_some() && named.all(is_served)
    }

    fn serves_origin(&self, origin: &str) -> bool {
        if self.is_allowed_origin(origin) {
            return true;
        }
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        // Without a rule for hosts we do not know our own names.
        matches!(self.hosts, Hosts::Named { .. }) && authority.is_some_and(|name| self.hosts.serve(name))
    }

    fn is_allowed_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(origin))
    }

    /// The headers that let a page of an allowed origin read an answer; none unless `allowed_origins` names
    /// the origin of the request.
    pub(super) fn sharing(&self, headers: &HeaderMap) -> Option<HeaderMap> {
        let origin = headers.get(ORIGIN)?;
        if !origin.to_str().is_ok_and(|origin| self.is_allowed_origin(origin)) {
            return None;
        }
        let is_any = self.origins.iter().any(|allowed| allowed == "*");
        let shown = if is_any { HeaderValue::from_static("*") } else { origin.clone() };
        Some(HeaderMap::from_iter([
            (ACCESS_CONTROL_ALLOW_ORIGIN, shown),
            (ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED),
            (VARY, HeaderValue::from_static("Origin")),
        ]))
    }

    /// What a preflight is told besides [`Site::sharing`]. Which `Mcp-Param-*` there are depends on the tools,
    /// so those are allowed that are asked for.
    pub(super) fn preflight(asked: &HeaderMap) -> HeaderMap {
        let names =
            asked.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
        let is_param = |name: &&str| {
            let name = name.to_ascii_lowercase();
            name.starts_with(PARAM_PREFIX) && HeaderName::try_from(name).is_ok()
        };
        let params = names.flat_map(|names| names.split(',')).map(str::trim).filter(is_param);
        let allowed = params.fold(REQUEST_HEADERS.to_owned(), |all, name| format!("{all}, {name}"));
        let allowed = HeaderValue::try_from(allowed);
        HeaderMap::from_iter([
            (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (ACCESS_CONTROL_ALLOW_HEADERS, allowed.unwrap_or(HeaderValue::from_static(REQUEST_HEADERS))),
            (ACCESS_CONTROL_MAX_AGE, PREFLIGHT_AGE),
        ])
    }
}

impl Hosts {
    fn serve(&self, authority: &str) -> bool {
        let Self::Named { own, names } = self else { return true };
        let Some((host, _port)) = split(authority) else { return false };
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        let is_loopback =
            host.eq_ignore_ascii_case("localhost") || address.is_some_and(|ip| ip.is_loopback());
        is_loopback
            || address.is_some_and(|address| address == *own && !own.is_unspecified())
            || names.iter().any(|name| name.eq_ignore_ascii_case(authority) || is_host(name, host))
    }
}

/// Whether `name`, an entry without a port, is `host`.
fn is_host(name: &str, host: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case(host)
}

/// Host and port of an authority; `None` if it is none, or has user information.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let port = if port.is_empty() { None } else { Some(port.strip_prefix(':')?) };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_name = !host.is_empty() && !host.contains(['@', '/', ' ', '?', '#']);
    (is_name && port.is_none_or(is_port)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::for_test;

    fn site(address: [u8; 4], hosts: &[&str], origins: &[&str]) -> Site {
        let mut config = for_test::config(&[], &[]);
        config.allowed_hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        config.allowed_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Site::new(&config, (address, 8080).into())
    }

    fn headers(host: Option<&str>, origin: Option<&str>) -> HeaderMap {
        let pairs = [(HOST, host), (ORIGIN, origin)].into_iter();
        pairs.filter_map(|(name, value)| Some((name, HeaderValue::from_str(value?).unwrap()))).collect()
    }

    fn admit(site: &Site, host: &str, origin: Option<&str>) -> Result<(), Foreign> {
        site.admit(&Uri::from_static("/mcp"), &headers(Some(host), origin))
    }

    #[test]
    fn cor_02_on_loopback_only_loopback_is_served() {
        let local = site([127, 0, 0, 1], &[], &[]);
        for host in ["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:8080"] {
            assert_eq!(admit(&local, host, None), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "localhost@evil.example",
            "0.0.0.0:8080",
            "10.0.0.1",
            "localhost:x",
            "[::1",
            "::1",
            "",
        ] {
            assert_eq!(admit(&local, host, None), Err(Foreign::Host), "{host}");
        }
        for origin in ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:3000", "http://localhost"]
        {
            assert_eq!(admit(&local, "127.0.0.1:8080", Some(origin)), Ok(()), "{origin}");
        }
        for origin in
            ["http://evil.example", "null", "", "localhost", "file://localhost", "http://localhost@x"]
        {
            assert_eq!(admit(&local, "127.0.0.1:8080", Some(origin)), Err(Foreign::Origin), "{origin}");
        }
        let nameless = local.admit(&Uri::from_static("/mcp"), &HeaderMap::new());
        assert_eq!(nameless, Err(Foreign::Host));
    }

    #[test]
    fn the_authority_of_http_2_is_a_host() {
        let local = site([127, 0, 0, 1], &[], &[]);
        let ask = |uri: &'static str, host| local.admit(&Uri::from_static(uri), &headers(host, None));
        assert_eq!(ask("http://localhost:8080/mcp", None), Ok(()));
        assert_eq!(ask("http://evil.example/mcp", None), Err(Foreign::Host));
        assert_eq!(ask("http://evil.example/mcp", Some("localhost")), Err(Foreign::Host));
        assert_eq!(ask("http://localhost/mcp", Some("evil.example")), Err(Foreign::Host));
    }

    #[test]
    fn elsewhere_the_configuration_says_which_hosts() {
        let open = site([0, 0, 0, 0], &[], &["https://app.example"]);
        assert_eq!(admit(&open, "anything.example", None), Ok(()));
        assert_eq!(admit(&open, "gw.example", Some("https://app.example")), Ok(()));
        assert_eq!(admit(&open, "gw.example", Some("https://gw.example")), Err(Foreign::Origin));
        let named = site([10, 0, 0, 1], &["gw.example", "other.example:8443", "[fd00::1]"], &[]);
        for host in ["gw.example", "GW.example:443", "other.example:8443", "10.0.0.1:8080", "[fd00::1]:1"] {
            assert_eq!(admit(&named, host, None), Ok(()), "{host}");
        }
        assert_eq!(admit(&named, "other.example", None), Err(Foreign::Host));
        assert_eq!(admit(&named, "gw.example", Some("https://gw.example")), Ok(()));
        assert_eq!(admit(&named, "gw.example", Some("https://evil.example")), Err(Foreign::Origin));
        assert_eq!(admit(&site([127, 0, 0, 1], &["*"], &["*"]), "x", Some("http://y")), Ok(()));
    }

    #[test]
    fn cor_01_only_configured_origins_may_read_answers() {
        let site = site([127, 0, 0, 1], &[], &["https://app.example"]);
        let shared = site.sharing(&headers(None, Some("https://app.example"))).unwrap();
        assert_eq!(shared[ACCESS_CONTROL_ALLOW_ORIGIN], "https://app.example");
        assert!(shared[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().contains("mcp-session-id"));
        assert!(shared[ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap().contains("www-authenticate"));
        assert!(site.sharing(&headers(None, Some("http://localhost:6274"))).is_none());
        assert!(site.sharing(&HeaderMap::new()).is_none());
    }
}
