//! What of a file is secret, so that no message shows it.
//!
//! Must not know: whether the file is right. It must hold for wrong files too, so it goes by the names of keys
//! wherever they stand.

use super::nearest::nearest_key;
use super::problem::SECRET;
use super::reference::{Shape, TOP, Table, UPSTREAM};
use super::tree::{Name, Node, Value};

/// Keys whose values are secrets, whatever mapping they stand in.
const SECRET_KEYS: [&str; 5] = ["tokens", "token", "headers", "env", "key"];

/// Words that make an argument or a parameter a secret.
const SECRET_WORDS: [&str; 8] =
    ["token", "secret", "password", "passwd", "key", "auth", "credential", "bearer"];

/// What tokens of well-known services begin with.
pub(crate) const TOKEN_STARTS: [&str; 8] =
    ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "xoxb-", "xoxp-"];

/// The bytes of the text that must not be shown.
pub(crate) fn secrets(entries: &[(Name, Node)]) -> Vec<(usize, usize)> {
    let mut masks = Vec::new();
    within(entries, Some(&TOP), &mut masks);
    masks
}

fn within(entries: &[(Name, Node)], table: Option<&'static Table>, masks: &mut Vec<(usize, usize)>) {
    for (name, node) in entries {
        // A misspelled key holds what the key holds that was meant.
        let meant = table.and_then(|table| {
            let named = |wanted: &str| table.keys.iter().find(|key| key.name() == wanted);
            named(&name.text).or_else(|| nearest_key(table, &name.text).and_then(named))
        });
        let shape = meant.map_or(Shape::Plain, |key| key.form().shape());
        let is_known = meant.is_some_and(|key| key.name() == name.text);
        let sounds_secret = SECRET_KEYS.contains(&name.text.as_str()) || is_secret_word(&name.text);
        match shape {
            Shape::Secret => all(node, masks),
            _ if sounds_secret && !is_known => all(node, masks),
            // Whoever misspells `env` or `headers` beyond recognition has secrets there all the same.
            _ if meant.is_none() && table.is_some_and(|table| std::ptr::eq(table, &UPSTREAM)) => {
                all(node, masks);
            }
            Shape::Names(table) => match &node.value {
                Value::Map(entries) => entries.iter().for_each(|(_, node)| below(node, Some(table), masks)),
                Value::Null | Value::Scalar(_) | Value::List(_) => below(node, None, masks),
            },
            Shape::Mapping(table) => below(node, Some(table), masks),
            Shape::List(table) => match &node.value {
                Value::List(items) => items.iter().for_each(|item| below(item, Some(table), masks)),
                Value::Null | Value::Scalar(_) | Value::Map(_) => below(node, Some(table), masks),
            },
            Shape::Plain if name.text == "command" => command_line(node, masks),
            Shape::Plain => below(node, None, masks),
        }
    }
}

/// A command that holds its arguments, too, which is wrong and still shown.
fn command_line(node: &Node, masks: &mut Vec<(usize, usize)>) {
    if let Value::Scalar(scalar) = &node.value
        && line(&scalar.text) != scalar.text
    {
        masks.push((node.span.start, node.span.end));
    }
    below(node, None, masks);
}

/// Looks into a value that is no secret by its key.
fn below(node: &Node, table: Option<&'static Table>, masks: &mut Vec<(usize, usize)>) {
    match &node.value {
        Value::Map(entries) => within(entries, table, masks),
        Value::List(items) => {
            let texts = items.iter().map(|item| match &item.value {
                Value::Scalar(scalar) => scalar.text.as_str(),
                Value::Null | Value::List(_) | Value::Map(_) => "",
            });
            for (item, masked) in items.iter().zip(args(texts)) {
                match &item.value {
                    Value::Scalar(scalar) if scalar.text != masked => {
                        masks.push((item.span.start, item.span.end))
                    }
                    Value::Scalar(_) | Value::Null => {}
                    Value::List(_) | Value::Map(_) => below(item, None, masks),
                }
            }
        }
        Value::Scalar(scalar) => {
            if url(&scalar.text) != scalar.text {
                masks.push((node.span.start, node.span.end));
            }
        }
        Value::Null => {}
    }
}

/// Every scalar of a value, but those that only name a variable or hold no secret by their form.
fn all(node: &Node, masks: &mut Vec<(usize, usize)>) {
    match &node.value {
        Value::Scalar(scalar) => {
            if !is_reference(&scalar.text) {
                masks.push((node.span.start, node.span.end));
            }
        }
        Value::List(items) => items.iter().for_each(|item| all(item, masks)),
        Value::Map(entries) => {
            for (name, value) in entries {
                // The name of a variable or the path of a file is what a message about it is for.
                if !matches!(name.text.as_str(), "env" | "file" | "expires") {
                    all(value, masks);
                }
            }
        }
        Value::Null => {}
    }
}

/// Whether a text is nothing but variables without defaults, and perhaps a scheme of authentication.
pub(crate) fn is_reference(text: &str) -> bool {
    let mut rest = text;
    for scheme in ["Bearer ", "Basic ", "Token "] {
        rest = rest.strip_prefix(scheme).unwrap_or(rest);
    }
    let mut is_any = false;
    while let Some((name, after)) = rest.strip_prefix("${").and_then(|inside| inside.split_once('}')) {
        if name.contains(":-") {
            return false;
        }
        (is_any, rest) = (true, after);
    }
    is_any && rest.is_empty()
}

/// Whether a name is that of a secret.
pub(crate) fn is_secret_word(text: &str) -> bool {
    let folded = text.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| folded.contains(word))
}

/// The arguments of a command as they may be shown: what follows a `--token` or the like is left out.
pub(crate) fn args<'t>(args: impl Iterator<Item = &'t str>) -> impl Iterator<Item = String> {
    let mut is_next_secret = false;
    args.map(move |arg| {
        let is_this_secret = std::mem::take(&mut is_next_secret);
        if is_this_secret && !arg.starts_with('-') {
            return if is_reference(arg) { arg.to_owned() } else { SECRET.to_owned() };
        }
        let splits = || arg.match_indices(['=', ':']).filter_map(|(at, _)| arg.split_at_checked(at + 1));
        // `--header=X-Api-Key: …` has the telling word behind the first of them.
        let split = splits().find(|(name, _)| is_secret_word(name)).or_else(|| splits().next());
        match split {
            _ if TOKEN_STARTS.iter().any(|start| arg.starts_with(start)) => SECRET.to_owned(),
            Some((name, value)) if is_secret_word(name) && !is_reference(value.trim_start()) => {
                format!("{name}{SECRET}")
            }
            Some(_) => url(arg),
            None => {
                is_next_secret = arg.starts_with('-') && is_secret_word(arg);
                url(arg)
            }
        }
    })
}

/// A whole command line as it may be shown.
pub(crate) fn line(text: &str) -> String {
    args(text.split(' ')).collect::<Vec<_>>().join(" ")
}

/// A URL as it may be shown: without the values of its query and without credentials. Any other text as it is.
pub(crate) fn url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let (location, query) = match rest.split_once('?') {
        Some((location, query)) => (location, Some(query)),
        None => (rest, None),
    };
    let authority_end = location.find('/').unwrap_or(location.len());
    let location = match location.split_at_checked(authority_end) {
        Some((authority, path)) => match authority.rsplit_once('@') {
            Some((credentials, host)) if !is_reference(credentials) => format!("{SECRET}@{host}{path}"),
            _ => location.to_owned(),
        },
        None => location.to_owned(),
    };
    let Some(query) = query else {
        return format!("{scheme}://{location}");
    };
    let parts: Vec<String> = query
        .split('&')
        .map(|part| match part.split_once('=') {
            Some((name, value)) if !is_reference(value) && !value.is_empty() => format!("{name}={SECRET}"),
            _ => part.to_owned(),
        })
        .collect();
    format!("{scheme}://{location}?{}", parts.join("&"))
}

/// A line of a text that is no YAML, so that nothing but its words can tell: which bytes must not be shown.
pub(crate) fn guess(text: &str) -> Vec<(usize, usize)> {
    let mut masks = Vec::new();
    // Indentations of the keys above that hold secrets.
    let mut secret_above: Option<usize> = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.trim_end().len();
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if !content.trim_end().is_empty() {
            if secret_above.is_some_and(|above| indent <= above && !content.starts_with(['-', ']', '}'])) {
                secret_above = None;
            }
            let word_end = secret_word_end(content);
            let from = match (secret_above, word_end) {
                (_, Some(word_end)) => Some(start + indent + word_end),
                (Some(_), None) => Some(start + indent),
                (None, None) => None,
            };
            if let Some(from) = from.filter(|from| *from < end) {
                masks.push((from, end));
            }
            if word_end.is_some() && secret_above.is_none() {
                secret_above = Some(indent);
            }
        }
        start += line.len();
    }
    masks
}

/// The end of the first key in a line that holds a secret, its colon included.
fn secret_word_end(line: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(colon) = line.get(from..).and_then(|rest| rest.find(':')).map(|at| at + from) {
        let before = line.get(..colon).unwrap_or_default().trim_end_matches(['"', '\'', ' ']);
        let word = before
            .rsplit(|c: char| !(c.is_ascii_alphanumeric() || "_-".contains(c)))
            .next()
            .unwrap_or_default();
        if SECRET_KEYS.contains(&word) || is_secret_word(word) {
            return Some(colon + 1);
        }
        from = colon + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    fn masked(text: &str) -> Vec<&str> {
        let Value::Map(entries) = tree::parse(text).unwrap().value else { panic!("no mapping") };
        let masks = secrets(&entries);
        masks.iter().map(|(start, end)| text.get(*start..*end).unwrap()).collect()
    }

    #[test]
    fn literals_in_secret_places_are_masked() {
        for (text, wanted) in [
            ("clients: {a: {tokens: [abc, {env: NAME}, {file: /x}]}}", vec!["abc"]),
            ("clients: {a: {tokns: [abc]}}", vec!["abc"]),
            ("clients: {a: {token: abc}}", vec!["abc"]),
            ("upstreams: {a: {env: {A: b, C: 1}}}", vec!["b", "1"]),
            ("upstreams: {a: {headrs: {A: b}}}", vec!["b"]),
            (
                "upstreams: {a: {headers: {A: '${B}', C: 'Bearer ${D}', E: '${F:-g}', H: 'x${I}'}}}",
                vec!["'${F:-g}'", "'x${I}'"],
            ),
            ("upstreams: {a: {command: npx -y x --token abc}}", vec!["npx -y x --token abc"]),
            ("upstreams: {a: {command: npx -y x}}", vec![]),
            ("upstreams: {a: {enviroment: {A: b}, vars: {C: d}}}", vec!["b", "d"]),
            (
                "upstreams: {a: {args: ['--header=X-Api-Key: abc', ghp_abc, 'X: ${Y}', -y]}}",
                vec!["'--header=X-Api-Key: abc'", "ghp_abc"],
            ),
            ("sessions: {key: abc}", vec!["abc"]),
            ("tokens: [abc]", vec!["abc"]),
            ("api_key: abc", vec!["abc"]),
            ("password: abc", vec!["abc"]),
            ("upstreams: {a: {url: 'http://x/?k=abc'}}", vec!["'http://x/?k=abc'"]),
            (
                "upstreams: {a: {args: [--token, abc, --api-key=def, x, http://u:p@h/, -H, 'Authorization: Bearer abc', '--token=${T}']}}",
                vec!["abc", "--api-key=def", "http://u:p@h/", "'Authorization: Bearer abc'"],
            ),
            (
                "listen: 127.0.0.1:1\nupstreams: {a: {url: 'http://x/mcp', args: [a, -y], timeout: 30s}}\nauth: {anonymous: true}",
                vec![],
            ),
        ] {
            assert_eq!(masked(text), wanted, "{text}");
        }
    }

    #[test]
    fn urls_are_shown_without_their_secrets() {
        for (text, wanted) in [
            ("https://x/mcp", "https://x/mcp"),
            ("https://x/mcp?a=b&c=${D}&e", "https://x/mcp?a=‹secret›&c=${D}&e"),
            ("https://u:p@x/mcp", "https://‹secret›@x/mcp"),
            ("not a url?a=b", "not a url?a=b"),
        ] {
            assert_eq!(url(text), wanted);
        }
    }

    #[test]
    fn text_that_is_no_yaml_is_masked_by_its_words() {
        let masked = |text: &'static str| -> Vec<&str> {
            guess(text).iter().map(|(start, end)| text.get(*start..*end).unwrap()).collect()
        };
        assert_eq!(masked("a:\n  tokens: [abc\n  b: c\n"), [" [abc"]);
        assert_eq!(masked("a:\n  tokens:\n    - abc\n    - def\n  url: x\n"), ["- abc", "- def"]);
        assert_eq!(masked("tokens:\n- abc\nb: c\n"), ["- abc"]);
        assert_eq!(
            masked("x: {\"headers\": {\"Authorization\": \"abc\"}}\nurl: y\n"),
            [" {\"Authorization\": \"abc\"}}"]
        );
        assert_eq!(masked("command: x\nargs: [a, b\n"), Vec::<&str>::new());
    }
}
