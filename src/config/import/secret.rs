//! Which part of a text is a secret, by the name that it has and by what it looks like.
//!
//! A secret that is taken for none ends in a file that people share, so this rather takes too much for one.
//!
//! Must not know: what becomes of it.

use super::value::{SCHEMES, translate};
use crate::config::mask::{TOKEN_STARTS, is_reference, is_secret_word};

/// A secret within a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'t> {
    /// What stands before it, since the last one.
    pub(super) before: &'t str,
    pub(super) secret: &'t str,
    /// What it is called in the text itself, like the parameter of a URL.
    pub(super) label: Option<&'t str>,
}

/// What a text is made of: its secrets with what is between them, and what comes after the last.
pub(super) type Parts<'t> = (Vec<Part<'t>>, &'t str);

/// Words besides those of the configuration's own masks.
const WORDS: [&str; 7] = ["passphrase", "pwd", "cookie", "dsn", "private", "signature", "webhook"];

/// What tokens of more services begin with.
const STARTS: [&str; 14] = [
    "AKIA", "AIza", "eyJ", "hf_", "npm_", "pypi-", "xapp-", "figd_", "lin_api_", "ntn_", "secret_", "ATATT",
    "dop_v1_", "pat_",
];

/// Ends of names of variables that say where something is, not what it is.
const PLACES: [&str; 5] = ["_FILE", "_PATH", "_DIR", "_NAME", "_ID"];

/// The least length of a token, and of its longest run of letters and digits: what is shorter is a name or a version.
const LEAST_RANDOM: (usize, usize) = (20, 16);

/// The secrets of a value with this name: a variable or a header.
pub(super) fn named<'t>(name: &str, value: &'t str) -> Parts<'t> {
    let (scheme, rest) = split_scheme(value);
    let is_place = PLACES.iter().any(|end| name.to_ascii_uppercase().ends_with(end));
    let is_word = sounds_secret(name) && !is_place;
    if !is_given(value) && !is_plain(rest) && (is_word || looks_secret(rest)) {
        return (vec![Part { before: scheme, secret: rest, label: None }], "");
    }
    url(value)
}

/// The secrets of an argument; `flag` is the argument before it.
pub(super) fn argument<'t>(flag: Option<&'t str>, text: &'t str) -> Parts<'t> {
    if let Some(flag) = flag.filter(|flag| names_secret(flag) && !text.starts_with('-')) {
        let (scheme, rest) = split_scheme(text);
        if !is_given(text) && !rest.is_empty() {
            let label = Some(flag.trim_start_matches('-'));
            return (vec![Part { before: scheme, secret: rest, label }], "");
        }
        return (Vec::new(), text);
    }
    // `--token=x`, `Authorization: Bearer x`, `--header=X-Api-Key: x`.
    let splits = || text.match_indices(['=', ':']).filter_map(|(at, _)| text.split_at_checked(at + 1));
    let split = splits().find(|(name, value)| sounds_secret(name) && !value.starts_with("//"));
    if let Some((name, value)) = split.filter(|_| !text.contains("://")) {
        let value = value.trim_start();
        let (scheme, rest) = split_scheme(value);
        if is_given(value) || is_plain(rest) {
            return (Vec::new(), text);
        }
        let before = text.get(..text.len() - rest.len()).unwrap_or(scheme);
        let label = name.trim_end_matches(['=', ':']).rsplit(['=', ' ']).next();
        return (vec![Part { before, secret: rest, label }], "");
    }
    if looks_secret(text) {
        return (vec![Part { before: "", secret: text, label: None }], "");
    }
    url(text)
}

/// Whether what follows this argument is a secret.
fn names_secret(flag: &str) -> bool {
    flag.starts_with('-') && !flag.contains(['=', ':']) && sounds_secret(flag)
}

/// The secrets of a URL: a password, and parameters.
pub(super) fn url(text: &str) -> Parts<'_> {
    let Some((scheme, rest)) = text.split_once("://") else { return (Vec::new(), text) };
    let mut parts = Vec::new();
    let mut from = 0;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..authority_end).unwrap_or_default();
    let start = scheme.len() + "://".len();
    if let Some((credentials, _)) = authority.rsplit_once('@')
        && let Some((user, password)) = credentials.split_once(':')
        && !is_given(password)
        && !password.is_empty()
    {
        let at = start + user.len() + 1;
        parts.push(Part {
            before: text.get(..at).unwrap_or_default(),
            secret: password,
            label: Some("password"),
        });
        from = at + password.len();
    }
    let query = text.find('?').map_or(text.len(), |at| at + 1);
    let mut at = query;
    for parameter in text.get(query..).unwrap_or_default().split('&') {
        let end = at + parameter.len();
        if let Some((name, value)) = parameter.split_once('=')
            && (sounds_secret(name) || looks_secret(value))
            && !is_given(value)
            && !is_plain(value)
        {
            let value_at = end - value.len();
            let before = text.get(from..value_at).unwrap_or_default();
            parts.push(Part { before, secret: value, label: Some(name) });
            from = end;
        }
        at = end + 1;
    }
    (parts, text.get(from..).unwrap_or_default())
}

fn sounds_secret(name: &str) -> bool {
    let folded = name.to_ascii_lowercase();
    is_secret_word(name) || WORDS.iter().any(|word| folded.contains(word))
}

/// Whether a text is filled in from elsewhere already: variables alone, with no default that could be a secret.
fn is_given(text: &str) -> bool {
    let ours = translate(split_scheme(text).1).text;
    let inside = ours.strip_prefix("${").and_then(|inside| inside.strip_suffix('}'));
    let default = inside.filter(|inside| !inside.contains('}')).and_then(|inside| inside.split_once(":-"));
    is_reference(&ours) || default.is_some_and(|(_, default)| is_plain(default))
}

/// Whether a text is no secret whatever it is called: nothing, a flag, a small number.
fn is_plain(text: &str) -> bool {
    text.trim().is_empty()
        || ["true", "false", "yes", "no", "on", "off", "none", "null"]
            .contains(&text.to_ascii_lowercase().as_str())
        || (text.len() < 6 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a text looks like a token: begins like one, or is long, of one piece, and mixed.
fn looks_secret(text: &str) -> bool {
    if TOKEN_STARTS
        .iter()
        .chain(&STARTS)
        .any(|start| text.strip_prefix(start).is_some_and(|rest| rest.len() >= 8))
    {
        return true;
    }
    let is_piece = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-+=".contains(&byte));
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
    let longest = text.split(|c: char| !c.is_ascii_alphanumeric()).map(str::len).max().unwrap_or_default();
    is_piece && text.len() >= LEAST_RANDOM.0 && longest >= LEAST_RANDOM.1 && digits >= 4 && letters >= 4
}

/// The scheme of authentication, and what follows.
fn split_scheme(value: &str) -> (&str, &str) {
    let scheme = SCHEMES.iter().find(|scheme| value.starts_with(**scheme));
    value.split_at_checked(scheme.map_or(0, |scheme| scheme.len())).unwrap_or(("", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with `<label>` for each secret.
    fn shown((parts, rest): Parts<'_>) -> String {
        let mut out = String::new();
        for part in parts {
            out.push_str(&format!("{}<{}>", part.before, part.label.unwrap_or_default()));
        }
        out + rest
    }

    #[test]
    fn values_are_secret_by_their_names_or_by_their_looks() {
        for (name, value, wanted) in [
            ("GITHUB_TOKEN", "abcdef", "<>"),
            ("Authorization", "Bearer abc", "Bearer <>"),
            ("Authorization", "Bearer ${A}", "Bearer ${A}"),
            ("X-Api-Key", "abc", "<>"),
            ("X-Api-Key", "$API_KEY", "$API_KEY"),
            ("X-Api-Key", "${input:key}", "${input:key}"),
            ("X-Api-Key", "${KEY:-}", "${KEY:-}"),
            ("X-Api-Key", "${KEY:-hunter}", "<>"),
            ("AUTH_ENABLED", "true", "true"),
            ("KEY_COUNT", "12", "12"),
            ("PRIVATE_KEY_PATH", "/etc/key.pem", "/etc/key.pem"),
            ("ANYTHING", "ghp_0123456789abcdef", "<>"),
            ("ANYTHING", "0a1b2c3d4e5f60718293", "<>"),
            ("LOG_LEVEL", "debug", "debug"),
            ("MODEL", "claude-sonnet-4-5-20250929-v1", "claude-sonnet-4-5-20250929-v1"),
            ("FOLDER", "/srv/a-long-path-with-1234-in-it", "/srv/a-long-path-with-1234-in-it"),
            (
                "DATABASE_URL",
                "postgres://me:pw@db:5432/x?sslmode=require",
                "postgres://me:<password>@db:5432/x?sslmode=require",
            ),
            ("DATABASE_URL", "postgres://me@db/x", "postgres://me@db/x"),
            ("TOKEN", "", ""),
        ] {
            assert_eq!(shown(named(name, value)), wanted, "{name}={value}");
        }
    }

    #[test]
    fn arguments_are_secret_by_the_flag_before_or_within_them() {
        for (flag, text, wanted) in [
            (Some("--api-key"), "abc", "<api-key>"),
            (Some("--api-key"), "--verbose", "--verbose"),
            (Some("--header"), "Authorization: Bearer abc", "Authorization: Bearer <Authorization>"),
            (None, "--token=abc", "--token=<--token>"),
            (None, "--header=X-Api-Key: abc", "--header=X-Api-Key: <X-Api-Key>"),
            (None, "Authorization:${AUTH}", "Authorization:${AUTH}"),
            (None, "https://h/mcp?api_key=abc&region=eu", "https://h/mcp?api_key=<api_key>&region=eu"),
            (
                None,
                "@modelcontextprotocol/server-github@2025.4.8",
                "@modelcontextprotocol/server-github@2025.4.8",
            ),
            (None, "-y", "-y"),
            (Some("-y"), "server-authentication", "server-authentication"),
            (None, "sk-0123456789", "<>"),
        ] {
            assert_eq!(shown(argument(flag, text)), wanted, "{flag:?} {text}");
        }
    }
}
