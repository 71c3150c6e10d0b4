//! Extensions of the protocol: their identifiers, what is declared of them, and which of them a method may
//! belong to. Spec: 2026-07-28, basic/versioning, "Extension Negotiation"; SEP-2133.

use bytes::Bytes;

use super::draft::Draft;
use super::object::{ObjectView, Raw};

/// User interfaces of tools. They have no methods of their own: resources and metadata.
pub const UI: &str = "io.modelcontextprotocol/ui";
/// Tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How the two ends of one hop get credentials: what an upstream says of that is for us, and what we would
/// say of it to a client we cannot keep.
const OF_THE_HOP: [&str; 2] = [
    "io.modelcontextprotocol/enterprise-managed-authorization",
    "io.modelcontextprotocol/oauth-client-credentials",
];

/// Most extensions of one peer.
const MOST: usize = 64;
/// Longest settings of one extension, in bytes.
const LONGEST: usize = 8 * 1024;

/// What the methods of the protocol itself, and of extensions that Waypost knows, begin with.
const RESERVED: [&str; 14] = [
    "completion/",
    "elicitation/",
    "initialize",
    "logging/",
    "notifications/",
    "ping",
    "prompts/",
    "resources/",
    "roots/",
    "rpc.",
    "sampling/",
    "server/",
    "tasks/",
    "tools/",
];

/// One extension that somebody declares: its identifier, and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// `vendor/name`.
    pub id: Box<str>,
    /// An object.
    pub settings: Raw,
}

/// The extensions that capabilities declare, in their order. What has no identifier with a vendor, or no
/// settings, is none, and so is what concerns one hop alone. At most 64, with at most 8 KiB of settings each;
/// what is beyond is not promised.
#[must_use]
pub fn declared(capabilities: &Raw) -> Vec<Extension> {
    let Some(all) = capabilities.object().raw(capabilities.bytes(), "extensions") else { return Vec::new() };
    let view = all.object();
    let each = view.members.iter().filter_map(|member| {
        let id = member.name(all.bytes());
        let settings = Raw::trusted(all.bytes().slice(member.value.clone()));
        let is_fit = settings.is_object() && settings.bytes().len() <= LONGEST;
        let is_extension = id.contains('/') && is_fit && !OF_THE_HOP.contains(&&*id);
        is_extension.then(|| Extension { id: id.into(), settings })
    });
    each.take(MOST).collect()
}

/// Whether capabilities declare an extension.
#[must_use]
pub fn declares(capabilities: &Raw, id: &str) -> bool {
    let all = capabilities.object().raw(capabilities.bytes(), "extensions");
    all.and_then(|all| all.object().raw(all.bytes(), id)).is_some_and(|settings| settings.is_object())
}

/// Whether Waypost knows what an extension does, so that its own rules judge every use of it.
#[must_use]
pub fn is_known(id: &str) -> bool {
    id == UI || id == TASKS
}

/// Whether a method can be one of an extension that Waypost does not know.
#[must_use]
pub fn may_extend(method: &str) -> bool {
    !RESERVED.iter().any(|reserved| method.starts_with(reserved)) && !method.starts_with("subscriptions/")
}

/// How closely a method is tied to an extension by its name. The protocol has no rule for that; a method that
/// carries the identifier of its extension, or the vendor's prefix, says enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tie {
    /// Nothing says that they belong together.
    None,
    /// They are of one vendor.
    Vendor,
    /// The method carries the identifier, of so many bytes.
    Identifier(usize),
}

/// The tie between an extension and a method.
#[must_use]
pub fn tie(id: &str, method: &str) -> Tie {
    let carries = |prefix: &str| {
        method.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
    };
    let vendor = id.split_once('/').map(|(vendor, _)| vendor);
    if carries(id) {
        Tie::Identifier(id.len())
    } else if vendor.is_some_and(carries) {
        Tie::Vendor
    } else {
        Tie::None
    }
}

/// Many declarations to one object: every extension once, in the order of its first declaration, with the
/// settings that all who declare it have in common.
///
/// Settings that are the same pass as they are. Of settings that differ, only the members pass that stand in
/// all of them with the same value: nothing is promised that one of those who declare it does not keep.
#[must_use]
pub fn merge(all: impl IntoIterator<Item = Extension>) -> Option<Raw> {
    let mut merged: Vec<Extension> = Vec::new();
    for extension in all {
        match merged.iter_mut().find(|known| known.id == extension.id) {
            Some(known) => known.settings = common(&known.settings, &extension.settings),
            None => merged.push(extension),
        }
    }
    let members: Vec<_> =
        merged.iter().map(|known| (&*known.id, Some(known.settings.bytes().clone()))).collect();
    let empty = Bytes::from_static(b"{}");
    let mut draft = Draft::new(empty.clone());
    draft.edit_object(&ObjectView::of(&empty), &members);
    (!merged.is_empty()).then(|| Raw::trusted(draft.finish()))
}

/// The members that two objects have in common, as the first one writes them.
fn common(one: &Raw, other: &Raw) -> Raw {
    if is_same(one, other) {
        return one.clone();
    }
    let (view, others) = (one.object(), other.object());
    let differs = |name: &str| {
        let (own, theirs) = (view.raw(one.bytes(), name), others.raw(other.bytes(), name));
        !own.zip(theirs).is_some_and(|(own, theirs)| is_same(&own, &theirs))
    };
    let names: Vec<String> =
        view.members.iter().map(|member| member.name(one.bytes()).into_owned()).collect();
    let gone: Vec<_> = names.iter().filter(|name| differs(name)).map(|name| (&**name, None)).collect();
    let mut draft = Draft::new(one.bytes().clone());
    draft.edit_object(&view, &gone);
    Raw::trusted(draft.finish())
}

/// Whether two texts say the same, whatever the spaces and the order of keys.
fn is_same(one: &Raw, other: &Raw) -> bool {
    let value = |raw: &Raw| serde_json::from_slice::<serde_json::Value>(raw.bytes()).ok();
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &'static str) -> Raw {
        Raw::trusted(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn what_is_declared_is_read_and_what_concerns_one_hop_is_not() {
        let text = raw(r#"{"tools":{},"extensions":{"a.b/c":{"x":1e2},"plain":{},"a.b/d":null,"a.b/e":[],
            "io.modelcontextprotocol/oauth-client-credentials":{},"a\u002eb/f":{}}}"#);
        let found = declared(&text);
        let found: Vec<_> = found.iter().map(|found| (&*found.id, found.settings.text())).collect();
        assert_eq!(found, [("a.b/c", r#"{"x":1e2}"#), ("a.b/f", "{}")]);
        for none in [r#"{"extensions":[]}"#, r#"{"extensions":null}"#, "{}"] {
            assert!(declared(&raw(none)).is_empty());
        }
    }

    #[test]
    fn settings_pass_as_they_are_or_as_far_as_all_agree() {
        let merged = |texts: &[&'static str]| {
            let all = texts.iter().flat_map(|text| declared(&raw(text))).collect::<Vec<_>>();
            merge(all).map(|raw| raw.text().to_owned())
        };
        assert_eq!(merged(&["{}"]), None);
        let one = r#"{"extensions":{"a/b":{"n":9007199254740993, "m":{"y":1,"x":2}}}}"#;
        assert_eq!(merged(&[one]).unwrap(), r#"{"a/b":{"n":9007199254740993, "m":{"y":1,"x":2}}}"#);
        assert_eq!(merged(&[one, one]), merged(&[one]));
        let same = r#"{"extensions":{"a/b":{"m":{"x":2,"y":1},"n":9007199254740993},"a/c":{}}}"#;
        assert_eq!(
            merged(&[one, same]).unwrap(),
            r#"{"a/b":{"n":9007199254740993, "m":{"y":1,"x":2}},"a/c":{}}"#
        );
        let other = r#"{"extensions":{"a/b":{"m":{"x":2,"y":1},"n":9007199254740992,"z":0}}}"#;
        assert_eq!(merged(&[one, other]).unwrap(), r#"{"a/b":{"m":{"y":1,"x":2}}}"#);
        assert_eq!(merged(&[one, r#"{"extensions":{"a/b":{}}}"#, other]).unwrap(), r#"{"a/b":{}}"#);
    }

    #[test]
    fn a_method_is_tied_by_what_it_carries() {
        for (id, method, expected) in [
            ("com.example/search", "com.example/search", Tie::Identifier(18)),
            ("com.example/search", "com.example/search/query", Tie::Identifier(18)),
            ("com.example/search", "com.example/search.query", Tie::Identifier(18)),
            ("com.example/search", "com.example/searching", Tie::Vendor),
            ("com.example/search", "com.example.search", Tie::Vendor),
            ("com.example/search", "com.examples/search", Tie::None),
            ("com.example/search", "search/query", Tie::None),
        ] {
            assert_eq!(tie(id, method), expected, "{method}");
        }
        assert!(Tie::None < Tie::Vendor && Tie::Vendor < Tie::Identifier(0));
    }

    #[test]
    fn methods_of_the_protocol_are_no_extensions() {
        for method in ["tools/list", "tasks/get", "notifications/x", "ping", "subscriptions/listen", "rpc.x"]
        {
            assert!(!may_extend(method), "{method}");
        }
        for method in ["search/query", "com.example/x", "x", "toolsets/list"] {
            assert!(may_extend(method), "{method}");
        }
    }
}
