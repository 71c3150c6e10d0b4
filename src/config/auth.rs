//! Whose tokens are taken besides those of the file.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

/// An issuer of JWTs whose tokens are taken.
#[derive(Clone, Debug)]
pub struct JwtIssuer {
    /// The `iss` of its tokens, and where its keys are discovered.
    pub issuer: String,
    /// The client that its callers are whom no client of the file is, by its place and its name.
    pub group: (usize, Arc<str>),
    /// Values of `aud`, one of which a token must have.
    pub audiences: Vec<String>,
    /// How its tokens may be signed; never empty, and never with a shared secret.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Where its keys are, if they are not to be discovered.
    pub jwks_url: Option<Url>,
    /// How far its clock may be from ours. Default 60 s.
    pub clock_skew: Duration,
    /// How often its keys are read again. Default 15 min.
    pub refresh: Duration,
    /// The claim that names a client of the file.
    pub client_claim: Option<String>,
    /// The claim that names roles of the file.
    pub roles_claim: Option<String>,
    /// Scopes that a token must have, all of them.
    pub scopes: Vec<String>,
}

/// How a JWT is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// ECDSA over P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// All that there are.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];

    /// What is taken where the file does not say.
    pub const DEFAULT: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// As a token says it. RFC 7518, 3.1; RFC 8037, 3.1.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }
}
