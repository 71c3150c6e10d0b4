//! Patterns over names and annotations, and filters made of them.
//!
//! In a name `*` is any run of characters, `?` is one character; all else is itself, byte for byte. An annotation
//! that is not there matches nothing.

use std::fmt;

use super::{Filter, Pattern};
use crate::mcp::Hints;

/// What a filter says about a name, and which rule said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// There is no `allow`, and no `deny` matches.
    Unrestricted,
    /// This pattern of `allow` matches, and none of `deny`.
    Allowed(&'a Pattern),
    /// This pattern of `deny` matches, whatever `allow` says.
    Denied(&'a Pattern),
    /// No pattern of `allow` matches.
    NotAllowed,
}

/// What a pattern looks at. A text alone is a name of which nothing else can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The name, or the URI.
    pub name: &'a str,
    /// What it says of itself.
    pub hints: Sight,
}

/// How much is known of what something says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Seen(Hints),
    /// Nothing, but it may say anything: what would let it through does not match, and what would not does.
    Unseen,
}

impl<'a> From<&'a str> for Subject<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, hints: Sight::Seen(Hints::default()) }
    }
}

impl<'a> From<&'a String> for Subject<'a> {
    fn from(name: &'a String) -> Self {
        name.as_str().into()
    }
}

impl Verdict<'_> {
    /// Whether the name is let through.
    #[must_use]
    pub fn admits(&self) -> bool {
        match self {
            Self::Unrestricted | Self::Allowed(_) => true,
            Self::Denied(_) | Self::NotAllowed => false,
        }
    }
}

impl Filter {
    /// Whether it lets this through. `deny` wins; without `allow`, all that is not denied.
    #[must_use]
    pub fn admits<'s>(&self, subject: impl Into<Subject<'s>>) -> bool {
        self.judge(subject).admits()
    }

    /// What it says about this, and which rule said so: the first that matches, in the order of the file.
    #[must_use]
    pub fn judge<'s>(&self, subject: impl Into<Subject<'s>>) -> Verdict<'_> {
        let subject = subject.into();
        let mut denied = self.deny.iter();
        if let Some(pattern) = denied.find(|pattern| pattern.may_match(subject)) {
            return Verdict::Denied(pattern);
        }
        let Some(allow) = &self.allow else {
            return Verdict::Unrestricted;
        };
        allow.iter().find(|pattern| pattern.matches(subject)).map_or(Verdict::NotAllowed, Verdict::Allowed)
    }

    /// Whether it lets anything of this name through, whatever that says of itself.
    #[must_use]
    pub fn may_admit(&self, name: &str) -> bool {
        let is_denied = |pattern: &Pattern| pattern.hints.is_empty() && pattern.matches(name);
        let is_allowed = |pattern: &Pattern| pattern.matches_name(name);
        !self.deny.iter().any(is_denied)
            && self.allow.as_ref().is_none_or(|allow| allow.iter().any(is_allowed))
    }

    /// Every pattern, those of `allow` first.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.allow.iter().flatten().chain(&self.deny)
    }
}

impl Pattern {
    /// A pattern on a line of the file.
    pub(crate) fn on_line(text: &str, line: usize) -> Self {
        Self { text: text.into(), name: text.into(), hints: Hints::default(), line }
    }

    /// A pattern over names and annotations, as it is written, on a line of the file.
    pub(crate) fn over_hints(name: &str, hints: Hints, text: &str, line: usize) -> Self {
        Self { text: text.into(), name: name.into(), hints, line }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the name must be like.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line of the file on which it stands; 0 for one that is in none.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// What stands before its first wildcard.
    #[must_use]
    pub fn literal_start(&self) -> &str {
        self.name.split(['*', '?']).next().unwrap_or_default()
    }

    /// Whether it matches the whole name, and what is said is what it asks for. Takes at most the product of both
    /// lengths, and no memory.
    #[must_use]
    pub fn matches<'s>(&self, subject: impl Into<Subject<'s>>) -> bool {
        let Subject { name, hints } = subject.into();
        let is_said = match hints {
            Sight::Seen(hints) => self.hints.fit(hints),
            Sight::Unseen => self.hints.is_empty(),
        };
        is_said && self.matches_name(name)
    }

    /// As [`Self::matches`]; what is not known is taken to be as it is asked for.
    fn may_match(&self, subject: Subject<'_>) -> bool {
        match subject.hints {
            Sight::Seen(_) => self.matches(subject),
            Sight::Unseen => self.matches_name(subject.name),
        }
    }

    fn matches_name(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.name.chars(), name.chars());
        // Where to go on after the last `*`: the pattern behind it, and the name from where it may end next.
        let mut retry = None;
        loop {
            let rest_here = rest.clone();
            let is_match = match (pattern.next(), rest.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    rest = rest_here;
                    retry = Some((pattern.clone(), rest.clone()));
                    continue;
                }
                (Some('?'), Some(_)) => true,
                (Some(wanted), Some(found)) => wanted == found,
                (Some(_), None) => return false,
                (None, Some(_)) => false,
            };
            if is_match {
                continue;
            }
            let Some((after_star, mut from)) = retry else {
                return false;
            };
            from.next();
            pattern = after_star.clone();
            rest = from.clone();
            retry = Some((after_star, from));
        }
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.hints == other.hints
    }
}

impl Eq for Pattern {}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self::on_line(text, 0)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
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
    fn stars_and_question_marks_are_the_only_wildcards() {
        for (pattern, name, wanted) in [
            ("echo", "echo", true),
            ("echo", "echo2", false),
            ("echo", "Echo", false),
            ("*", "", true),
            ("*", "anything", true),
            ("?", "", false),
            ("?", "ä", true),
            ("??", "ä", false),
            ("get_*", "get_", true),
            ("get_*", "get_x", true),
            ("get_*", "forget_x", false),
            ("*secret*", "a_secret_b", true),
            ("*secret*", "secre", false),
            ("a*b*c", "abbbc", true),
            ("a*b*c", "acb", false),
            ("**a**", "bab", true),
            ("*a?", "aaab", true),
            ("[a]", "a", false),
            ("[a]", "[a]", true),
            ("{a,b}", "a", false),
            ("a.c", "abc", false),
            ("a\\*", "a*", false),
            ("e\u{301}", "é", false),
            (" a", "a", false),
        ] {
            assert_eq!(Pattern::from(pattern).matches(name), wanted, "{pattern} on {name}");
        }
    }

    #[test]
    fn hostile_patterns_end_soon() {
        let (pattern, name) = ("*a".repeat(2_000) + "b", "a".repeat(4_000));
        assert!(!Pattern::from(pattern.as_str()).matches(&name));
    }

    #[test]
    fn deny_wins_over_allow() {
        let filter = filter(Some(&["get_*", "drop"]), &["drop", "*secret*"]);
        assert!(filter.admits("get_x"));
        assert!(!filter.admits("get_secrets"));
        assert!(!filter.admits("drop"));
        assert!(!filter.admits("list"));
    }

    #[test]
    fn empty_allow_is_nothing_and_no_allow_is_all() {
        assert!(!filter(Some(&[]), &[]).admits("a"));
        assert!(filter(None, &[]).admits("a"));
    }

    #[test]
    fn verdicts_name_the_rule() {
        let filter = filter(Some(&["x", "get_*"]), &["*secret*"]);
        assert_eq!(filter.judge("get_x"), Verdict::Allowed(&Pattern::from("get_*")));
        assert_eq!(filter.judge("get_secret"), Verdict::Denied(&Pattern::from("*secret*")));
        assert_eq!(filter.judge("put_x"), Verdict::NotAllowed);
        assert_eq!(Filter::default().judge("x"), Verdict::Unrestricted);
    }

    /// What the words say, without a thought for speed.
    fn oracle(pattern: &[char], name: &[char]) -> bool {
        match pattern {
            [] => name.is_empty(),
            ['*', rest @ ..] => (0..=name.len()).any(|skip| oracle(rest, &name[skip..])),
            [wanted, rest @ ..] => match name {
                [] => false,
                [found, tail @ ..] => (*wanted == '?' || wanted == found) && oracle(rest, tail),
            },
        }
    }

    #[test]
    fn annotations_must_be_there_and_say_so() {
        let hint = |name: &str, value| Hints::default().with((name, value)).unwrap();
        let reads = hint("readOnlyHint", true);
        let over = |name: &str, hints| Pattern::over_hints(name, hints, "{…}", 0);
        let filter = Filter {
            allow: Some(vec![over("*", reads), Pattern::from("put_*")]),
            deny: vec![over("*_secret", hint("destructiveHint", true))],
            ..Filter::default()
        };
        let judge = |name, hints| filter.admits(Subject { name, hints });
        assert!(judge("x", Sight::Seen(reads)));
        assert!(!judge("x", Sight::Seen(hint("readOnlyHint", false))));
        assert!(!judge("x", Sight::Seen(Hints::default())) && !filter.admits("x"));
        assert!(judge("put_x", Sight::Seen(Hints::default())));
        assert!(judge("put_secret", Sight::Seen(Hints::default())));
        assert!(!judge("put_secret", Sight::Seen(hint("destructiveHint", true))));
        assert!(!judge("x", Sight::Unseen), "it may not only read");
        assert!(!judge("put_secret", Sight::Unseen), "it may destroy");
        assert!(judge("put_x", Sight::Unseen));
        assert!(filter.may_admit("x") && filter.may_admit("put_secret"));
        assert!(!Filter { allow: None, deny: vec![Pattern::from("x")], ..Filter::default() }.may_admit("x"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn matching_does_what_the_words_say(pattern in "[ab*?é]{0,10}", name in "[abé]{0,12}") {
            let (pattern_chars, name_chars): (Vec<_>, Vec<_>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern::from(pattern.as_str()).matches(&name), oracle(&pattern_chars, &name_chars));
        }

        #[test]
        fn a_literal_matches_itself_only(name in "[^*?]{0,20}", other in "[^*?]{0,20}") {
            prop_assert!(Pattern::from(name.as_str()).matches(&name));
            prop_assert_eq!(Pattern::from(name.as_str()).matches(&other), name == other);
        }
    }
}
