//! "Did you mean": the word or key that was most likely meant.

use super::reference::{Describe, Table};

/// The key that was most likely meant.
pub(crate) fn nearest_key(table: &'static Table, key: &str) -> Option<&'static str> {
    let folded = key.to_ascii_lowercase().replace(['-', ' '], "_");
    let alias = table.aliases.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(&folded) || *alias == key);
    alias.map(|(_, name)| *name).or_else(|| {
        let names = table.keys.iter().map(|key| Describe::name(*key));
        nearest(names, key)
    })
}

/// The word that is closest, if it is close at all.
pub(crate) fn nearest<'w>(words: impl IntoIterator<Item = &'w str>, given: &str) -> Option<&'w str> {
    let folded = snake(given);
    words
        .into_iter()
        .map(|word| (strsim::osa_distance(&snake(word), &folded), word))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, word)| *distance <= (word.chars().count().max(given.chars().count()) / 3).max(1))
        .map(|(_, word)| word)
}

/// `connectTimeout` and `connect-timeout` are as close to `connect_timeout` as can be.
fn snake(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut was_lower = false;
    for character in text.chars().take(64) {
        if character.is_ascii_uppercase() && was_lower {
            out.push('_');
        }
        was_lower = character.is_ascii_lowercase();
        out.push(if character == '-' { '_' } else { character.to_ascii_lowercase() });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::reference;

    #[test]
    fn the_nearest_key_is_named() {
        for (table, given, wanted) in [
            (&reference::CLIENT, "tokns", Some("tokens")),
            (&reference::TOOLS, "denny", Some("deny")),
            (&reference::TOP, "servers", Some("upstreams")),
            (&reference::TOP, "upstream", Some("upstreams")),
            (&reference::TOP, "drainTimeout", Some("drain_timeout")),
            (&reference::UPSTREAM, "connect-timeout", Some("connect_timeout")),
            (&reference::UPSTREAM, "Command", Some("command")),
            (&reference::UPSTREAM, "autoApprove", None),
            (&reference::TOP, "x", None),
        ] {
            assert_eq!(nearest_key(table, given), wanted, "{given}");
        }
    }

    #[test]
    fn every_alias_leads_to_a_key() {
        for table in reference::TABLES {
            for (alias, name) in table.aliases {
                assert!(table.keys.iter().any(|key| key.name() == *name), "{}: {alias} → {name}", table.path);
                assert!(
                    !table.keys.iter().any(|key| key.name() == *alias),
                    "{}: {alias} is a key",
                    table.path
                );
                assert!(!table.later.contains(alias), "{}: {alias} is a later key", table.path);
            }
        }
    }
}
