//! Secrets and where they come from: the text, a variable, a file.
//!
//! Must not know: whose they are. No finding of this module holds one.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::config::Token;
use crate::config::expand;
use crate::config::reader::{Emptiness, Reader};
use crate::config::section::quoted;
use crate::config::source::Finding;
use crate::config::tree::{Name, Node, Span, Value};

/// One token.
pub(crate) fn token(reader: &Reader<'_>, item: &Node) -> Option<Token> {
    let what = "a token";
    let entries = match &item.value {
        Value::Map(_) => reader.entries(item, what, TOKEN_FORMS)?,
        Value::Scalar(_) => return text_token(reader, item).map(|digest| Token { digest, expires: None }),
        Value::Null | Value::List(_) => {
            reader.report_kind(item, what, TOKEN_FORMS);
            return None;
        }
    };
    let find = |key: &str| entries.iter().find(|(name, _)| name.text == key).map(|(_, node)| node);
    let expires = find("expires").map(|node| expiry(reader, node));
    let is_source = |entry: &&(Name, Node)| entry.0.text != "expires";
    let sources: Vec<&(Name, Node)> = entries.iter().filter(is_source).collect();
    let digest = match sources.as_slice() {
        [(name, node)] if name.text == "digest" => text_token(reader, node),
        sources => from_source(reader, sources, (item.span, what, TOKEN_FORMS))
            .and_then(|token| digest_of(reader, item.span, &token)),
    };
    match expires {
        Some(expires) => Some(Token { digest: digest?, expires: Some(expires?) }),
        None => Some(Token { digest: digest?, expires: None }),
    }
}

const TOKEN_FORMS: &str =
    "a text, `{env: NAME}`, `{file: PATH}` or `{digest: \"sha256:…\"}`, with `expires` or without";

/// Until when a token is good. Warns of one that is not any more.
fn expiry(reader: &Reader<'_>, node: &Node) -> Option<SystemTime> {
    let text = reader.text(node, "`expires`")?;
    let Some(time) = parse_time(text.value.trim()) else {
        let finding = Finding::error(format!("`{}` is no date", text.written)).at(text.span);
        reader.report(finding.help("`expires` is written `2027-01-01`, or `2027-01-01T12:00:00Z`"));
        return None;
    };
    if time <= SystemTime::now() {
        let finding = Finding::warning("this token has expired: it lets nobody in").at(text.span);
        reader.report(finding.help("take it out"));
    }
    Some(time)
}

/// A date, at whose beginning it is, or a date and a time, in UTC.
fn parse_time(text: &str) -> Option<SystemTime> {
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (date, time.strip_suffix('Z')?),
        None => (text, "00:00:00"),
    };
    let number = |text: &str, digits: usize, most: u64| {
        let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| is_number && *number <= most)
    };
    let mut parts = date.splitn(3, '-');
    let year = number(parts.next()?, 4, 9999).filter(|year| *year >= 1970)?;
    let month = number(parts.next()?, 2, 12).filter(|month| *month > 0)?;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month).ok()?.checked_sub(1)?;
    let day = number(parts.next()?, 2, *lengths.get(before)?).filter(|day| *day > 0)?;
    let mut parts = time.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2, 23)?, number(parts.next()?, 2, 59)?);
    let second = number(parts.next()?, 2, 59)?;
    let days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<u64>()
        + lengths.iter().take(before).sum::<u64>()
        + day
        - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The digest of a token that stands as a text.
fn text_token(reader: &Reader<'_>, item: &Node) -> Option<[u8; 32]> {
    let text = reader.secret_text(item, "a token", Emptiness::Never)?;
    if let Some(hex) = text.value.strip_prefix("sha256:") {
        let digest = from_hex(hex);
        if digest.is_none() {
            let finding = Finding::error("after `sha256:` come 64 hexadecimal digits").at(item.span);
            reader.report(finding.help("`printf %s \"$TOKEN\" | sha256sum` prints them"));
        }
        return digest;
    }
    if text.is_expanded && text.written.contains("${") {
        return digest_of(reader, item.span, &text.value);
    }
    let finding = Finding::error("a token must not stand in the file as it is").at(item.span);
    let finding = finding.help("write `sha256:` and its digest: `printf %s \"$TOKEN\" | sha256sum`");
    reader.report(finding.help("or `{env: NAME}`, or `{file: PATH}`"));
    None
}

fn digest_of(reader: &Reader<'_>, span: Span, token: &str) -> Option<[u8; 32]> {
    if token.is_empty() {
        reader.report(Finding::error("this token is empty: anybody could guess it").at(span));
        return None;
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let finding = Finding::error("this token holds spaces or other characters that no header can carry");
        reader.report(finding.at(span));
        return None;
    }
    if token.len() < MIN_TOKEN {
        let finding = Finding::warning("this token is short enough to be guessed").at(span);
        reader.report(finding.help("make one with `openssl rand -hex 32`"));
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().ok()
}

/// Tokens below this length are warned of.
const MIN_TOKEN: usize = 16;

fn from_hex(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Reads a secret that is a text, `{env: NAME}` or `{file: PATH}`; never empty. The text never gets out of here
/// but as the value.
pub(crate) fn read_secret(reader: &Reader<'_>, node: &Node, what: &str) -> Option<String> {
    let wanted = "a text, `{env: NAME}` or `{file: PATH}`";
    let Value::Map(_) = node.value else {
        let text = match node.value {
            Value::Scalar(_) => reader.secret_text(node, what, Emptiness::Never)?.value,
            Value::Null | Value::List(_) | Value::Map(_) => {
                reader.report_kind(node, what, wanted);
                return None;
            }
        };
        if text.is_empty() {
            reader.report(Finding::error(format!("{what} is empty")).at(node.span));
        }
        return (!text.is_empty()).then_some(text);
    };
    let entries: Vec<&(Name, Node)> = reader.entries(node, what, wanted)?.iter().collect();
    from_source(reader, &entries, (node.span, what, wanted))
}

/// Reads the secret that one of these entries leads to.
fn from_source(
    reader: &Reader<'_>,
    entries: &[&(Name, Node)],
    (at, what, wanted): (Span, &str, &str),
) -> Option<String> {
    let mut source = None;
    for (name, value) in entries {
        match name.text.as_str() {
            "env" | "file" if source.is_none() => source = Some((name, value)),
            "env" | "file" => reader.report(Finding::error("a secret has one source").at(name.span)),
            other => {
                let finding = Finding::error(format!("unknown key `{other}`")).at(name.span);
                reader.report(finding.help(format!("{what} is {wanted}")));
            }
        }
    }
    let Some((name, value)) = source else {
        reader.report(Finding::error(format!("{what} has neither `env` nor `file`")).at(at));
        return None;
    };
    let text = reader.text(value, &quoted(&name.text))?;
    let secret =
        if name.text == "env" { from_env(reader, &text.value) } else { from_file(reader, &text.value) };
    secret.map_err(|message| reader.report(Finding::error(message).at(value.span))).ok()
}

fn from_env(reader: &Reader<'_>, name: &str) -> Result<String, String> {
    if !expand::is_name(name) {
        return Err("`env` is the name of a variable, without `$` or braces".to_owned());
    }
    match (reader.env)(name) {
        None => Err(format!("the variable `{name}` is not set")),
        Some(value) if value.is_empty() => Err(format!("the variable `{name}` is set but empty")),
        Some(value) => Ok(value),
    }
}

/// Longest file of a secret, in bytes.
const MAX_SECRET: u64 = 64 << 10;

fn from_file(reader: &Reader<'_>, path: &str) -> Result<String, String> {
    let path = reader.folder.join(path);
    let text = read_file(&path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let secret =
        text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if secret.is_empty() { Err(format!("`{}` is empty", path.display())) } else { Ok(secret.to_owned()) }
}

fn read_file(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_SECRET + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(std::io::Error::other("it is larger than 64 KiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_its_beginning_in_utc() {
        let seconds = |text: &str| {
            parse_time(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
        };
        for (text, wanted) in [
            ("1970-01-01", Some(0)),
            ("2000-03-01", Some(951_868_800)),
            ("2024-02-29T12:30:15Z", Some(1_709_209_815)),
            ("2027-01-01", Some(1_798_761_600)),
            ("2027-01-01T00:00:00Z", Some(1_798_761_600)),
            ("2023-02-29", None),
            ("2027-13-01", None),
            ("2027-00-01", None),
            ("2027-01-00", None),
            ("2027-1-1", None),
            ("2027-01-01T24:00:00Z", None),
            ("2027-01-01T12:00:00", None),
            ("2027-01-01T12:00:00+01:00", None),
            ("1969-12-31", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
