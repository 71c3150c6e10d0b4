//! Secrets and where they come from: the text, a variable, a file.
//!
//! Must not know: whose they are. No finding of this module holds one.

use std::io::Read;
use std::path::Path;

use crate::config::expand;
use crate::config::reader::{Emptiness, Reader};
use crate::config::section::quoted;
use crate::config::source::Finding;
use crate::config::tree::{Node, Span, Value};

/// The digest of one token.
pub(crate) fn token(reader: &Reader<'_>, item: &Node) -> Option<[u8; 32]> {
    let what = "a token";
    if !matches!(item.value, Value::Scalar(_)) {
        return read_secret(reader, item, what).and_then(|token| digest_of(reader, item.span, &token));
    }
    let text = reader.secret_text(item, what, Emptiness::Never)?;
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
    let entries = reader.entries(node, what, wanted)?;
    let mut source = None;
    for (name, value) in entries {
        match name.text.as_str() {
            "env" | "file" if source.is_none() => source = Some((name, value)),
            "env" | "file" => reader.report(Finding::error("a secret has one source").at(name.span)),
            "expires" => {
                let finding = Finding::error("`expires` is not supported yet").at(name.span);
                reader.report(finding.help("it is a key of a later version: take it out for now"));
            }
            other => {
                let finding = Finding::error(format!("unknown key `{other}`")).at(name.span);
                reader.report(finding.help(format!("{what} is {wanted}")));
            }
        }
    }
    let Some((name, value)) = source else {
        reader.report(Finding::error(format!("{what} has neither `env` nor `file`")).at(node.span));
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
