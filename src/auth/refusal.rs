//! Why a request has no principal: what its sender is told, and what our log may know besides.

/// Why a request has no principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// There are no credentials, and anonymous callers are not served.
    #[error("credentials are required: send `Authorization: Bearer <token>`")]
    Missing,
    /// There are credentials, but no single bearer token.
    #[error("the Authorization header must be `Bearer <token>`, once, with one space")]
    Malformed,
    /// There is a token, and it is none that is taken.
    #[error("the token is not valid")]
    Invalid(Rejection),
    /// The token is good, and lacks scopes. They are those that its issuer's tokens need.
    #[error("the token does not have the scopes that are needed here")]
    Scopes(Vec<String>),
    /// The token is good, and its bearer is neither a client nor has a role.
    #[error("the bearer of the token has no access here")]
    Stranger,
    /// It cannot be said, because the keys of the issuer are not there.
    #[error("tokens cannot be checked at the moment; try again soon")]
    Unavailable,
}

/// What is wrong with a token. For logs and metrics; its sender is told nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No client has it, and it is no JWT.
    Unknown,
    /// It looks like a JWT and cannot be read.
    Unreadable,
    /// Its issuer is none of the configuration.
    Issuer,
    /// It is signed in a way that is not allowed.
    Algorithm,
    /// It is signed with a key that the issuer does not publish.
    Key,
    /// Its signature is wrong.
    Signature,
    /// Its time is over.
    Expired,
    /// Its time has not come yet.
    NotYetValid,
    /// It is for somebody else.
    Audience,
    /// A claim that must be there is missing, or of the wrong type.
    Claims,
    /// It does not say whose it is in a way that can be used.
    Subject,
}

impl AuthError {
    /// The HTTP status that goes with it.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Missing | Self::Malformed | Self::Invalid(_) => 401,
            Self::Scopes(_) | Self::Stranger => 403,
            Self::Unavailable => 503,
        }
    }

    /// What our log says of it.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Invalid(rejection) => format!("the token is not valid: {}", rejection.reason()),
            Self::Scopes(scopes) => format!("{self}: {}", scopes.join(" ")),
            Self::Missing | Self::Malformed | Self::Stranger | Self::Unavailable => self.to_string(),
        }
    }

    /// A word for it, as a label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Invalid(rejection) => rejection.label(),
            Self::Scopes(_) => "scopes",
            Self::Stranger => "stranger",
            Self::Unavailable => "unavailable",
        }
    }

    /// Its code by RFC 6750, 3.1; none where there is nothing wrong but that credentials are missing.
    #[must_use]
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Invalid(_) => Some("invalid_token"),
            Self::Scopes(_) => Some("insufficient_scope"),
            Self::Missing | Self::Malformed | Self::Stranger | Self::Unavailable => None,
        }
    }
}

impl Rejection {
    /// A word for it, as a label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Unreadable => "unreadable",
            Self::Issuer => "issuer",
            Self::Algorithm => "algorithm",
            Self::Key => "key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Audience => "audience",
            Self::Claims => "claims",
            Self::Subject => "subject",
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Unknown => "no client has it",
            Self::Unreadable => "it cannot be read",
            Self::Issuer => "its issuer is not in the configuration",
            Self::Algorithm => "it is signed in a way that is not allowed",
            Self::Key => "its issuer publishes no key of that name",
            Self::Signature => "its signature is wrong",
            Self::Expired => "it has expired",
            Self::NotYetValid => "it is not valid yet",
            Self::Audience => "it is for another audience",
            Self::Claims => "a claim that must be there is missing",
            Self::Subject => "it does not say whose it is",
        }
    }
}
