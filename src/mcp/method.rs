//! The methods that a client may send, in one table.

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`
    Tools,
}

impl ListKind {
    /// All lists.
    pub const ALL: &'static [Self] = &[Self::Tools];

    /// The notification that says that the list has changed.
    #[must_use]
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
        }
    }

    /// The member of a subscription's filter that asks for that notification.
    #[must_use]
    pub fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
        }
    }
}

/// How a request finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Answered by Waypost itself.
    Local,
    /// Answered from the catalog.
    List(ListKind),
    /// Goes to the upstream that offers `params.name`.
    Name(ListKind),
}

macro_rules! methods {
    ($($variant:ident $text:literal $routing:expr;)*) => {
        /// A method that Waypost knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the wire name of each says it")]
        pub enum Method { $($variant,)* }

        impl Method {
            /// All methods.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The method with this name on the wire.
            #[must_use]
            pub fn known(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }

            /// The name on the wire.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// How a request with this method finds its way.
            #[must_use]
            pub fn routing(self) -> Routing {
                match self { $(Self::$variant => $routing,)* }
            }
        }
    };
}

methods! {
    Initialize "initialize" Routing::Local;
    Ping "ping" Routing::Local;
    Discover "server/discover" Routing::Local;
    SetLevel "logging/setLevel" Routing::Local;
    Listen "subscriptions/listen" Routing::Local;
    ToolsList "tools/list" Routing::List(ListKind::Tools);
    ToolsCall "tools/call" Routing::Name(ListKind::Tools);
}
