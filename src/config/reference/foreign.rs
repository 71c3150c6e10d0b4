//! Keys that stand in the files of editors and other programs, and mean nothing here.
//!
//! A pasted block must work, so what makes no difference is ignored with a warning; what would make one is an
//! error that says what to write instead.

/// A key of other programs.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) name: &'static str,
    pub(crate) fate: Fate,
    /// What to do, or why nothing need be done.
    pub(crate) advice: &'static str,
}

/// What becomes of a key of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It makes no difference here: a warning.
    Ignored,
    /// Without it, something else would happen than its author wants: an error.
    Refused,
    /// As [`Self::Refused`], unless it is an empty list, which is ignored.
    RefusedUnlessEmpty,
}

const fn ignored(name: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, fate: Fate::Ignored, advice }
}

const fn refused(name: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, fate: Fate::Refused, advice }
}

const fn refused_unless_empty(name: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, fate: Fate::RefusedUnlessEmpty, advice }
}

const ASKING: &str = "the client decides which calls it asks about";
const DECORATION: &str = "it is for the program that it was written for";
const SIGN_IN: &str = "no sign-in is made here: write `headers: {Authorization: \"Bearer ${TOKEN}\"}`";
const SANDBOX: &str = "no sandbox is set up here: put the program that does into `command`";
const DENIED: &str = "write `tools: {deny: […]}` with these names";
const ALLOWED: &str = "write `tools: {allow: […]}` with these names";

/// Besides the keys of an upstream.
pub(crate) const UPSTREAM_FOREIGN: &[Foreign] = &[
    ignored("alwaysAllow", ASKING),
    ignored("autoApprove", ASKING),
    ignored("trust", ASKING),
    ignored("autoStart", DECORATION),
    ignored("description", DECORATION),
    ignored("dev", DECORATION),
    ignored("displayName", DECORATION),
    ignored("gallery", DECORATION),
    ignored("icon", DECORATION),
    ignored("metadata", DECORATION),
    ignored("tags", DECORATION),
    ignored("version", DECORATION),
    ignored("watchPaths", DECORATION),
    refused("envFile", "no file of variables is read: write them under `env`"),
    refused_unless_empty("disabledTools", DENIED),
    refused_unless_empty("excludeTools", DENIED),
    refused("enabledTools", ALLOWED),
    refused("includeTools", ALLOWED),
    refused("enabled", "write `disabled: true` for `enabled: false`, else take it out"),
    refused("auth", SIGN_IN),
    refused("authProviderType", SIGN_IN),
    refused("headersHelper", SIGN_IN),
    refused("oauth", SIGN_IN),
    refused("sandbox", SANDBOX),
    refused("sandboxEnabled", SANDBOX),
];

/// Besides the keys at the top.
pub(crate) const TOP_FOREIGN: &[Foreign] = &[
    ignored(
        "inputs",
        "nobody is asked here: set a variable for each, and write `${NAME}` where it is needed",
    ),
    refused("mcp", "put what stands below it at the top: `servers: …`"),
];
