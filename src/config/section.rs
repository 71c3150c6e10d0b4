//! The reader: takes typed values out of a mapping, and collects every problem on the way instead of stopping.
//!
//! A value that is wrong gives a finding and the default, so that reading goes on. Each key that is read goes
//! into the effective configuration with its value and where it came from.
//!
//! Must not know: what the values are for.

use super::effective::{self, Block, Origin};
use super::nearest::{nearest, nearest_key};
use super::problem::SECRET;
use super::reader::{Emptiness, Reader, Text, variable_name};
use super::reference::{Bounded, Choice, Fate, Flag, Foreign, Free, Key, Nested, OTHER_SPELLINGS, Table};
use super::source::Finding;
use super::tree::{Name, Node, ScalarKind, Span, Value};
use super::units::Unit;

/// One mapping being read.
pub(crate) struct Section<'a> {
    pub(crate) reader: &'a Reader<'a>,
    table: &'static Table,
    entries: &'a [(Name, Node)],
    /// Entries that hold where `entries` has none.
    fallback: &'a [(Name, Node)],
    /// Where the mapping itself is named.
    pub(crate) at: Span,
    /// What was read.
    pub(crate) out: Block,
}

impl<'a> Section<'a> {
    /// Opens a mapping, and reports keys that it cannot have.
    pub(crate) fn open(
        reader: &'a Reader<'a>,
        table: &'static Table,
        entries: &'a [(Name, Node)],
        at: Span,
    ) -> Self {
        let section = Self { reader, table, entries, fallback: &[], at, out: Block::default() };
        for (name, node) in entries {
            let is_known = table.keys.iter().any(|key| key.name() == name.text);
            let is_spelling = table.path.is_empty() && OTHER_SPELLINGS.contains(&name.text.as_str());
            let foreign = table.foreign.iter().find(|foreign| foreign.name == name.text);
            match foreign {
                _ if is_known || is_spelling => {}
                Some(foreign) => section.report_foreign(foreign, name, node),
                None => section.report_unknown(name),
            }
        }
        section
    }

    /// With entries that hold where it has none of its own; they must have been read by themselves.
    pub(crate) fn with_fallback(self, fallback: &'a [(Name, Node)]) -> Self {
        Self { fallback, ..self }
    }

    fn report_foreign(&self, foreign: &Foreign, name: &Name, node: &Node) {
        let key = &name.text;
        let is_empty = matches!(&node.value, Value::List(items) if items.is_empty());
        let is_ignored = match foreign.fate {
            Fate::Ignored => true,
            Fate::Refused => false,
            Fate::RefusedUnlessEmpty => is_empty,
        };
        let finding = if is_ignored {
            Finding::warning(format!("`{key}` means nothing here, and is ignored"))
        } else {
            Finding::error(format!("`{key}` is a key of other programs"))
        };
        let finding = finding.at(name.span);
        if is_ignored && foreign.fate == Fate::RefusedUnlessEmpty {
            self.reader.report(finding.help("it is empty: take it out"));
            return;
        }
        let finding = finding.help(foreign.advice);
        self.reader.report(asked_ids(node).fold(finding, |finding, id| {
            finding.help(format!("in place of `${{input:{id}}}` write `${{{}}}`", variable_name(id)))
        }));
    }

    fn report_unknown(&self, name: &Name) {
        let key = &name.text;
        let place = if self.table.path.is_empty() { "the file" } else { self.table.path };
        if self.table.later.contains(&key.as_str()) {
            let finding = Finding::error(format!("`{key}` is not supported yet"));
            self.reader
                .report(finding.at(name.span).help("it is a key of a later version: take it out for now"));
            return;
        }
        let finding = Finding::error(format!("unknown key `{key}`")).at(name.span);
        let finding = match nearest_key(self.table, key) {
            Some(nearest) => finding.help(format!("did you mean `{nearest}`?")),
            None => {
                let keys: Vec<&str> = self.table.keys.iter().map(|key| key.name()).collect();
                finding.help(format!("the keys of {place} are {}", keys.join(", ")))
            }
        };
        self.reader.report(finding);
    }

    /// The value of a key, if it is there.
    pub(crate) fn find(&self, key: &str) -> Option<&'a Node> {
        let named = |entries: &'a [(Name, Node)]| entries.iter().find(|(name, _)| name.text == key);
        named(self.entries).or_else(|| named(self.fallback)).map(|(_, node)| node)
    }

    /// Where a key of this mapping itself stands; the mapping if it does not.
    pub(crate) fn place(&self, key: &str) -> Span {
        self.entries.iter().find(|(name, _)| name.text == key).map_or(self.at, |(name, _)| name.span)
    }

    pub(crate) fn report(&self, finding: Finding) {
        self.reader.report(finding);
    }

    /// A number, or a number with a unit, within its bounds. `None` if it is not there and has no default.
    pub(crate) fn bounded<T: Unit + Sync>(&mut self, key: &'static Key<Bounded<T>>) -> Option<T> {
        let default = key.form.default;
        let found = self.find(key.name);
        let what = quoted(key.name);
        let value = found.and_then(|node| self.parse_bounded(node, &what, &key.form)).or(default);
        match (value, found) {
            (Some(value), Some(node)) => self.out.put(key.name, value.write(), Origin::Line(node.span.line)),
            (Some(value), None) => self.out.put(key.name, value.write(), Origin::Default),
            (None, _) => self.out.put_unset(key.name),
        }
        value
    }

    /// What a node says, if it is within the bounds.
    pub(crate) fn parse_bounded<T: Unit + Sync>(
        &self,
        node: &Node,
        what: &str,
        form: &'static Bounded<T>,
    ) -> Option<T> {
        if !matches!(node.value, Value::Scalar(_)) {
            self.reader.report_kind(node, what, &with_article(T::NOUN));
            return None;
        }
        let text = self.reader.text(node, what)?;
        if T::IS_NUMBER
            && text.kind == ScalarKind::Text
            && !text.is_expanded
            && T::parse(&text.value).is_some()
        {
            self.reader.report_kind(node, what, "a number, without quotes");
            return None;
        }
        let Some(value) = T::parse(text.value.trim()) else {
            let written = &text.written;
            let finding = Finding::error(format!("`{written}` is not {}", with_article(T::NOUN)));
            let form = format!("{what} is written like {}", T::FORMS);
            let help = T::guess(text.value.trim()).filter(|_| !text.is_expanded).unwrap_or(form);
            self.report(finding.at(node.span).help(help));
            return None;
        };
        let Bounded { min, max, .. } = form;
        if value < *min || value > *max {
            let bounds = format!("`{}` to `{}`", min.write(), max.write());
            let finding = Finding::error(format!("{what} is out of bounds: `{}`", text.written));
            self.report(finding.at(node.span).help(format!("it may be {bounds}")));
            return None;
        }
        Some(value)
    }

    /// A size or count that is a number of things in memory.
    pub(crate) fn count(&mut self, key: &'static Key<Bounded<u64>>) -> Option<usize> {
        self.bounded(key).map(|count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// As [`Self::count`], for what is counted in 32 bits.
    pub(crate) fn small_count(&mut self, key: &'static Key<Bounded<u64>>) -> Option<u32> {
        self.bounded(key).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// `true` or `false`. `None` if it is not there and has no default; that is not shown then.
    pub(crate) fn flag(&mut self, key: &'static Key<Flag>) -> Option<bool> {
        let found = self.find(key.name);
        let value = found.and_then(|node| self.parse_flag(node, key.name)).or(key.form.default);
        if let Some(value) = value {
            let origin = found.map_or(Origin::Default, |node| Origin::Line(node.span.line));
            self.out.put(key.name, value.to_string(), origin);
        }
        value
    }

    fn parse_flag(&self, node: &Node, key: &str) -> Option<bool> {
        let what = quoted(key);
        if !matches!(node.value, Value::Scalar(_)) {
            self.reader.report_kind(node, &what, "`true` or `false`");
            return None;
        }
        let text = self.reader.text(node, &what)?;
        let is_typed = text.kind == ScalarKind::Flag || text.is_expanded;
        match text.value.to_ascii_lowercase().as_str() {
            "true" if is_typed => Some(true),
            "false" if is_typed => Some(false),
            "true" | "false" => {
                self.reader.report_kind(node, &what, "`true` or `false`, without quotes");
                None
            }
            other => {
                let finding = Finding::error(format!("`{}` is neither `true` nor `false`", text.written));
                let finding = finding.at(node.span);
                self.report(match other {
                    "yes" | "on" | "y" | "1" => finding.help(format!("write `{key}: true`")),
                    "no" | "off" | "n" | "0" => finding.help(format!("write `{key}: false`")),
                    _ => finding,
                });
                None
            }
        }
    }

    /// One of the words of the key; the default if it is not there or none of them.
    pub(crate) fn choice(&mut self, key: &'static Key<Choice>) -> &'static str {
        let found = self.find(key.name);
        let word = found.and_then(|node| self.parse_choice(node, key));
        let origin = found.map_or(Origin::Default, |node| Origin::Line(node.span.line));
        match (word, key.form.default) {
            (None, "") => self.out.put_unset(key.name),
            (word, default) => self.out.put(key.name, effective::scalar(word.unwrap_or(default)), origin),
        }
        word.unwrap_or(key.form.default)
    }

    fn parse_choice(&self, node: &Node, key: &'static Key<Choice>) -> Option<&'static str> {
        let what = quoted(key.name);
        let text = self.reader.text(node, &what)?;
        let words = key.form.words;
        if let Some(word) = words.iter().find(|word| **word == text.value) {
            return Some(word);
        }
        let finding = Finding::error(format!("{what} cannot be `{}`", text.written)).at(node.span);
        let list: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let finding = match nearest(words.iter().copied(), &text.value) {
            Some(nearest) if !text.is_expanded => finding.help(format!("did you mean `{nearest}`?")),
            _ => finding.help(format!("it is one of {}", list.join(", "))),
        };
        self.report(finding);
        None
    }

    /// A text, as it is. Shown as it is written, since a variable may hold a secret.
    pub(crate) fn text(&mut self, key: &'static Key<Free>) -> Option<Text> {
        let Some(node) = self.find(key.name) else {
            self.out.put_unset(key.name);
            return None;
        };
        let text = self.reader.text(node, &quoted(key.name))?;
        self.out.put(key.name, effective::scalar(&text.written), Origin::Line(node.span.line));
        Some(text)
    }

    /// A list of texts; empty if it is not there.
    pub(crate) fn texts(&mut self, key: &'static Key<Free>) -> Vec<Text> {
        let Some(node) = self.find(key.name) else {
            self.out.put(key.name, "[]".to_owned(), Origin::Default);
            return Vec::new();
        };
        let texts = self.parse_texts(node, &quoted(key.name));
        let shown = effective::list(texts.iter().map(|text| text.written.as_str()));
        self.out.put(key.name, shown, Origin::Line(node.span.line));
        texts
    }

    pub(crate) fn parse_texts(&self, node: &Node, what: &str) -> Vec<Text> {
        let Some(items) = self.reader.items(node, what, "a list of texts") else {
            return Vec::new();
        };
        let what = format!("an item of {what}");
        items.iter().filter_map(|item| self.reader.text(item, &what)).collect()
    }

    /// A mapping of names to secret texts; empty if it is not there.
    pub(crate) fn secret_map<F>(&mut self, key: &'static Key<F>) -> Vec<(&'a Name, Text)> {
        let Some(node) = self.find(key.name) else {
            self.out.put(key.name, "{}".to_owned(), Origin::Default);
            return Vec::new();
        };
        let what = quoted(key.name);
        let entries = self.reader.entries(node, &what, "a mapping of names to texts").unwrap_or_default();
        let mut block = Block::default();
        let mut texts = Vec::new();
        for (name, value) in entries {
            block.put(&name.text, SECRET.to_owned(), Origin::Line(name.span.line));
            let what = format!("`{}.{}`", key.name, name.text);
            let is_credential = name.text.eq_ignore_ascii_case("authorization");
            let emptiness = if is_credential { Emptiness::Never } else { Emptiness::Optional };
            if let Some(text) = self.reader.secret_text(value, &what, emptiness) {
                texts.push((name, text));
            }
        }
        self.out.put_block(key.name, block);
        texts
    }

    /// The entries of a mapping of names: its own ones first, then those that are inherited and not among them.
    pub(crate) fn names<F>(&self, key: &'static Key<F>, wanted: &str) -> Vec<&'a (Name, Node)> {
        let of = |entries: &'a [(Name, Node)]| {
            let found = entries.iter().find(|(name, _)| name.text == key.name);
            found
                .and_then(|(_, node)| self.reader.entries(node, &quoted(key.name), wanted))
                .unwrap_or_default()
        };
        let own = of(self.entries);
        let is_own = |name: &Name| own.iter().any(|(known, _)| known.text == name.text);
        own.iter().chain(of(self.fallback).iter().filter(|(name, _)| !is_own(name))).collect()
    }

    /// Reads a mapping with known keys, whether it is there or not.
    pub(crate) fn within<T>(
        &mut self,
        key: &'static Key<Nested>,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) -> T {
        let what = quoted(key.name);
        let own = self.entries.iter().find(|(name, _)| name.text == key.name);
        let entries =
            own.and_then(|(_, node)| self.reader.entries(node, &what, "a mapping")).unwrap_or_default();
        let inherited = self.fallback.iter().find(|(name, _)| name.text == key.name);
        let fallback = match inherited.map(|(_, node)| &node.value) {
            Some(Value::Map(entries)) => entries.as_slice(),
            _ => &[],
        };
        let at = own.map_or(self.at, |(name, _)| name.span);
        let mut section = Section::open(self.reader, key.form.0, entries, at).with_fallback(fallback);
        let value = read(&mut section);
        self.out.put_block(key.name, section.finish());
        value
    }

    /// What was read, in the order of the reference.
    pub(crate) fn finish(self) -> Block {
        let place = |name: &str| self.table.keys.iter().position(|key| key.name() == name);
        self.out.ordered(place)
    }

    /// Whether a key is most likely meant by one that is unknown, and reported as such.
    pub(crate) fn misspells(&self, key: &str) -> bool {
        let is_unknown = |name: &Name| !self.table.keys.iter().any(|key| key.name() == name.text);
        let mut unknown = self.entries.iter().map(|(name, _)| name).filter(|name| is_unknown(name));
        unknown.any(|name| nearest_key(self.table, &name.text) == Some(key))
    }

    /// Whether a key stands in this mapping itself.
    pub(crate) fn has_own(&self, key: &str) -> bool {
        self.entries.iter().any(|(name, _)| name.text == key)
    }

    /// Whether a key stands here, or is inherited.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.find(key).is_some()
    }
}

/// What a list of questions of an editor calls its answers.
fn asked_ids(node: &Node) -> impl Iterator<Item = &str> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Null | Value::Scalar(_) | Value::Map(_) => &[],
    };
    items.iter().filter_map(asked_id).take(MAX_ASKED)
}

fn asked_id(item: &Node) -> Option<&str> {
    let Value::Map(entries) = &item.value else { return None };
    let (_, node) = entries.iter().find(|(name, _)| name.text == "id")?;
    match &node.value {
        Value::Scalar(scalar) => Some(&scalar.text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

/// So many questions of an editor are named.
const MAX_ASKED: usize = 20;

/// A name as messages write it.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{name}`")
}

fn with_article(noun: &str) -> String {
    match noun {
        "count" => "a whole number".to_owned(),
        _ => format!("a {noun}"),
    }
}
