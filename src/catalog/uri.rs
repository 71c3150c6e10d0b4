//! URIs: the tag that tells equal URIs of two upstreams apart, and what a filter says of every spelling of one.

use std::borrow::Cow;

use crate::config::Filter;

/// Stands between a URI and the name of its upstream.
const TAG: &str = "#@";

/// The URI under a tag: scheme and path unchanged.
pub(super) fn tagged(uri: &str, upstream: &str) -> String {
    format!("{uri}{TAG}{upstream}")
}

/// The URI and the name of the upstream, if there is a tag.
#[must_use]
pub fn split_tag(uri: &str) -> Option<(&str, &str)> {
    uri.rsplit_once(TAG)
}

/// Whether a filter lets a URI through, however it is spelled.
///
/// Beside the URI as it stands, `deny` sees it with its percent escapes decoded, and with `.` and `..`
/// resolved besides; `allow` must also match what it resolves to.
#[must_use]
pub fn admits_uri(filter: &Filter, uri: &str) -> bool {
    if *filter == Filter::default() {
        return true;
    }
    let decoded = decode(uri);
    let resolved = resolve(&decoded);
    let denied = |text: &str| filter.deny.iter().any(|pattern| pattern.matches(text));
    if !filter.admits(uri) || denied(&decoded) {
        return false;
    }
    match resolved {
        Some(resolved) => filter.admits(&resolved),
        None => true,
    }
}

/// The text with its percent escapes decoded, as far as that gives text.
fn decode(uri: &str) -> Cow<'_, str> {
    if !uri.contains('%') {
        return Cow::Borrowed(uri);
    }
    let mut out = Vec::with_capacity(uri.len());
    let mut rest = uri.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escape = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
            u8::from_str_radix(digits, 16).ok()
        });
        out.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

/// The URI with the `.` and `..` of its path resolved; `None` where it has none.
fn resolve(uri: &str) -> Option<String> {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let (path, rest) = uri.split_at_checked(end)?;
    let is_dots = |segment: &str| segment == "." || segment == "..";
    let (head, path) = match path.find("://") {
        Some(at) => path.split_at_checked(at + 3)?,
        None => ("", path),
    };
    if !path.split(['/', '\\']).any(is_dots) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split(['/', '\\']) {
        match segment {
            "." => {}
            // The first segment is the authority, or nothing.
            ".." if kept.len() > 1 => drop(kept.pop()),
            ".." => {}
            other => kept.push(other),
        }
    }
    Some(format!("{head}{}{rest}", kept.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pattern;

    fn filter(allow: Option<&[&str]>, deny: &[&str]) -> Filter {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::from(*text)).collect();
        Filter { allow: allow.map(patterns), deny: patterns(deny) }
    }

    #[test]
    fn every_spelling_of_a_denied_uri_is_denied() {
        let rules = filter(None, &["file:///secret*"]);
        for uri in [
            "file:///secret.txt",
            "file:///%73ecret.txt",
            "file:///secre%74",
            "file:///public/../secret.txt",
            "file:///public/%2e%2e/secret.txt",
            "file:///./secret.txt",
            "file:///../secret.txt",
            "file:///a%2f..%2fsecret",
        ] {
            assert!(!admits_uri(&rules, uri), "{uri}");
        }
        for uri in
            ["file:///public.txt", "file:///a/secret", "file:///a%zz", "file:///a%+1", "x", "file:///a..b"]
        {
            assert!(admits_uri(&rules, uri), "{uri}");
        }
    }

    #[test]
    fn nobody_climbs_out_of_what_is_allowed() {
        let rules = filter(Some(&["file:///docs/*"]), &[]);
        assert!(admits_uri(&rules, "file:///docs/a%20b"));
        assert!(admits_uri(&rules, "file:///docs/a/../b"));
        assert!(!admits_uri(&rules, "file:///docs/../etc/passwd"));
        assert!(!admits_uri(&rules, "file:///docs/%2e%2e/etc/passwd"));
        assert!(!admits_uri(&rules, "file:///docs/..%5cetc"));
        assert!(!admits_uri(&rules, "file:///etc"));
    }

    #[test]
    fn a_tag_comes_off_again() {
        let uri = tagged("config://app?x=1#y", "files");
        assert_eq!(uri, "config://app?x=1#y#@files");
        assert_eq!(split_tag(&uri), Some(("config://app?x=1#y", "files")));
        assert_eq!(split_tag("config://app#y"), None);
    }
}
