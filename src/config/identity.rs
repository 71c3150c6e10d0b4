//! What the gateway calls itself towards clients.

/// The `Implementation` that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// For programs. Default `waypost`.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// Default that of Waypost.
    pub version: String,
    /// What it is for.
    pub description: Option<String>,
    /// `http` or `https`.
    pub website_url: Option<String>,
    /// Images that stand for it.
    pub icons: Vec<Icon>,
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icon {
    /// `http`, `https` or `data`.
    pub src: String,
    /// Where `src` does not say it.
    pub mime_type: Option<String>,
    /// Each `WxH` or `any`; none is any.
    pub sizes: Vec<String>,
    /// `light` or `dark`.
    pub theme: Option<&'static str>,
}

impl Default for ServerInfo {
    fn default() -> Self {
        Self {
            name: env!("CARGO_PKG_NAME").to_owned(),
            title: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: None,
            website_url: None,
            icons: Vec::new(),
        }
    }
}
