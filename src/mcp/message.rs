//! JSON-RPC messages: the envelope located, the payload as it came.
//!
//! A message keeps its whole text; what is known of it are spans in that text. It is written again by a
//! [`Draft`], so a member that nobody knows survives at every level, the envelope included.

use bytes::Bytes;

use super::draft::Draft;
use super::id::Id;
use super::object::{Look, ObjectView, Raw, Span};

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is one.
    Response(Response),
}

/// A request. `params` has been looked into one level deep, and its `_meta` one deeper.
#[derive(Clone, Debug)]
pub struct Request {
    /// The whole message.
    pub text: Bytes,
    /// The envelope.
    pub envelope: ObjectView,
    /// The id.
    pub id: Id,
    /// The method as it was written, decoded.
    pub method: Box<str>,
    /// `params`; not an object where absent or `null`.
    pub params: ObjectView,
}

/// A notification, like a request without id.
#[derive(Clone, Debug)]
pub struct Notification {
    /// The whole message.
    pub text: Bytes,
    /// The envelope.
    pub envelope: ObjectView,
    /// The method, decoded.
    pub method: Box<str>,
    /// `params`; not an object where absent or `null`.
    pub params: ObjectView,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The whole message.
    pub text: Bytes,
    /// The envelope.
    pub envelope: ObjectView,
    /// The id; `None` where the peer could not read ours (`null`, absent).
    pub id: Option<Id>,
    /// What came back.
    pub body: Body,
}

/// The two kinds of response.
#[derive(Clone, Debug)]
pub enum Body {
    /// `result`, looked into one level deep and into its `_meta`.
    Result(ObjectView),
    /// `error`, looked into one level deep.
    Error(ObjectView),
}

impl Request {
    /// The whole params object as raw text.
    #[must_use]
    pub fn params_raw(&self) -> Option<Raw> {
        self.params.is_object.then(|| Raw::trusted(self.text.slice(self.params.span.clone())))
    }

    /// A member of `params`.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<Raw> {
        self.params.raw(&self.text, key)
    }

    /// A member of `params`, decoded, if it is a string.
    #[must_use]
    pub fn param_string(&self, key: &str) -> Option<String> {
        self.params.string(&self.text, key)
    }

    /// A member of `params._meta`.
    #[must_use]
    pub fn meta(&self, key: &str) -> Option<Raw> {
        self.params.inner(&self.text, "_meta")?.raw(&self.text, key)
    }

    /// Where the id stands.
    #[must_use]
    pub fn id_span(&self) -> Option<Span> {
        self.envelope.get(&self.text, "id")
    }

    /// A draft of this request under another id, with `params` changed, and `params._meta` changed; both
    /// are made where they are missing and wanted, and `_meta` goes where the changes leave it empty.
    #[must_use]
    pub fn draft(&self, id: &Id, params: &[(&str, Option<Bytes>)], meta: &[(&str, Option<Bytes>)]) -> Draft {
        let mut draft = Draft::new(self.text.clone());
        if let Some(span) = self.id_span() {
            draft.replace(span, id.bytes().clone());
        }
        edit_params(&mut draft, &self.envelope, &self.params, params, meta);
        draft
    }
}

impl Request {
    /// This request with the edits of a draft of it, which leave its id and method as they are; `None` if that
    /// is no request.
    #[must_use]
    pub fn edited(&self, draft: Draft) -> Option<Self> {
        let (text, envelope, params) = edited(draft)?;
        Some(Self { text, envelope, params, id: self.id.clone(), method: self.method.clone() })
    }
}

impl Notification {
    /// This notification with the edits of a draft of it, which leave its method as it is; `None` if that is
    /// no notification.
    #[must_use]
    pub fn edited(&self, draft: Draft) -> Option<Self> {
        let (text, envelope, params) = edited(draft)?;
        Some(Self { text, envelope, params, method: self.method.clone() })
    }

    /// A member of `params`.
    #[must_use]
    pub fn param(&self, key: &str) -> Option<Raw> {
        self.params.raw(&self.text, key)
    }

    /// A member of `params`, decoded, if it is a string.
    #[must_use]
    pub fn param_string(&self, key: &str) -> Option<String> {
        self.params.string(&self.text, key)
    }

    /// A draft with `params` and `params._meta` changed; see [`Request::draft`].
    #[must_use]
    pub fn draft(&self, params: &[(&str, Option<Bytes>)], meta: &[(&str, Option<Bytes>)]) -> Draft {
        let mut draft = Draft::new(self.text.clone());
        edit_params(&mut draft, &self.envelope, &self.params, params, meta);
        draft
    }
}

impl Response {
    /// A member of the result.
    #[must_use]
    pub fn result(&self, key: &str) -> Option<Raw> {
        match &self.body {
            Body::Result(view) => view.raw(&self.text, key),
            Body::Error(_) => None,
        }
    }

    /// The code of the error.
    #[must_use]
    pub fn error_code(&self) -> Option<i64> {
        match &self.body {
            Body::Error(view) => view.raw(&self.text, "code")?.text().parse().ok(),
            Body::Result(_) => None,
        }
    }

    /// The text of the error.
    #[must_use]
    pub fn error_message(&self) -> Option<String> {
        match &self.body {
            Body::Error(view) => view.string(&self.text, "message"),
            Body::Result(_) => None,
        }
    }

    /// This response with the edits of a draft of it, which leave its envelope as it is; `None` if that is
    /// no response.
    #[must_use]
    pub fn edited(&self, draft: Draft) -> Option<Self> {
        let text = draft.finish();
        let envelope = ObjectView::read(std::str::from_utf8(&text).ok()?, Look::Envelope).ok()?;
        let body = match &self.body {
            Body::Result(_) => Body::Result(envelope.inner(&text, "result")?.clone()),
            Body::Error(_) => Body::Error(envelope.inner(&text, "error")?.clone()),
        };
        Some(Self { text, envelope, id: self.id.clone(), body })
    }

    /// A draft of this response under another id, with `result` (or `error`) changed, and its `_meta`.
    #[must_use]
    pub fn draft(&self, id: &Id, members: &[(&str, Option<Bytes>)], meta: &[(&str, Option<Bytes>)]) -> Draft {
        let mut draft = Draft::new(self.text.clone());
        match self.envelope.get(&self.text, "id") {
            Some(span) => draft.replace(span, id.bytes().clone()),
            None => draft.edit_object(&self.envelope, &[("id", Some(id.bytes().clone()))]),
        }
        let (Body::Result(view) | Body::Error(view)) = &self.body;
        edit_with_meta(&mut draft, view, members, meta);
        draft
    }
}

/// A text with its edits, the envelope in it, and its `params`.
fn edited(draft: Draft) -> Option<(Bytes, ObjectView, ObjectView)> {
    let text = draft.finish();
    let envelope = ObjectView::read(std::str::from_utf8(&text).ok()?, Look::Envelope).ok()?;
    let params = envelope.inner(&text, "params").cloned().unwrap_or_default();
    Some((text, envelope, params))
}

fn edit_params(
    draft: &mut Draft,
    envelope: &ObjectView,
    view: &ObjectView,
    params: &[(&str, Option<Bytes>)],
    meta: &[(&str, Option<Bytes>)],
) {
    if view.is_object {
        return edit_with_meta(draft, view, params, meta);
    }
    let mut fresh = Draft::new(Bytes::from_static(b"{}"));
    edit_with_meta(&mut fresh, &ObjectView::of(b"{}"), params, meta);
    if !fresh.is_unchanged() {
        draft.edit_object(envelope, &[("params", Some(fresh.finish()))]);
    }
}

/// Changes the members of `view` and those of its `_meta`.
fn edit_with_meta(
    draft: &mut Draft,
    view: &ObjectView,
    members: &[(&str, Option<Bytes>)],
    meta: &[(&str, Option<Bytes>)],
) {
    let text = draft.source().clone();
    let mut changes = members.to_vec();
    match view.inner(&text, "_meta").filter(|inner| inner.is_object) {
        Some(inner) => {
            let gone = |name: &str| meta.iter().any(|(key, value)| *key == name && value.is_none());
            let empties = !inner.members.is_empty()
                && inner.members.iter().all(|member| gone(&member.name(&text)))
                && meta.iter().all(|(_, value)| value.is_none());
            if empties {
                changes.push(("_meta", None));
            } else {
                draft.edit_object(inner, meta);
            }
        }
        None => {
            let mut fresh = Draft::new(Bytes::from_static(b"{}"));
            fresh.edit_object(&ObjectView::of(b"{}"), meta);
            if !fresh.is_unchanged() {
                changes.push(("_meta", Some(fresh.finish())));
            }
        }
    }
    draft.edit_object(view, &changes);
}
