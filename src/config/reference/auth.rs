//! The keys of `auth`.

use std::time::Duration;

use super::{Bounded, Flag, Free, Key, Listed, Table};

/// Who is let in.
pub(crate) static AUTH: Table = Table {
    path: "auth",
    about: "Who is let in besides the `clients` with tokens.",
    keys: &[&ANONYMOUS, &JWT],
    later: &[],
    foreign: &[],
    aliases: &[("oauth", "jwt"), ("oidc", "jwt"), ("issuers", "jwt")],
    example: "\
listen: 0.0.0.0:8080
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
auth: {anonymous: true}
",
};

pub(crate) static ANONYMOUS: Key<Flag> = Key {
    name: "anonymous",
    about: "Whether callers without credentials are served. A `listen` that is not loopback needs `clients`, \
            `jwt`, or this said outright.",
    form: Flag { default: None, otherwise: "`true` on loopback without `clients` and `jwt`, else `false`" },
};

pub(crate) static JWT: Key<Listed> = Key {
    name: "jwt",
    about: "Authorization servers whose access tokens are taken; at most 16, each issuer once.",
    form: Listed(&JWT_TABLE),
};

/// One issuer.
pub(crate) static JWT_TABLE: Table = Table {
    path: "auth.jwt[]",
    about: "One authorization server (an OIDC or OAuth provider) whose signed access tokens (JWT) are taken. A token \
            needs a good signature of a key that the issuer publishes, its `iss`, one of the audiences in `aud`, and \
            an `exp` that has not passed. Its keys are read at the start and every `refresh`; a token that names an \
            unknown key has them read once more, at most every 30 s; while they cannot be read, those known before \
            hold.\n\n\
            Who a token is: with `client_claim`, the client of the file that the claim names, with its rules and \
            limits; such a client needs no `tokens`. With `roles_claim`, whoever has a role of the file, with the \
            rules of each of them (layers only narrow, so two roles show no more than either). Where either key is \
            there, a token that names neither a client nor a role of the file gets 403; without both keys, every \
            good token is let in. Callers that no client of the file is are counted under the name `jwt:` and the \
            issuer without its scheme, and have sessions of their own, by their `sub`.\n\n\
            With an issuer, the gateway is an OAuth protected resource (RFC 9728): its metadata is at \
            `/.well-known/oauth-protected-resource`, also with the path of the endpoint behind it, and every 401 \
            names it, so that a client finds where to get a token.",
    keys: &[
        &JWT_ISSUER,
        &JWT_AUDIENCE,
        &JWT_ALGORITHMS,
        &JWT_JWKS,
        &JWT_SKEW,
        &JWT_REFRESH,
        &JWT_CLIENT,
        &JWT_ROLES,
        &JWT_SCOPES,
    ],
    later: &[],
    foreign: &[],
    aliases: &[
        ("iss", "issuer"),
        ("aud", "audience"),
        ("jwks_uri", "jwks_url"),
        ("leeway", "clock_skew"),
        ("scope", "scopes"),
        ("groups_claim", "roles_claim"),
    ],
    example: "\
listen: 0.0.0.0:8080
public_url: https://mcp.example.com/mcp
upstreams:
  github: {url: \"https://api.githubcopilot.com/mcp/\"}
roles:
  engineer: {tools: {deny: [\"github__delete_*\"]}}
auth:
  jwt:
    - issuer: https://login.example.com/
      audience: https://mcp.example.com/mcp
      roles_claim: groups
      scopes: [mcp]
",
};

pub(crate) static JWT_ISSUER: Key<Free> = Key {
    name: "issuer",
    about: "What its tokens say in `iss`, letter by letter. Its keys are discovered below it, by RFC 8414 or OpenID \
            Connect, unless `jwks_url` says where they are. Must be there.",
    form: Free {
        written: "URL",
        default: "",
        bounds: "`https`, or `http` with a warning unless it is loopback",
    },
};

pub(crate) static JWT_AUDIENCE: Key<Free> = Key {
    name: "audience",
    about: "Values of `aud`, one of which a token must have: what the authorization server calls this gateway.",
    form: Free { written: "text or list of texts", default: "`public_url`", bounds: "at most 16" },
};

pub(crate) static JWT_ALGORITHMS: Key<Free> = Key {
    name: "algorithms",
    about: "How a token may be signed: `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384`, \
            `EdDSA`. What a token says of itself decides nothing.",
    form: Free { written: "list of names", default: "`[RS256, PS256, ES256, EdDSA]`", bounds: "one or more" },
};

pub(crate) static JWT_JWKS: Key<Free> = Key {
    name: "jwks_url",
    about: "Where its keys are (JWKS), if they are not to be discovered. No redirect is followed.",
    form: Free { written: "URL", default: "discovered", bounds: "as `issuer`" },
};

pub(crate) static JWT_SKEW: Key<Bounded<Duration>> = Key {
    name: "clock_skew",
    about: "How far its clock may be from ours, for `exp` and `nbf`.",
    form: Bounded {
        default: Some(Duration::from_secs(60)),
        min: Duration::ZERO,
        max: Duration::from_secs(600),
    },
};

pub(crate) static JWT_REFRESH: Key<Bounded<Duration>> = Key {
    name: "refresh",
    about: "How often its keys are read again.",
    form: Bounded {
        default: Some(Duration::from_secs(900)),
        min: Duration::from_secs(30),
        max: Duration::from_secs(86_400),
    },
};

pub(crate) static JWT_CLIENT: Key<Free> = Key {
    name: "client_claim",
    about: "The claim whose text is the name of a client of the file. Take one that only the authorization server \
            can set. A dot leads into an object, where there is no claim with the dot in its name.",
    form: Free { written: "text", default: "", bounds: "1 to 256 bytes" },
};

pub(crate) static JWT_ROLES: Key<Free> = Key {
    name: "roles_claim",
    about: "The claim that lists roles of the file: a list of texts, or one text with spaces between. Names that are \
            no role of the file mean nothing.",
    form: Free {
        written: "text, like `groups` or `realm_access.roles`",
        default: "",
        bounds: "1 to 256 bytes",
    },
};

pub(crate) static JWT_SCOPES: Key<Free> = Key {
    name: "scopes",
    about: "Scopes that a token must have, all of them, in `scope` or `scp`; without, 403 says which. Clients are \
            told to ask for them.",
    form: Free { written: "list of texts", default: "`[]`", bounds: "at most 32" },
};

pub(crate) static PUBLIC_URL: Key<Free> = Key {
    name: "public_url",
    about: "The URL under which clients reach the endpoint, where a proxy stands in front: what the OAuth metadata \
            calls the resource. With `auth.jwt` and a `listen` that is not loopback it must be there.",
    form: Free {
        written: "URL",
        default: "on loopback `http`, the `Host` of the request and the path",
        bounds: "`http` or `https`, without query",
    },
};
