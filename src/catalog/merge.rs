//! Many lists to one snapshot.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::name::ExposedNames;
use super::page::View;
use crate::config::Filter;
use crate::mcp::{Draft, Raw};

/// One entry of an upstream's `tools/list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTool {
    /// Its native name.
    pub name: Arc<str>,
    /// The entry as it came.
    pub text: Raw,
}

/// The list of one upstream, and what the configuration says of it.
#[derive(Debug)]
pub struct Source<'a> {
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// How its names are exposed.
    pub names: &'a ExposedNames,
    /// Which of its tools are offered.
    pub filter: &'a Filter,
    /// Its tools in its own order.
    pub tools: &'a [ListedTool],
}

/// One tool of the merged list.
#[derive(Debug)]
pub struct Entry {
    /// The name that clients use.
    pub exposed: Arc<str>,
    /// The name that the upstream uses.
    pub native: Arc<str>,
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// Whether the upstream's own filter lets it through.
    pub is_offered: bool,
    /// The entry as it is listed, with the exposed name.
    text: Bytes,
}

impl Entry {
    /// The entry as it is listed, with the exposed name.
    #[must_use]
    pub fn text(&self) -> &Bytes {
        &self.text
    }
}

/// Something that the merge left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place of the upstream.
    pub upstream: usize,
    /// The native name.
    pub native: Arc<str>,
    /// Why it is not there.
    pub reason: String,
}

/// The merged offer at one instant.
#[derive(Debug, Default)]
pub struct Snapshot {
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
    views: Vec<(Filter, OnceLock<View>)>,
    /// What was left out, and why.
    pub findings: Vec<Finding>,
}

impl Snapshot {
    /// Merges `sources`, which come in the order of the configuration; `clients` are the filters of the
    /// clients, in theirs.
    ///
    /// Where two tools get one exposed name, the earlier one keeps it and the other becomes a finding.
    #[must_use]
    pub fn merge<'a>(
        sources: impl Iterator<Item = Source<'a>>,
        clients: impl Iterator<Item = Filter>,
    ) -> Self {
        let mut snapshot =
            Self { views: clients.map(|filter| (filter, OnceLock::new())).collect(), ..Self::default() };
        for source in sources {
            for tool in source.tools {
                snapshot.add(&source, tool);
            }
        }
        snapshot
    }

    fn add(&mut self, source: &Source<'_>, tool: &ListedTool) {
        let exposed: Arc<str> = source.names.expose(&tool.name).into();
        if let Some(taken) = self.by_name.get(&exposed).and_then(|index| self.entries.get(*index)) {
            let reason = match taken.upstream == source.upstream {
                true => format!("the upstream lists the name {:?} twice", tool.name),
                false => format!("another upstream, earlier in the configuration, has {exposed:?} already"),
            };
            let native = Arc::clone(&tool.name);
            return self.findings.push(Finding { upstream: source.upstream, native, reason });
        }
        self.by_name.insert(Arc::clone(&exposed), self.entries.len());
        self.entries.push(Entry {
            text: rename(&tool.text, &tool.name, &exposed),
            native: Arc::clone(&tool.name),
            upstream: source.upstream,
            is_offered: source.filter.admits(&tool.name),
            exposed,
        });
    }

    /// All tools, those that no client sees included.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The tool with this exposed name, and its place.
    #[must_use]
    pub fn find(&self, exposed: &str) -> Option<(usize, &Entry)> {
        let index = *self.by_name.get(exposed)?;
        self.entries.get(index).map(|entry| (index, entry))
    }

    /// What the client at this place of the configuration sees; rendered on first use.
    #[must_use]
    pub fn view(&self, client: usize) -> Option<&View> {
        let (filter, view) = self.views.get(client)?;
        Some(view.get_or_init(|| {
            let shows = |entry: &Entry| entry.is_offered && filter.admits(&entry.exposed);
            let visible = self.entries.iter().map(shows).collect();
            View::render(self.entries.iter().map(|entry| &entry.text), visible)
        }))
    }
}

/// The entry under its exposed name, all else as it came. Where the exposed name no longer holds the native
/// one, an entry without a title gets the native name as its title.
fn rename(text: &Raw, native: &str, exposed: &str) -> Bytes {
    if native == exposed {
        return text.bytes().clone();
    }
    let quoted = |text: &str| Some(Raw::from_text(text).bytes().clone());
    let view = text.object();
    let mut changes = vec![("name", quoted(exposed))];
    if !exposed.ends_with(native) && view.get(text.bytes(), "title").is_none() {
        changes.push(("title", quoted(native)));
    }
    let mut draft = Draft::new(text.bytes().clone());
    draft.edit_object(&view, &changes);
    draft.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Charset, Naming, Pattern};

    fn naming() -> Naming {
        Naming { separator: "__".into(), max_length: 64, charset: Charset::Strict }
    }

    fn tool(name: &str) -> ListedTool {
        let text = format!(r#"{{ "x-unknown" : 1e2, "name":"{name}","big":18446744073709551616 }}"#);
        ListedTool { name: name.into(), text: Raw::parse(Bytes::from(text)).unwrap() }
    }

    fn merged(upstreams: &[(&str, &[&str])], clients: Vec<Filter>) -> Snapshot {
        let prefixes: Vec<&str> = upstreams.iter().map(|(prefix, _)| *prefix).collect();
        let names: Vec<ExposedNames> = prefixes
            .iter()
            .map(|prefix| ExposedNames::new(prefix, prefixes.iter().copied(), &naming()))
            .collect();
        let tools: Vec<Vec<ListedTool>> =
            upstreams.iter().map(|(_, tools)| tools.iter().map(|name| tool(name)).collect()).collect();
        let filter = Filter { allow: None, deny: vec![Pattern("secret*".into())] };
        let sources = names.iter().zip(&tools).enumerate();
        let sources =
            sources.map(|(upstream, (names, tools))| Source { upstream, names, filter: &filter, tools });
        Snapshot::merge(sources, clients.into_iter())
    }

    #[test]
    fn entries_keep_every_byte_but_the_name() {
        let snapshot = merged(&[("a__", &["x"])], vec![Filter::default()]);
        let (page, _) = snapshot.view(0).unwrap().page(None, None).unwrap();
        let expected = r#"[{ "x-unknown" : 1e2, "name":"a__x","big":18446744073709551616 }]"#;
        assert_eq!(page, expected.as_bytes());
    }

    #[test]
    fn a_changed_name_leaves_the_native_one_as_title() {
        let titled = Raw::parse(Bytes::from_static(br#"{"name":"a.b","title":"T"}"#)).unwrap();
        let bare = Raw::parse(Bytes::from_static(br#"{"name":"a.b"}"#)).unwrap();
        assert_eq!(rename(&titled, "a.b", "u__a_b_1"), br#"{"name":"u__a_b_1","title":"T"}"#.as_slice());
        assert_eq!(rename(&bare, "a.b", "u__a_b_1"), br#"{"name":"u__a_b_1","title":"a.b"}"#.as_slice());
        assert_eq!(rename(&bare, "a.b", "u__a.b"), br#"{"name":"u__a.b"}"#.as_slice());
    }

    #[test]
    fn what_a_filter_denies_is_neither_listed_nor_lost() {
        let only_x = Filter { allow: Some(vec![Pattern("*__x".into())]), deny: vec![] };
        let snapshot = merged(&[("a__", &["x", "y", "secret1"])], vec![Filter::default(), only_x]);
        assert_eq!(snapshot.view(0).unwrap().len(), 2);
        assert_eq!(snapshot.view(1).unwrap().len(), 1);
        let (index, entry) = snapshot.find("a__secret1").unwrap();
        assert!(!entry.is_offered && !snapshot.view(0).unwrap().shows(index));
        assert!(snapshot.view(2).is_none());
    }

    #[test]
    fn the_earlier_upstream_keeps_a_name_and_the_other_is_reported() {
        let snapshot = merged(&[("", &["x", "x"]), ("", &["x", "y"])], vec![Filter::default()]);
        assert_eq!(snapshot.find("x").unwrap().1.upstream, 0);
        assert_eq!(snapshot.find("y").unwrap().1.upstream, 1);
        let found: Vec<usize> = snapshot.findings.iter().map(|finding| finding.upstream).collect();
        assert_eq!(found, [0, 1]);
    }
}
