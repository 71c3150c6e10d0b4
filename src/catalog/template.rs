//! URI templates: whether a URI may have been made from one. For routing, not for checking: the server has
//! the last word.
//!
//! Spec: RFC 6570, levels 1 to 3; what level 4 adds to a variable changes nothing here.

/// Longest URI that is matched, in bytes. A longer one is none of a template.
const MAX_URI: usize = 16 * 1024;
/// Most expressions of a template that is used for routing.
const MAX_EXPRESSIONS: usize = 64;

/// A template, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UriTemplate {
    parts: Vec<Part>,
    literal: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(Box<[u8]>),
    /// What an expression expands to: nothing, or a run that begins with `first`, if that is there, and
    /// holds none of `without`.
    Run {
        first: Option<u8>,
        without: &'static [u8],
    },
}

impl UriTemplate {
    /// Takes a template apart; `None` if its braces do not fit, or it has more than 64 expressions.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let (mut rest, mut literal, mut count) = (text, 0, 0);
        while !rest.is_empty() {
            let end = rest.find(['{', '}']).unwrap_or(rest.len());
            let (plain, tail) = rest.split_at_checked(end)?;
            if !plain.is_empty() {
                literal += plain.len();
                parts.push(Part::Literal(plain.as_bytes().into()));
            }
            if tail.is_empty() {
                break;
            }
            let (expression, tail) = tail.strip_prefix('{')?.split_once('}')?;
            count += 1;
            parts.push(run(expression)?);
            rest = tail;
        }
        (count <= MAX_EXPRESSIONS).then_some(Self { parts, literal })
    }

    /// How many bytes of it stand for themselves.
    pub(super) fn literal(&self) -> usize {
        self.literal
    }

    /// Whether it may expand to `uri`. Takes at most the product of both lengths.
    pub(super) fn matches(&self, uri: &str) -> bool {
        let uri = uri.as_bytes();
        if uri.len() > MAX_URI {
            return false;
        }
        // Where a match of the parts so far may end.
        let mut ends = vec![0];
        for part in &self.parts {
            ends = match part {
                Part::Literal(text) => after_literal(uri, &ends, text),
                Part::Run { first, without } => after_run(uri, &ends, *first, without),
            };
            if ends.is_empty() {
                return false;
            }
        }
        ends.last() == Some(&uri.len())
    }
}

fn run(expression: &str) -> Option<Part> {
    let (first, without): (Option<u8>, &'static [u8]) = match expression.as_bytes().first()? {
        b'+' => (None, b""),
        b'#' => (Some(b'#'), b""),
        b'.' => (Some(b'.'), b"/?#"),
        b'/' => (Some(b'/'), b"?#"),
        b';' => (Some(b';'), b"/?#"),
        b'?' => (Some(b'?'), b"#"),
        b'&' => (Some(b'&'), b"#"),
        b'{' => return None,
        _ => (None, b"/?#"),
    };
    Some(Part::Run { first, without })
}

fn after_literal(uri: &[u8], ends: &[usize], text: &[u8]) -> Vec<usize> {
    let is_there = |end: &&usize| uri.get(**end..).is_some_and(|rest| rest.starts_with(text));
    ends.iter().filter(is_there).map(|end| end + text.len()).collect()
}

fn after_run(uri: &[u8], ends: &[usize], first: Option<u8>, without: &[u8]) -> Vec<usize> {
    let mut after = Vec::new();
    let mut starts = ends.iter().copied().peekable();
    let mut is_running = false;
    for at in 0..=uri.len() {
        let is_start = starts.next_if_eq(&at).is_some();
        if is_start || is_running {
            after.push(at);
        }
        let Some(byte) = uri.get(at) else { break };
        let goes_on = is_running && !without.contains(byte);
        is_running = goes_on
            || match first {
                Some(first) => is_start && *byte == first,
                None => is_start && !without.contains(byte),
            };
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(template: &str, uri: &str) -> bool {
        UriTemplate::parse(template).unwrap().matches(uri)
    }

    #[test]
    fn expressions_of_every_operator_match_what_they_expand_to() {
        for (template, uri, wanted) in [
            ("file:///{path}", "file:///a.txt", true),
            ("file:///{path}", "file:///a%2Fb", true),
            ("file:///{path}", "file:///a/b", false),
            ("file:///{+path}", "file:///a/b?c#d", true),
            ("file:///{path}", "files:///a", false),
            ("test://template/{id}/data", "test://template/7/data", true),
            ("test://template/{id}/data", "test://template/7/8/data", false),
            ("test://template/{id}/data", "test://template/7/data/", false),
            ("x://{a}{b}", "x://ab", true),
            ("x://{a,b}", "x://1,2", true),
            ("x://h{/a,b}", "x://h/1/2", true),
            ("x://h{/a}", "x://h", true),
            ("x://h{/a}", "x://hello", false),
            ("x://h{?q,r}", "x://h?q=1&r=2", true),
            ("x://h{?q}", "x://h", true),
            ("x://h{?q}", "x://h/?q", false),
            ("x://h?f=1{&q}", "x://h?f=1&q=2", true),
            ("x://h{#part}", "x://h#p", true),
            ("x://h{.ext}", "x://h.txt", true),
            ("x://h{;p}", "x://h;p=1", true),
            ("x://{a}-{b}", "x://1-2-3", true),
            ("x://plain", "x://plain", true),
            ("x://plain", "x://plain2", false),
            ("{+any}", "whatever it is", true),
        ] {
            assert_eq!(matches(template, uri), wanted, "{template} on {uri}");
        }
    }

    #[test]
    fn what_is_no_template_is_not_used() {
        for text in ["x://{a", "x://a}", "x://{}", "x://{{a}}", "{a}{"] {
            assert_eq!(UriTemplate::parse(text), None, "{text}");
        }
        assert_eq!(UriTemplate::parse(&"{a}".repeat(65)), None);
    }

    #[test]
    fn hostile_templates_end_soon() {
        let template = "{a}x".repeat(60) + "y";
        assert!(!matches(&template, &"x".repeat(16 * 1024)));
        assert!(!matches("{+a}", &"x".repeat(16 * 1024 + 1)));
    }
}
