//! Exposed names: from `(prefix, native name)` to the one name that clients use.
//!
//! An exposed name depends on the configuration and on the tool's own name only, never on what else is
//! there, so a name means the same tool from one run to the next.

use aws_lc_rs::digest;

use crate::config::{Charset, Naming};

/// Makes exposed names for one upstream.
#[derive(Clone, Debug)]
pub struct ExposedNames {
    prefix: String,
    /// Longer prefixes of other upstreams that begin with ours: their names are not ours to take.
    foreign: Vec<String>,
    naming: Naming,
}

/// Characters of the hash that marks a changed name, without its underscore.
const HASH_LENGTH: usize = 8;

impl ExposedNames {
    /// For the upstream with `prefix` among upstreams with `all_prefixes` (its own may be among them).
    #[must_use]
    pub fn new<'a>(prefix: &str, all_prefixes: impl Iterator<Item = &'a str>, naming: &Naming) -> Self {
        let is_foreign = |other: &&str| other.len() > prefix.len() && other.starts_with(prefix);
        Self {
            prefix: prefix.to_owned(),
            foreign: all_prefixes.filter(is_foreign).map(str::to_owned).collect(),
            naming: naming.clone(),
        }
    }

    /// The exposed name of `native`.
    ///
    /// The plain form is prefix and name. Characters outside the charset become `_`, and what is longer than
    /// `naming.max_length` is cut; both get `_` and eight hex digits of the SHA-256 of the plain form at their
    /// end, which keeps different names different. What would stand under another upstream's longer prefix
    /// gets the digits and `_` at its beginning, so that no rule over that prefix means it.
    #[must_use]
    pub fn expose(&self, native: &str) -> String {
        let plain = format!("{}{native}", self.prefix);
        let mapped: String = plain.chars().map(|c| self.map(c)).collect();
        let is_long = mapped.chars().count() > self.naming.max_length;
        let is_foreign = self.foreign.iter().any(|prefix| mapped.starts_with(prefix.as_str()));
        if mapped == plain && !is_long && !is_foreign {
            return plain;
        }
        let room = self.naming.max_length.saturating_sub(HASH_LENGTH + 1);
        let kept: String = mapped.chars().take(room).collect();
        match is_foreign {
            true => format!("{}_{kept}", short_hash(&plain)),
            false => format!("{kept}_{}", short_hash(&plain)),
        }
    }

    /// What `exposed` would be natively, if it stands under this upstream's prefix. For explanations about
    /// an upstream whose lists are unknown; calls are routed by lookup.
    #[must_use]
    pub fn under_prefix<'a>(&self, exposed: &'a str) -> Option<&'a str> {
        let is_foreign = self.foreign.iter().any(|prefix| exposed.starts_with(prefix.as_str()));
        exposed.strip_prefix(self.prefix.as_str()).filter(|native| !native.is_empty() && !is_foreign)
    }

    fn map(&self, c: char) -> char {
        match self.naming.charset {
            Charset::Strict if !(c.is_ascii_alphanumeric() || c == '_' || c == '-') => '_',
            Charset::Strict | Charset::Any => c,
        }
    }
}

fn short_hash(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(HASH_LENGTH / 2).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefix: &str, others: &[&str], max_length: usize, charset: Charset) -> ExposedNames {
        let naming = Naming { separator: "__".into(), max_length, charset };
        ExposedNames::new(prefix, others.iter().copied(), &naming)
    }

    #[test]
    fn the_plain_form_is_prefix_and_name() {
        let github = names("github__", &["github__", "time__"], 64, Charset::Strict);
        assert_eq!(github.expose("search"), "github__search");
        assert_eq!(names("", &["", "time__"], 64, Charset::Strict).expose("search"), "search");
    }

    #[test]
    fn long_names_are_cut_and_stay_different_and_stable() {
        let long = names("upstream_of_20_chars__", &[], 64, Charset::Strict);
        assert_eq!(long.expose(&"x".repeat(42)).len(), 64);
        assert!(!long.expose(&"x".repeat(42)).contains("_x_"));
        let (a, b) =
            (long.expose(&format!("{}a", "x".repeat(60))), long.expose(&format!("{}b", "x".repeat(60))));
        assert_eq!((a.chars().count(), b.chars().count()), (64, 64));
        assert_ne!(a, b);
        assert_eq!(a, long.expose(&format!("{}a", "x".repeat(60))));
    }

    #[test]
    fn strange_characters_are_mapped_without_collision() {
        let strict = names("u__", &[], 64, Charset::Strict);
        let exposed: Vec<String> =
            ["a.b", "a/b", "a:b", "a b", "größe", "a_b"].iter().map(|name| strict.expose(name)).collect();
        for name in &exposed {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{name}");
        }
        let distinct: std::collections::HashSet<_> = exposed.iter().collect();
        assert_eq!(distinct.len(), exposed.len(), "{exposed:?}");
        assert_eq!(names("u__", &[], 64, Charset::Any).expose("a.b"), "u__a.b");
    }

    #[test]
    fn nobody_takes_a_name_under_a_longer_prefix() {
        let all = ["a__", "a__b__", "acme___", "acme__", ""];
        let of = |prefix: &str| names(prefix, &all, 64, Charset::Strict);
        assert_eq!(of("a__b__").expose("c"), "a__b__c");
        assert_eq!(of("acme___").expose("status"), "acme___status");
        for (prefix, native) in [("a__", "b__c"), ("acme__", "_status"), ("", "a__x")] {
            let exposed = of(prefix).expose(native);
            assert!(exposed.ends_with(&format!("_{prefix}{native}")), "{exposed}");
            let under = |other: &&str| !other.is_empty() && exposed.starts_with(*other);
            assert!(!all.iter().any(under), "no rule over another prefix means it: {exposed}");
        }
    }
}
