//! Which values of `Host` and `Origin` the admin listener answers to: DNS rebinding reaches it, too.
//!
//! Must not know: the pages.

use std::net::{IpAddr, SocketAddr};

/// The names that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Only those of this machine: the listener is on loopback, so nobody else can mean it.
    Loopback,
    /// Any.
    All,
}

impl Names {
    /// The names of a listener on `address`.
    pub(super) fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_loopback() { Self::Loopback } else { Self::All }
    }

    /// Whether a request for `host` is served.
    pub(super) fn allow(self, host: Option<&str>) -> bool {
        match self {
            Self::All => true,
            Self::Loopback => host.is_some_and(is_loopback),
        }
    }
}

impl Names {
    /// Whether a page of `origin` may read from here.
    pub(super) fn allow_origin(self, origin: Option<&str>) -> bool {
        let host = origin.and_then(|origin| origin.split_once("://")).map(|(_scheme, host)| host);
        self.allow(host)
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _port)) => name,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let is_address = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_loopback_only_loopback_names_are_served() {
        let names = Names::of(([127, 0, 0, 1], 1).into());
        for good in ["localhost", "LocalHost:9090", "127.0.0.1", "127.8.8.8:1", "[::1]", "[::1]:9090"] {
            assert!(names.allow(Some(good)), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example:9090", "10.0.0.1", "[::2]:1", "", "localhost@x"] {
            assert!(!names.allow(Some(bad)), "{bad}");
        }
        assert!(!names.allow(None));
        assert!(
            names.allow_origin(Some("http://localhost:3000")) && names.allow_origin(Some("https://[::1]"))
        );
        for bad in ["http://evil.example", "null", "localhost", "http://localhost.evil.example"] {
            assert!(!names.allow_origin(Some(bad)), "{bad}");
        }
        assert!(Names::of(([0, 0, 0, 0], 1).into()).allow(Some("gateway.internal:9090")));
    }
}
