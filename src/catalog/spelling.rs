//! What a server may take a URI for. A filter over URIs holds for all of it: servers cut, decode and resolve in
//! different ways, and which way one does cannot be seen from here.
//!
//! Must not know: which entries there are.

use std::collections::BTreeSet;

use url::Url;

use crate::config::{Filter, Pattern};

/// How often in a row a URI is decoded. What still has escapes then cannot be judged.
const DECODINGS: usize = 2;

/// Whether a filter lets a URI through, however it is spelled.
///
/// `allow` must match the URI as it stands and whatever it may be taken for with nothing left out; `deny` must
/// match none of that, nor what is left of it without query, fragment or host. Patterns are read in the same ways.
/// A URI that cannot be judged (control characters, escapes that are no text or nest deeper than two) passes no
/// filter.
#[must_use]
pub fn admits_uri(filter: &Filter, uri: &str) -> bool {
    if *filter == Filter::default() {
        return true;
    }
    let Some(texts) = decoded(uri) else { return false };
    let whole = whole_readings(&texts);
    let parts = texts.iter().flat_map(|text| part_readings(text));
    let mut all: BTreeSet<String> = parts.collect();
    all.extend(whole.iter().cloned());
    let matches = |pattern: &Pattern, reading: &str| {
        pattern.matches(reading) || spelled(pattern).iter().any(|spelled| spelled.matches(reading))
    };
    let is_denied = filter.deny.iter().any(|pattern| all.iter().any(|reading| matches(pattern, reading)));
    let is_allowed = filter.admits(uri)
        && filter.allow.as_ref().is_none_or(|allow| {
            whole.iter().all(|reading| allow.iter().any(|pattern| matches(pattern, reading)))
        });
    is_allowed && !is_denied
}

/// A pattern in the other spellings of its text.
fn spelled(pattern: &Pattern) -> Vec<Pattern> {
    let texts = decoded(pattern.as_str()).unwrap_or_default();
    let others = whole_readings(&texts).into_iter().filter(|text| text != pattern.as_str());
    others.map(|text| Pattern::from(text.as_str())).collect()
}

/// The URI, and what its percent escapes stand for; `None` if it cannot be judged.
fn decoded(uri: &str) -> Option<Vec<String>> {
    let mut texts = vec![uri.to_owned()];
    loop {
        let last = texts.last()?;
        let next = decode(last)?;
        if next == *last {
            break;
        }
        if texts.len() > DECODINGS {
            return None;
        }
        texts.push(next);
    }
    let is_clean = |text: &String| text.trim().len() == text.len() && !text.chars().any(char::is_control);
    texts.iter().all(is_clean).then_some(texts)
}

/// The text with its percent escapes decoded once; `None` if that is no text.
fn decode(uri: &str) -> Option<String> {
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
    String::from_utf8(out).ok()
}

/// What a URI may be taken for as a whole.
fn whole_readings(texts: &[String]) -> BTreeSet<String> {
    let mut readings = BTreeSet::new();
    for text in texts {
        let parts = Parts::of(text);
        readings.insert(text.clone());
        readings.insert(parts.with_path(&resolve(parts.path, Empty::Kept)) + parts.rest);
        // To who takes all that follows for the path.
        let path = format!("{}{}", parts.path, parts.rest);
        readings.insert(parts.with_path(&resolve(&path, Empty::Kept)));
        readings.insert(parts.with_path(&resolve(&path, Empty::Dropped)));
    }
    readings
}

/// What a URI may be taken for by who leaves something of it out.
fn part_readings(text: &str) -> Vec<String> {
    let parts = Parts::of(text);
    let whole = format!("{}{}", parts.path, parts.rest);
    let paths = [parts.path, &whole];
    let mut readings = vec![parts.with_path(parts.path)];
    for path in paths {
        for empty in [Empty::Kept, Empty::Dropped] {
            readings.push(parts.with_path(&resolve(path, empty)));
            if parts.is_file() {
                readings.push(format!("file://{}", resolve(path, empty)));
            }
        }
    }
    // What a browser makes of it: the rules for `http` and the like are theirs.
    if let Ok(mut url) = Url::parse(text) {
        let _no_user = (url.set_username(""), url.set_password(None));
        url.set_fragment(None);
        readings.push(url.to_string());
        url.set_query(None);
        readings.push(url.to_string());
    }
    readings
}

/// A URI in parts, without a judgement.
struct Parts<'a> {
    scheme: String,
    /// With what stands before it.
    authority: String,
    path: &'a str,
    /// Query and fragment.
    rest: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let (scheme, behind) = match text.split_once(':') {
            Some((scheme, behind)) => (format!("{}:", scheme.to_ascii_lowercase()), behind),
            None => (String::new(), text),
        };
        let (authority, behind) = match behind.strip_prefix("//") {
            Some(behind) => {
                let end = behind.find(['/', '\\', '?', '#']).unwrap_or(behind.len());
                let (host, behind) = behind.split_at_checked(end).unwrap_or((behind, ""));
                (format!("//{}", host.to_ascii_lowercase()), behind)
            }
            None => (String::new(), behind),
        };
        let end = behind.find(['?', '#']).unwrap_or(behind.len());
        let (path, rest) = behind.split_at_checked(end).unwrap_or((behind, ""));
        Self { scheme, authority, path, rest }
    }

    fn is_file(&self) -> bool {
        self.scheme == "file:"
    }

    fn with_path(&self, path: &str) -> String {
        format!("{}{}{path}", self.scheme, self.authority)
    }
}

/// What becomes of the nothing between two slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    /// It is a segment like others, as for the rules of URIs.
    Kept,
    /// It is nothing, as for file systems.
    Dropped,
}

/// A path with its `.` and `..` resolved; a backslash is a slash.
fn resolve(path: &str, empty: Empty) -> String {
    let is_absolute = path.starts_with(['/', '\\']);
    let inner = if is_absolute { path.get(1..).unwrap_or_default() } else { path };
    let mut kept: Vec<&str> = Vec::new();
    let mut is_open = false;
    for segment in inner.split(['/', '\\']) {
        is_open = matches!(segment, "." | ".." | "");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            "" if empty == Empty::Dropped => {}
            other => kept.push(other),
        }
    }
    // A path that ends in a slash, or in dots, names a folder.
    let end = if is_open && !kept.is_empty() && kept.last() != Some(&"") { "/" } else { "" };
    format!("{}{}{end}", if is_absolute { "/" } else { "" }, kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: Option<&[&str]>, deny: &[&str]) -> Filter {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::from(*text)).collect();
        Filter { allow: allow.map(patterns), deny: patterns(deny), ..Filter::default() }
    }

    #[test]
    fn every_spelling_of_a_denied_uri_is_denied() {
        let rules = filter(None, &["file:///srv/secret/*", "https://internal.example/*"]);
        for uri in [
            "file:///srv/secret/key",
            "file:///srv/%73ecret/key",
            "file:///srv/%2573ecret/key",
            "file:///srv/secre%74/key",
            "file:///srv/public/../secret/key",
            "file:///srv/public/%2e%2e/secret/key",
            "file:///srv/./secret/key",
            "file:///../srv/secret/key",
            "file:///srv%2fx%2f..%2fsecret%2fkey",
            "file:///srv//secret/key",
            "file:////srv/secret/key",
            "file:///srv/secret//key",
            "file:///srv/public//../secret/key",
            "file:///srv/public//../../secret/key",
            "file:///srv/public%3F/../secret/key",
            "file:///srv/x%23/../secret/key",
            "file:///srv/public?/../secret/key",
            "file:///srv/public?x=1/../secret/key",
            "file:///srv/secret/key?x",
            "file:///srv\\secret\\key",
            "FILE:///srv/secret/key",
            "file://localhost/srv/secret/key",
            "file:/srv/secret/key",
            "https://INTERNAL.example/x",
            "https://user:word@internal.example/x",
            "https://internal.example:443/x",
            "https:\\\\internal.example\\x",
            "https:/internal.example/x",
        ] {
            assert!(!admits_uri(&rules, uri), "{uri}");
        }
        for uri in [
            "file:///srv/public.txt",
            "file:///srv/a/secret/key",
            "file:///a%zz",
            "file:///a%+1",
            "x",
            "file:///a..b",
            "https://example.com/?next=https://internal.example/x",
            "mem:a",
        ] {
            assert!(admits_uri(&rules, uri), "{uri}");
        }
    }

    #[test]
    fn what_is_cut_off_does_not_hide_a_denied_uri() {
        let rules = filter(None, &["file:///key.txt"]);
        for uri in ["file:///key.txt?", "file:///key.txt#", "file:///key.txt?a#b", "file:///key.txt#@up"] {
            assert!(!admits_uri(&rules, uri), "{uri}");
        }
    }

    #[test]
    fn nobody_climbs_out_of_what_is_allowed() {
        let rules = filter(Some(&["file:///docs/*"]), &[]);
        for uri in ["file:///docs/a%20b", "file:///docs/a/../b", "file:///docs/", "file:///docs/a//b?c=d#e"] {
            assert!(admits_uri(&rules, uri), "{uri}");
        }
        for uri in [
            "file:///docs/../etc/passwd",
            "file:///docs/%2e%2e/etc/passwd",
            "file:///docs/..%5cetc",
            "file:///docs/%3F/../../etc/passwd",
            "file:///docs/x%3Fy/../../../etc/passwd",
            "file:///docs/?/../../etc/passwd",
            "file:///docs//../../etc/passwd",
            "file:///docs/a/%252e%252e/%252e%252e/etc",
            "file:///etc",
        ] {
            assert!(!admits_uri(&rules, uri), "{uri}");
        }
    }

    #[test]
    fn what_is_spelled_like_its_rule_is_allowed() {
        for uri in [
            "file:///docs/a%20b",
            "web://fetch/https://example.com/x?q=1",
            "db://t?id=5",
            "file:///a//b/../c",
            "HTTP://Example.com/%7Ea",
            "urn:isbn:1",
            "x:%25",
            "",
        ] {
            assert!(admits_uri(&filter(Some(&[uri]), &[]), uri), "{uri}");
            assert!(!admits_uri(&filter(None, &[uri]), uri), "{uri}");
        }
        let rules = filter(Some(&["web://fetch/https://example.com/*"]), &[]);
        assert!(admits_uri(&rules, "web://fetch/https://example.com/x"));
        assert!(!admits_uri(&rules, "web://fetch/https://example.com/../../x"));
    }

    #[test]
    fn what_cannot_be_judged_passes_no_filter() {
        let rules = filter(None, &["file:///secret"]);
        for uri in
            ["file:///sec\tret", "file:///sec%0aret", " file:///x", "file:///x%00", "a:%ff", "a:%25252525"]
        {
            assert!(!admits_uri(&rules, uri), "{uri:?}");
            assert!(admits_uri(&Filter::default(), uri), "{uri:?}");
        }
    }

    proptest! {
        #[test]
        fn no_spelling_gets_past_a_folder_that_is_denied(
            noise in prop::collection::vec(prop::sample::select(vec![
                "/", "/./", "/a/../", "//", "/%2e/", "/b%2f..%2f", "\\", "/?/../", "/%23/../", "/c//../../c/../",
            ]), 1..5),
        ) {
            // As naive servers do: decode, drop what leads nowhere, resolve.
            let uri = format!("file:///srv{}secret/key", noise.concat());
            let path = decode(uri.strip_prefix("file://").unwrap()).unwrap();
            let real = resolve(&path, Empty::Dropped);
            let rules = filter(None, &["file:///srv/secret/*"]);
            if real.starts_with("/srv/secret/") {
                prop_assert!(!admits_uri(&rules, &uri), "{}", uri);
            }
            let rules = filter(Some(&["file:///srv/*"]), &[]);
            if !real.starts_with("/srv/") {
                prop_assert!(!admits_uri(&rules, &uri), "{}", uri);
            }
        }
    }
}
