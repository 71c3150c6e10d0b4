//! Names and URIs in the places where the schema puts them, from an upstream's own to the exposed ones. Free
//! text is never touched.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::merge::Listed;
use super::template::UriTemplate;
use super::uri::tagged;
use crate::mcp::{Body, Draft, ListKind, Method, ObjectView, Raw, Response, Routing, elements};

/// The URIs of one upstream: which of them are tagged.
#[derive(Debug)]
pub struct Tags {
    upstream: usize,
    label: Arc<str>,
    /// Its listed URIs, and whether each is tagged.
    listed: HashMap<Arc<str>, bool>,
    /// Its templates whose URIs are tagged.
    templates: Vec<UriTemplate>,
    has_tagged: bool,
}

impl Tags {
    pub(super) fn new(upstream: usize, label: &str) -> Self {
        let (listed, templates) = (HashMap::new(), Vec::new());
        Self { upstream, label: label.into(), listed, templates, has_tagged: false }
    }

    /// Notes an entry, and the URI that it is exposed under.
    pub(super) fn note(
        &mut self,
        kind: ListKind,
        native: &Arc<str>,
        exposed: &Arc<str>,
        template: Option<&UriTemplate>,
    ) {
        let is_tagged = native != exposed;
        self.has_tagged |= is_tagged;
        if kind == ListKind::Resources {
            self.listed.entry(Arc::clone(native)).or_insert(is_tagged);
        }
        self.templates.extend(template.filter(|_| is_tagged).cloned());
    }

    pub(super) fn upstream(&self) -> usize {
        self.upstream
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has_tagged
    }

    /// The URI that clients use for one of the upstream's, where it is another one.
    #[must_use]
    pub fn expose(&self, uri: &str) -> Option<String> {
        let is_tagged = match self.listed.get(uri) {
            Some(is_tagged) => *is_tagged,
            None => self.templates.iter().any(|template| template.matches(uri)),
        };
        is_tagged.then(|| tagged(uri, &self.label))
    }

    /// A response of the upstream to `method`, with the URIs that clients use; `None` if nothing changes.
    ///
    /// Looks at links, embedded resources, the contents of a resource, the URIs of user interfaces in
    /// `_meta`, and the URI of an error about a resource.
    #[must_use]
    pub fn rewrite(&self, method: Method, response: &Response) -> Option<Response> {
        let mut edit = Edit { tags: self, draft: Draft::new(response.text.clone()) };
        match &response.body {
            Body::Result(result) => edit.result(method, result),
            Body::Error(error) => edit.error(method, error),
        }
        if edit.draft.is_unchanged() { None } else { response.edited(edit.draft) }
    }
}

/// An entry as it is listed: under its exposed name, all else as it came. Where the exposed name no longer
/// holds the native one, an entry without a title gets the native name as its title.
pub(super) fn rewrite_entry(kind: ListKind, listed: &Listed, exposed: &str, tags: Option<&Tags>) -> Bytes {
    let (text, native) = (listed.text.bytes(), &*listed.name);
    let tags = tags.filter(|tags| !tags.is_empty());
    if native == exposed && tags.is_none() {
        return text.clone();
    }
    let quoted = |text: &str| Some(Raw::from_text(text).bytes().clone());
    let view = listed.text.object();
    let mut draft = Draft::new(text.clone());
    if native != exposed {
        let is_name = matches!(kind, ListKind::Tools | ListKind::Prompts);
        let mut changes = vec![(kind.name_key(), quoted(exposed))];
        if is_name && !exposed.ends_with(native) && view.get(text, "title").is_none() {
            changes.push(("title", quoted(native)));
        }
        draft.edit_object(&view, &changes);
    }
    let Some(tags) = tags else { return draft.finish() };
    let mut edit = Edit { tags, draft };
    edit.meta(&view);
    edit.draft.finish()
}

/// A message whose URIs are being changed.
struct Edit<'a> {
    tags: &'a Tags,
    draft: Draft,
}

impl Edit<'_> {
    fn result(&mut self, method: Method, result: &ObjectView) {
        self.meta(result);
        match method.routing() {
            Routing::Name(ListKind::Prompts) => self.each(result, "messages", Self::message),
            Routing::Name(_) => self.each(result, "content", Self::block),
            Routing::Uri => self.each(result, "contents", Self::contents),
            Routing::Task => {
                self.each(result, "content", Self::block);
                if let Some(inner) = self.below(result, "result") {
                    self.meta(&inner);
                    self.each(&inner, "content", Self::block);
                }
            }
            Routing::Local | Routing::List(_) | Routing::Reference | Routing::Extension | Routing::Tasks => {}
        }
    }

    fn error(&mut self, method: Method, error: &ObjectView) {
        if let (Routing::Uri, Some(data)) = (method.routing(), self.below(error, "data")) {
            self.uri(&data, "uri");
        }
    }

    /// A message of a prompt: its content is one block, or several.
    fn message(&mut self, message: &ObjectView) {
        match self.below(message, "content") {
            Some(block) if block.is_object => self.block(&block),
            Some(_) | None => self.each(message, "content", Self::block),
        }
    }

    /// A block of content.
    fn block(&mut self, block: &ObjectView) {
        self.meta(block);
        match block.string(self.draft.source(), "type").as_deref() {
            Some("resource_link") => self.uri(block, "uri"),
            Some("resource") => {
                if let Some(resource) = self.below(block, "resource") {
                    self.contents(&resource);
                }
            }
            Some(_) | None => {}
        }
    }

    /// The contents of a resource.
    fn contents(&mut self, contents: &ObjectView) {
        self.meta(contents);
        self.uri(contents, "uri");
    }

    /// The URI of a user interface, in either spelling.
    fn meta(&mut self, owner: &ObjectView) {
        let Some(meta) = self.below(owner, "_meta") else { return };
        self.uri(&meta, "ui/resourceUri");
        if let Some(ui) = self.below(&meta, "ui") {
            self.uri(&ui, "resourceUri");
        }
    }

    fn uri(&mut self, owner: &ObjectView, key: &str) {
        let text = self.draft.source();
        let exposed = owner.string(text, key).and_then(|uri| self.tags.expose(&uri));
        if let (Some(span), Some(exposed)) = (owner.get(text, key), exposed) {
            self.draft.replace(span, Raw::from_text(&exposed).bytes().clone());
        }
    }

    fn below(&self, owner: &ObjectView, key: &str) -> Option<ObjectView> {
        let text = self.draft.source();
        Some(ObjectView::at(text, owner.get(text, key)?))
    }

    fn each(&mut self, owner: &ObjectView, key: &str, act: fn(&mut Self, &ObjectView)) {
        let text = self.draft.source().clone();
        let Some(span) = owner.get(&text, key) else { return };
        for element in elements(&text, span) {
            act(self, &ObjectView::at(&text, element));
        }
    }
}
