//! Many lists to one snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use super::candidate::Candidate;
use super::implied::{Implied, interfaces};
use super::list::{Entry, MergedList};
use super::name::ExposedNames;
use super::narrowed::narrowed;
use super::page::View;
use super::rewrite::{Tags, rewrite_entry};
use super::template::UriTemplate;
use super::uri::{split_tag, tagged};
use crate::config::{Filter, Sight};
use crate::exchange::Principal;
use crate::mcp::{Hints, ListKind, PerKind, Raw};

/// One entry of a list of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its native name, or its URI, or the template of its URIs.
    pub name: Arc<str>,
    /// The entry as it came.
    pub text: Raw,
}

/// The lists of one upstream, and what the configuration says of it.
#[derive(Debug)]
pub struct Source<'a> {
    /// The place of the upstream in the configuration.
    pub upstream: usize,
    /// Its name there.
    pub label: &'a str,
    /// How its names are exposed here.
    pub names: &'a ExposedNames,
    /// How rules know them, here as elsewhere.
    pub known_names: &'a ExposedNames,
    /// Which of its entries are offered.
    pub filters: PerKind<&'a Filter>,
    /// Its entries in its own order.
    pub lists: PerKind<&'a [Listed]>,
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

/// The merged offer of one endpoint at one instant.
#[derive(Debug, Default)]
pub struct Snapshot {
    lists: PerKind<MergedList>,
    /// What tells an upstream's URIs from equal ones of others, by its place.
    tags: Vec<Tags>,
    templates: Vec<Template>,
    implied: Implied,
    /// What was left out, and why.
    pub findings: Vec<Finding>,
}

/// A template that routes.
#[derive(Debug)]
struct Template {
    upstream: usize,
    template: UriTemplate,
}

/// Where a URI leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The place of the upstream.
    pub upstream: usize,
    /// The URI as the upstream knows it.
    pub native: Arc<str>,
}

impl Snapshot {
    /// Merges `sources`, which come in the order of the configuration; `clients` are the filters of
    /// the layers that hold for each client here, in the order of the clients, and `roles` those of the roles.
    ///
    /// Where two entries get one exposed name, the earlier one keeps it and the other becomes a finding.
    /// Where two upstreams have one URI, that of the later one is tagged.
    #[must_use]
    pub fn merge<'a>(
        sources: impl Iterator<Item = Source<'a>>,
        clients: impl Iterator<Item = PerKind<Vec<Filter>>>,
        roles: impl Iterator<Item = PerKind<&'a Filter>>,
    ) -> Self {
        let mut snapshot = Self::default();
        for filters in roles {
            for kind in ListKind::ALL {
                snapshot.lists.kind_mut(kind).add_role((*filters.kind(kind)).clone());
            }
        }
        for filters in clients {
            for kind in ListKind::ALL {
                snapshot.lists.kind_mut(kind).add_client(filters.kind(kind).clone());
            }
        }
        let sources: Vec<_> = sources.collect();
        snapshot.tags = sources.iter().map(|source| Tags::new(source.upstream, source.label)).collect();
        for (index, source) in sources.iter().enumerate() {
            snapshot.add_uris(index, source);
            snapshot.imply(index, source);
        }
        for (index, source) in sources.iter().enumerate() {
            for kind in [ListKind::Tools, ListKind::Prompts] {
                for listed in *source.lists.kind(kind) {
                    let exposed = source.names.expose(&listed.name).into();
                    snapshot.add(kind, index, source, listed, exposed);
                }
            }
        }
        snapshot
    }

    /// Adds resources and templates, and notes which of their URIs are tagged.
    fn add_uris(&mut self, index: usize, source: &Source<'_>) {
        for kind in [ListKind::Resources, ListKind::Templates] {
            for listed in *source.lists.kind(kind) {
                let is_foreign = self.is_foreign(kind, source.upstream, &listed.name);
                let template =
                    (kind == ListKind::Templates).then(|| UriTemplate::parse(&listed.name)).flatten();
                let exposed = match is_foreign {
                    true => Arc::from(tagged(&listed.name, source.label)),
                    false => Arc::clone(&listed.name),
                };
                if let Some(tags) = self.tags.get_mut(index) {
                    tags.note(kind, &listed.name, &exposed, template.as_ref());
                }
                if let Some(template) = template {
                    self.templates.push(Template { upstream: source.upstream, template });
                }
                self.add(kind, index, source, listed, exposed);
            }
        }
    }

    /// Notes what the tools of an upstream name as their user interfaces and its lists leave out.
    fn imply(&mut self, index: usize, source: &Source<'_>) {
        let kind = ListKind::Resources;
        let listed: HashSet<&str> = source.lists.kind(kind).iter().map(|listed| &*listed.name).collect();
        let filter = source.filters.kind(ListKind::Tools);
        let offered = |listed: &&Listed| tool(listed).passes_within(filter);
        for uri in source.lists.kind(ListKind::Tools).iter().filter(offered).flat_map(interfaces) {
            let native: Arc<str> = uri.into();
            if listed.contains(&*native) {
                continue;
            }
            let exposed = match self.is_foreign(kind, source.upstream, &native) {
                true => Arc::from(tagged(&native, source.label)),
                false => Arc::clone(&native),
            };
            if let Some(tags) = self.tags.get_mut(index) {
                tags.note(kind, &native, &exposed, None);
            }
            self.implied.note(exposed, Location { upstream: source.upstream, native });
        }
    }

    /// Whether an upstream that came before has an entry with this URI.
    fn is_foreign(&self, kind: ListKind, upstream: usize, native: &str) -> bool {
        let listed = self.lists.kind(kind).find(native).map(|(_, entry)| entry.upstream);
        let implied = self.implied.find(native).filter(|_| kind == ListKind::Resources);
        listed.or(implied.map(|found| found.upstream)).is_some_and(|owner| owner != upstream)
    }

    fn add(&mut self, kind: ListKind, index: usize, source: &Source<'_>, listed: &Listed, exposed: Arc<str>) {
        let list = self.lists.kind_mut(kind);
        let native = Arc::clone(&listed.name);
        if let Some((_, taken)) = list.find(&exposed) {
            let reason = match taken.upstream == source.upstream {
                true => format!("the upstream lists the {} {native:?} twice", kind.noun()),
                false => format!("another upstream, earlier in the configuration, has {exposed:?} already"),
            };
            return self.findings.push(Finding { upstream: source.upstream, native, reason });
        }
        let known = match kind {
            ListKind::Tools | ListKind::Prompts => known(source, &native, &exposed),
            ListKind::Resources | ListKind::Templates => Arc::clone(&native),
        };
        let hints = if kind == ListKind::Tools { Hints::of(listed.text.bytes()) } else { Hints::default() };
        let candidate = Candidate { kind, native: &native, known: &known, hints: Sight::Seen(hints) };
        let is_offered = candidate.passes_within(source.filters.kind(kind));
        let text = rewrite_entry(kind, listed, &exposed, self.tags.get(index));
        let own = source.filters.kind(kind).narrow.iter();
        let own =
            own.filter(|narrow| narrow.pattern.matches(Candidate { known: &native, ..candidate }.subject()));
        let text = narrowed(text, own);
        list.push(Entry { exposed, known, native, upstream: source.upstream, is_offered, hints, text });
    }

    /// The entry that an upstream has under this name of its own.
    #[must_use]
    pub fn find_native(&self, kind: ListKind, upstream: usize, native: &str) -> Option<&Entry> {
        self.entries(kind).iter().find(|entry| entry.upstream == upstream && *entry.native == *native)
    }

    /// All entries of a kind, those that no client sees included.
    #[must_use]
    pub fn entries(&self, kind: ListKind) -> &[Entry] {
        self.lists.kind(kind).entries()
    }

    /// The entry with this exposed name or URI, and its place.
    ///
    /// A URI under the tag of its upstream is found whether or not it needs the tag now: whom else it must
    /// be told apart from comes and goes.
    #[must_use]
    pub fn find(&self, kind: ListKind, exposed: &str) -> Option<(usize, &Entry)> {
        let list = self.lists.kind(kind);
        list.find(exposed).or_else(|| match kind {
            ListKind::Resources | ListKind::Templates => {
                let (native, tags) = self.untag(exposed)?;
                let is_it = |entry: &&Entry| entry.upstream == tags.upstream() && &*entry.native == native;
                let index = list.entries().iter().position(|entry| is_it(&entry))?;
                list.entries().get(index).map(|entry| (index, entry))
            }
            ListKind::Tools | ListKind::Prompts => None,
        })
    }

    /// Where a URI leads: to the upstream that lists it, or whose tools name it as a user interface; else to
    /// that with the template that may have made it (of several, that with the longest literal part, then the earliest in the configuration).
    #[must_use]
    pub fn locate(&self, uri: &str) -> Option<Location> {
        if let Some((_, entry)) = self.find(ListKind::Resources, uri) {
            return Some(Location { upstream: entry.upstream, native: Arc::clone(&entry.native) });
        }
        if let Some(location) = self.implied.find(uri) {
            return Some(location.clone());
        }
        let by_tag = self.untag(uri).and_then(|(native, tags)| {
            let upstream = match self.implied.has(tags.upstream(), native) {
                true => tags.upstream(),
                false => self.made_by(native, |upstream| upstream == tags.upstream())?,
            };
            Some(Location { upstream, native: native.into() })
        });
        by_tag.or_else(|| {
            let upstream = self.made_by(uri, |_| true)?;
            Some(Location { upstream, native: uri.into() })
        })
    }

    fn made_by(&self, uri: &str, is_asked: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<&Template> = None;
        for candidate in self.templates.iter().filter(|template| is_asked(template.upstream)) {
            let is_longer = best.is_none_or(|best| candidate.template.literal() > best.template.literal());
            if is_longer && candidate.template.matches(uri) {
                best = Some(candidate);
            }
        }
        best.map(|template| template.upstream)
    }

    fn untag<'a>(&self, uri: &'a str) -> Option<(&'a str, &Tags)> {
        let (native, label) = split_tag(uri)?;
        self.tags.iter().find(|tags| tags.label() == label).map(|tags| (native, tags))
    }

    /// What tells the URIs of an upstream from equal ones of others; `None` if none of them needs that.
    #[must_use]
    pub fn tags(&self, upstream: usize) -> Option<&Tags> {
        self.tags.iter().find(|tags| tags.upstream() == upstream && !tags.is_empty())
    }

    /// What a caller sees of a kind; rendered on first use. Of a role that is not there nobody sees anything.
    #[must_use]
    pub fn view(&self, kind: ListKind, principal: &Principal) -> Option<Arc<View>> {
        self.lists.kind(kind).view(kind, principal)
    }
}

/// A tool as the rules of its upstream see it.
fn tool(listed: &Listed) -> Candidate<'_> {
    let hints = Sight::Seen(Hints::of(listed.text.bytes()));
    Candidate { kind: ListKind::Tools, native: &listed.name, known: &listed.name, hints }
}

/// The name by which rules know an entry; shared with the exposed one where both are the same.
fn known(source: &Source<'_>, native: &str, exposed: &Arc<str>) -> Arc<str> {
    let known = source.known_names.expose(native);
    if known == **exposed { Arc::clone(exposed) } else { known.into() }
}

#[cfg(test)]
mod tests;
