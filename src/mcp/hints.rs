//! What a tool says of itself in its `annotations`: that it only reads, that it destroys, and the like.
//!
//! Spec: schema, `ToolAnnotations`. The defaults that the schema has for missing hints are not filled in: what a
//! server does not say, it does not say.
//!
//! Must not know: who asks for them.

use std::fmt;

use bytes::Bytes;

use super::object::ObjectView;

/// The hints of a tool, or those that are asked for: each is said to be so, said not to be so, or not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hints([Option<bool>; Self::NAMES.len()]);

impl Hints {
    /// What the hints are called.
    pub const NAMES: [&'static str; 4] =
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

    /// Those of a tool, by its entry in the list. Annotations that name a key twice say nothing: readers differ
    /// on what they mean.
    #[must_use]
    pub fn of(tool: &Bytes) -> Self {
        let view = ObjectView::of(tool);
        let Some(annotations) = view.raw(tool, "annotations").filter(|_| view.unique(tool).is_ok()) else {
            return Self::default();
        };
        let (view, text) = (annotations.object(), annotations.bytes());
        if view.unique(text).is_err() {
            return Self::default();
        }
        Self(Self::NAMES.map(|name| match view.raw(text, name).as_ref().map(super::Raw::text) {
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(_) | None => None,
        }))
    }

    /// With one more said; `None` if no hint is called so.
    #[must_use]
    pub fn with(mut self, (name, value): (&str, bool)) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        *self.0.get_mut(place)? = Some(value);
        Some(self)
    }

    /// What one of them says.
    #[must_use]
    pub fn says(&self, name: &str) -> Option<bool> {
        self.said().find(|(said, _)| *said == name).map(|(_, value)| value)
    }

    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `tool` says everything that is asked for here, in the same way. What it does not say does not fit.
    #[must_use]
    pub fn fit(&self, tool: Self) -> bool {
        self.said().all(|(name, value)| tool.says(name) == Some(value))
    }

    fn said(&self) -> impl Iterator<Item = (&'static str, bool)> {
        Self::NAMES.into_iter().zip(self.0).filter_map(|(name, value)| Some((name, value?)))
    }
}

impl fmt::Display for Hints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.said().enumerate() {
            let gap = if place > 0 { ", " } else { "" };
            write!(formatter, "{gap}{name}: {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotations: &str) -> Hints {
        Hints::of(&Bytes::from(format!(r#"{{"name":"x","annotations":{annotations}}}"#)))
    }

    #[test]
    fn only_what_is_said_plainly_is_said() {
        let reads = Hints::default().with(("readOnlyHint", true)).unwrap();
        for (annotations, wanted) in [
            (r#"{"readOnlyHint":true}"#, reads),
            (r#"{ "title":"T", "read\u004fnlyHint" : true }"#, reads),
            (r#"{"readOnlyHint":"true"}"#, Hints::default()),
            (r#"{"readOnlyHint":1}"#, Hints::default()),
            (r#"{"readonlyhint":true}"#, Hints::default()),
            (r#"{"readOnlyHint":true,"readOnlyHint":false}"#, Hints::default()),
            (r#"{"readOnlyHint":false,"readOnly\u0048int":true}"#, Hints::default()),
            ("[]", Hints::default()),
            ("null", Hints::default()),
        ] {
            assert_eq!(of(annotations), wanted, "{annotations}");
        }
        assert_eq!(Hints::of(&Bytes::from_static(br#"{"name":"x"}"#)), Hints::default());
        let twice = br#"{"annotations":{"readOnlyHint":true},"annotations":{}}"#;
        assert_eq!(Hints::of(&Bytes::from_static(twice)), Hints::default());
    }

    #[test]
    fn what_is_asked_for_must_be_said() {
        let wanted = Hints::default().with(("readOnlyHint", true)).unwrap();
        assert!(wanted.fit(of(r#"{"readOnlyHint":true,"openWorldHint":false}"#)));
        assert!(!wanted.fit(of(r#"{"readOnlyHint":false}"#)));
        assert!(!wanted.fit(Hints::default()));
        assert!(Hints::default().fit(Hints::default()));
        let both = wanted.with(("destructiveHint", false)).unwrap();
        assert!(!both.fit(wanted) && both.fit(both));
        assert_eq!(both.to_string(), "readOnlyHint: true, destructiveHint: false");
        assert_eq!(wanted.with(("readonly", true)), None);
    }
}
