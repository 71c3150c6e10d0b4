//! The keys of access tokens of our own.

use super::{Free, Key, Nested, Secret, Table};

pub(crate) static OAUTH: Key<Nested> = Key {
    name: "oauth",
    about: "Access tokens of our own for it, fetched from its authorization server. In the place of \
            `headers.Authorization`.",
    form: Nested(&OAUTH_TABLE),
};

/// Client credentials.
pub(crate) static OAUTH_TABLE: Table = Table {
    path: "upstreams.<name>.oauth",
    about: "An access token for an upstream, by the client credentials grant (RFC 6749, 4.4). It is fetched when it is \
            needed, by one request for all, kept, and fetched anew a minute before its end (a fifth of its time, if \
            that is less), and once where the upstream answers 401. The id and the secret are sent by HTTP Basic. A \
            failure is remembered for 5 s. The token of a caller never takes part.",
    keys: &[
        &OAUTH_TOKEN_URL,
        &OAUTH_ID,
        &OAUTH_SECRET,
        &OAUTH_SCOPES,
        &OAUTH_RESOURCE,
        &OAUTH_AUDIENCE,
        &super::CA_FILE,
        &super::DENY_PRIVATE,
    ],
    later: &["exchange"],
    foreign: &[],
    aliases: &[
        ("scope", "scopes"),
        ("token_endpoint", "token_url"),
        ("id", "client_id"),
        ("secret", "client_secret"),
    ],
    example: "\
upstreams:
  crm:
    url: https://crm.example.com/mcp
    oauth:
      token_url: https://login.example.com/oauth/token
      client_id: waypost
      client_secret: {env: CRM_SECRET}
      scopes: [crm.read]
",
};

pub(crate) static OAUTH_TOKEN_URL: Key<Free> = Key {
    name: "token_url",
    about: "The token endpoint. No redirect is followed. Must be there.",
    form: Free { written: "URL", default: "", bounds: "`http` or `https`, without credentials or `#`" },
};

pub(crate) static OAUTH_ID: Key<Free> = Key {
    name: "client_id",
    about: "Who we are there. Must be there.",
    form: Free { written: "text", default: "", bounds: "not empty" },
};

pub(crate) static OAUTH_SECRET: Key<Secret> = Key {
    name: "client_secret",
    about: "And how that is believed: a text, best `${NAME}`, or `{env: NAME}`, or `{file: PATH}`. Must be there.",
    form: Secret(Free { written: "text or source", default: "", bounds: "not empty" }),
};

pub(crate) static OAUTH_SCOPES: Key<Free> = Key {
    name: "scopes",
    about: "What is asked for.",
    form: Free { written: "list of texts", default: "`[]`, which asks for nothing", bounds: "" },
};

pub(crate) static OAUTH_RESOURCE: Key<Free> = Key {
    name: "resource",
    about: "For which resource (RFC 8707), where the authorization server wants to know.",
    form: Free { written: "text", default: "", bounds: "not empty" },
};

pub(crate) static OAUTH_AUDIENCE: Key<Free> = Key {
    name: "audience",
    about: "For which audience, where the authorization server wants to know.",
    form: Free { written: "text", default: "", bounds: "not empty" },
};
