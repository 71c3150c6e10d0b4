//! The methods that a client may send, in one table.

use super::kind::ListKind;

/// How a request finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Answered by Waypost itself.
    Local,
    /// Answered from the catalog.
    List(ListKind),
    /// Goes to the upstream that offers `params.name`.
    Name(ListKind),
    /// Goes to the upstream that offers `params.uri`.
    Uri,
    /// Goes to the upstream that offers what `params.ref` names.
    Reference,
    /// Goes to the upstream that has the extension.
    Extension,
    /// Goes to the upstream that has the task `params.taskId`.
    Task,
    /// Goes to every upstream that lists tasks, one page after the other.
    Tasks,
}

macro_rules! methods {
    ($($variant:ident $text:literal $routing:expr;)*) => {
        /// A method that Waypost knows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the wire name of each says it")]
        pub enum Method {
            $($variant,)*
            /// A method of an extension that Waypost does not know. Its name stands in the request only: a name
            /// that a peer chose is no label.
            Extension,
        }

        impl Method {
            /// All methods with a name of their own.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The method with this name on the wire.
            #[must_use]
            pub fn known(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }

            /// The method with this name on the wire; [`Self::Extension`] where there is none.
            #[must_use]
            pub fn of(text: &str) -> Self {
                Self::known(text).unwrap_or(Self::Extension)
            }

            /// The name on the wire, and in metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* Self::Extension => "extension" }
            }

            /// The capability of a server that the method belongs to, where it belongs to one.
            #[must_use]
            pub fn capability(self) -> Option<&'static str> {
                match (self.routing(), self) {
                    (_, Self::SetLevel) => Some("logging"),
                    (_, Self::ResourcesUnsubscribe) => Some(ListKind::Resources.capability()),
                    (Routing::List(kind) | Routing::Name(kind), _) => Some(kind.capability()),
                    (Routing::Uri, _) => Some(ListKind::Resources.capability()),
                    (Routing::Reference, _) => Some("completions"),
                    (Routing::Local | Routing::Extension | Routing::Task | Routing::Tasks, _) => None,
                }
            }

            /// How a request with this method finds its way.
            #[must_use]
            pub fn routing(self) -> Routing {
                match self { $(Self::$variant => $routing,)* Self::Extension => Routing::Extension }
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
    PromptsList "prompts/list" Routing::List(ListKind::Prompts);
    PromptsGet "prompts/get" Routing::Name(ListKind::Prompts);
    ResourcesList "resources/list" Routing::List(ListKind::Resources);
    TemplatesList "resources/templates/list" Routing::List(ListKind::Templates);
    ResourcesRead "resources/read" Routing::Uri;
    ResourcesSubscribe "resources/subscribe" Routing::Uri;
    ResourcesUnsubscribe "resources/unsubscribe" Routing::Local;
    Complete "completion/complete" Routing::Reference;
    TasksGet "tasks/get" Routing::Task;
    TasksResult "tasks/result" Routing::Task;
    TasksUpdate "tasks/update" Routing::Task;
    TasksCancel "tasks/cancel" Routing::Task;
    TasksList "tasks/list" Routing::Tasks;
}
