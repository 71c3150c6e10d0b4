//! What the gateway calls itself.

use crate::config::effective::{self, Origin};
use crate::config::identity::{Icon, ServerInfo};
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::Node;

/// Longest name, title or version, in bytes.
const SHORT: usize = 256;
/// Longest description, in bytes.
const LONG: usize = 4096;
/// Longest address of a website, in bytes.
const URL: usize = 2048;
/// Longest address of an icon, in bytes: a small `data:` image fits.
const SRC: usize = 8192;
/// Most icons, and most sizes of one.
const MANY: usize = 16;

/// Reads `server_info`.
pub(crate) fn server_info(top: &mut Section<'_>) -> ServerInfo {
    let standard = ServerInfo::default();
    top.within(&keys::SERVER_INFO_KEY, |info| ServerInfo {
        name: with_default(info, &keys::INFO_NAME, standard.name),
        title: text(info, &keys::INFO_TITLE, SHORT),
        version: with_default(info, &keys::INFO_VERSION, standard.version),
        description: text(info, &keys::INFO_DESCRIPTION, LONG),
        website_url: uri(info, &keys::INFO_WEBSITE, URL, &["http", "https"]),
        icons: icons(info),
    })
}

fn with_default(info: &mut Section<'_>, key: &'static keys::Key<keys::Free>, default: String) -> String {
    if !info.has(key.name) {
        info.out.put(key.name, effective::scalar(&default), Origin::Default);
        return default;
    }
    text(info, key, SHORT).unwrap_or(default)
}

fn text(info: &mut Section<'_>, key: &'static keys::Key<keys::Free>, most: usize) -> Option<String> {
    let text = info.text(key)?;
    if text.value.trim().is_empty() || text.value.len() > most {
        let what = if text.value.len() > most { "too long" } else { "empty" };
        let finding = Finding::error(format!("{} is {what}", quoted(key.name))).at(text.span);
        info.report(finding.help(format!("it has 1 to {most} bytes")));
        return None;
    }
    Some(text.value)
}

fn uri(
    info: &mut Section<'_>,
    key: &'static keys::Key<keys::Free>,
    most: usize,
    schemes: &[&str],
) -> Option<String> {
    let span = info.find(key.name).map_or(info.at, |node| node.span);
    let text = text(info, key, most)?;
    let is_good = url::Url::parse(&text).is_ok_and(|url| schemes.contains(&url.scheme()));
    if !is_good {
        let finding = Finding::error(format!("{} is no address that a client could use", quoted(key.name)));
        info.report(finding.at(span).help(format!("it begins with `{}:`", schemes.join(":` or `"))));
        return None;
    }
    Some(text)
}

fn icons(info: &mut Section<'_>) -> Vec<Icon> {
    let key = &keys::INFO_ICONS;
    let Some(node) = info.find(key.name) else {
        info.out.put(key.name, "[]".to_owned(), Origin::Default);
        return Vec::new();
    };
    let items = info.reader.items(node, &quoted(key.name), "a list of icons").unwrap_or_default();
    if items.len() > MANY {
        let finding = Finding::error(format!("`icons` has more than {MANY} entries")).at(node.span);
        info.report(finding);
    }
    let icons: Vec<Icon> = items.iter().take(MANY).filter_map(|item| icon(info, item)).collect();
    let shown: Vec<String> = icons.iter().map(shown).collect();
    info.out.put(key.name, format!("[{}]", shown.join(", ")), Origin::Line(node.span.line));
    icons
}

fn icon(info: &Section<'_>, item: &Node) -> Option<Icon> {
    let entries = info.reader.entries(item, "an icon", "a mapping with `src`")?;
    let mut icon = Section::open(info.reader, &keys::ICON, entries, item.span);
    if !icon.has(keys::ICON_SRC.name) && !icon.misspells(keys::ICON_SRC.name) {
        icon.report(Finding::error("an icon has no `src`").at(item.span));
    }
    let src = uri(&mut icon, &keys::ICON_SRC, SRC, &["http", "https", "data"]);
    let mime_type = text(&mut icon, &keys::ICON_MIME_TYPE, SHORT);
    let sizes = sizes(&mut icon);
    let theme = Some(icon.choice(&keys::ICON_THEME)).filter(|theme| !theme.is_empty());
    Some(Icon { src: src?, mime_type, sizes, theme })
}

fn sizes(icon: &mut Section<'_>) -> Vec<String> {
    let mut sizes = Vec::new();
    for text in icon.texts(&keys::ICON_SIZES).into_iter().take(MANY) {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_size =
            text.value.split_once('x').is_some_and(|(wide, high)| is_number(wide) && is_number(high));
        if is_size || text.value == "any" {
            sizes.push(text.value);
        } else {
            let finding = Finding::error(format!("`{}` is no size of an icon", text.written)).at(text.span);
            icon.report(finding.help("it is written `48x48`, or `any`"));
        }
    }
    sizes
}

/// An icon as YAML on one line.
fn shown(icon: &Icon) -> String {
    let mut members = vec![format!("src: {}", effective::scalar(&icon.src))];
    members.extend(icon.mime_type.as_ref().map(|text| format!("mime_type: {}", effective::scalar(text))));
    if !icon.sizes.is_empty() {
        let sizes = effective::list(icon.sizes.iter().map(String::as_str));
        members.push(format!("sizes: {sizes}"));
    }
    members.extend(icon.theme.map(|theme| format!("theme: {theme}")));
    format!("{{{}}}", members.join(", "))
}
