//! Addresses, hosts and origins.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{DEFAULT_LISTEN, way};
use crate::config::ServerTls;
use crate::config::effective::{self, Origin};
use crate::config::reader::Text;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::{Node, Value};

const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
const DEFAULT_DEMO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8180);

/// Where MCP is served.
pub(crate) fn listen(top: &mut Section<'_>) -> Listener {
    listener(top, keys::LISTEN.name, DEFAULT_LISTEN)
}

/// An address, and certificates where it speaks TLS.
type Listener = (SocketAddr, Option<ServerTls>);

fn listener(top: &mut Section<'_>, key: &'static str, default: SocketAddr) -> Listener {
    let Some(node @ Node { value: Value::Map(_), span }) = top.find(key) else {
        return (address(top, key, default), None);
    };
    let Some(entries) = top.reader.entries(node, &quoted(key), "an address") else { return (default, None) };
    let mut section = Section::open(top.reader, &keys::LISTEN_TABLE, entries, top.place(key));
    let found = address(&mut section, keys::LISTEN_ADDRESS.name, default);
    if !section.has(keys::LISTEN_TLS.name) && !section.misspells(keys::LISTEN_TLS.name) {
        let finding = Finding::error(format!("{} has no `tls`", quoted(key))).at(*span);
        section.report(finding.help(format!("without TLS, write `{key}: {}`", shown(found))));
    }
    let tls = way::of_listener(&mut section);
    top.out.put(key, section.finish().inline(), Origin::Line(span.line));
    (found, tls)
}

/// Where health and metrics are served, unless `false`.
pub(crate) fn admin(top: &mut Section<'_>) -> Option<Listener> {
    if let Some(node) = top.find(keys::ADMIN.name)
        && let Value::Scalar(scalar) = &node.value
        && scalar.text.eq_ignore_ascii_case("false")
    {
        top.out.put(keys::ADMIN.name, "false".to_owned(), Origin::Line(node.span.line));
        return None;
    }
    Some(listener(top, keys::ADMIN.name, DEFAULT_ADMIN))
}

/// Where the demo server listens, if it is wanted.
pub(crate) fn demo(top: &mut Section<'_>) -> Option<SocketAddr> {
    if !top.has(keys::DEMO.name) {
        top.out.put_unset(keys::DEMO.name);
        return None;
    }
    let address = top.within(&keys::DEMO, |demo| address(demo, keys::DEMO_LISTEN.name, DEFAULT_DEMO));
    if !address.ip().is_loopback() {
        let finding = Finding::warning("the demo server is open to everybody on the network");
        top.report(finding.at(top.place(keys::DEMO.name)).help("write `demo: {listen: 127.0.0.1:8180}`"));
    }
    Some(address)
}

/// Reports two listeners on one address.
pub(crate) fn check_distinct(
    top: &Section<'_>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    demo: Option<SocketAddr>,
) {
    let listeners =
        [(&keys::LISTEN.name, Some(listen)), (&keys::ADMIN.name, admin), (&keys::DEMO.name, demo)];
    for (at, (name, address)) in listeners.iter().enumerate() {
        for (other_name, other) in listeners.iter().take(at) {
            let (Some(address), Some(other)) = (address, other) else { continue };
            let is_same_ip =
                address.ip() == other.ip() || address.ip().is_unspecified() || other.ip().is_unspecified();
            if address.port() != 0 && address.port() == other.port() && is_same_ip {
                let finding =
                    Finding::error(format!("`{other_name}` and `{name}` are the same address, {address}"));
                let span = [top.place(name), top.place(other_name)].into_iter().max_by_key(|span| span.line);
                top.report(finding.at(span.unwrap_or_default()));
                break;
            }
        }
    }
}

fn address(section: &mut Section<'_>, key: &'static str, default: SocketAddr) -> SocketAddr {
    let Some(node) = section.find(key) else {
        section.out.put(key, shown(default), Origin::Default);
        return default;
    };
    let Some(text) = section.reader.text(node, &quoted(key)) else {
        return default;
    };
    match parse_address(text.value.trim()) {
        Ok(address) => {
            section.out.put(key, shown(address), Origin::Line(node.span.line));
            address
        }
        Err(help) => {
            let finding = Finding::error(format!("`{}` is not an address", text.written)).at(node.span);
            section.report(finding.help(help));
            default
        }
    }
}

/// An address as YAML: only the brackets of IPv6 need quotes.
fn shown(address: SocketAddr) -> String {
    if address.is_ipv4() { address.to_string() } else { effective::scalar(&address.to_string()) }
}

/// Reads an address; what to do instead if it is none.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let form = "it is written `127.0.0.1:8080`, `[::1]:8080`, or a port alone for loopback".to_owned();
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Err(format!("add a port: `{}`", SocketAddr::new(ip, 8080)));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) || port.is_empty() {
        return Err(form);
    }
    let Ok(port) = port.parse() else {
        return Err("a port is a number up to 65535".to_owned());
    };
    match host {
        "" | "localhost" => Ok(SocketAddr::new(loopback, port)),
        "*" => Err(format!("for every interface write `0.0.0.0:{port}`")),
        _ => Err("write the IP address in place of the name".to_owned()),
    }
}

/// Values of `Host` that are served besides our own, in lower case.
pub(crate) fn allowed_hosts(top: &mut Section<'_>) -> Vec<String> {
    let mut hosts = Vec::new();
    for text in top.texts(&keys::ALLOWED_HOSTS) {
        let host = text.value.to_ascii_lowercase();
        let is_host =
            !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
        if is_host || host == "*" {
            hosts.push(host);
        } else {
            report_item(top, &text, "host", "it is written `mcp.example.com`, `mcp.example.com:8443` or `*`");
        }
    }
    hosts
}

/// Values of `Origin` that are served besides our own, in lower case.
pub(crate) fn allowed_origins(top: &mut Section<'_>) -> Vec<String> {
    let mut origins = Vec::new();
    for text in top.texts(&keys::ALLOWED_ORIGINS) {
        let origin = text.value.trim_end_matches('/').to_ascii_lowercase();
        let is_origin = origin.split_once("://").is_some_and(|(scheme, host)| {
            let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            is_scheme
                && !host.is_empty()
                && host.chars().all(|c| c.is_ascii_graphic() && !"/?#@*".contains(c))
        });
        if is_origin || origin == "*" {
            origins.push(origin);
        } else {
            report_item(
                top,
                &text,
                "origin",
                "it is written `https://app.example.com`, without a path, or `*`",
            );
        }
    }
    origins
}

fn report_item(top: &Section<'_>, text: &Text, noun: &str, help: &str) {
    top.report(Finding::error(format!("`{}` is no {noun}", text.written)).at(text.span).help(help));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_loopback_unless_they_say_otherwise() {
        for (text, wanted) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("8080", "127.0.0.1:8080"),
            (":8080", "127.0.0.1:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:8080", "[::1]:8080"),
            ("[::]:1", "[::]:1"),
        ] {
            assert_eq!(
                parse_address(text).map(|address| address.to_string()),
                Ok(wanted.to_owned()),
                "{text}"
            );
        }
        for text in [
            "",
            "127.0.0.1",
            "::1",
            "example.com:80",
            "*:80",
            "1.2.3:80",
            "8080x",
            "70000",
            "a:b:c",
            "http://x:80",
            "-1",
        ] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
