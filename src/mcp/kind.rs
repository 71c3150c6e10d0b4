//! The kinds of things that servers list, and one value for each of them.

use super::method::Method;

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`
    Tools,
    /// `prompts/list`
    Prompts,
    /// `resources/list`
    Resources,
    /// `resources/templates/list`
    Templates,
}

impl ListKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Tools, Self::Prompts, Self::Resources, Self::Templates];

    /// The method that lists them.
    #[must_use]
    pub fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::Templates => Method::TemplatesList,
        }
    }

    /// The member of the result that holds the entries.
    #[must_use]
    pub fn entries_key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
        }
    }

    /// The member of an entry that says which one it is.
    #[must_use]
    pub fn name_key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::Templates => "uriTemplate",
        }
    }

    /// The capability of a server that has them.
    #[must_use]
    pub fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::Templates => "resources",
        }
    }

    /// The notification that says that the list has changed. Templates share that of the resources.
    #[must_use]
    pub fn changed(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources | Self::Templates => "notifications/resources/list_changed",
        }
    }

    /// The member of a subscription's filter that asks for that notification.
    #[must_use]
    pub fn filter(self) -> &'static str {
        match self {
            Self::Tools => "toolsListChanged",
            Self::Prompts => "promptsListChanged",
            Self::Resources | Self::Templates => "resourcesListChanged",
        }
    }

    /// What one of them is called.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::Templates => "resource template",
        }
    }
}

/// One value for each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kinds say it")]
pub struct PerKind<T> {
    pub tools: T,
    pub prompts: T,
    pub resources: T,
    pub templates: T,
}

impl<T> PerKind<T> {
    /// Makes the value of each kind, in the order of [`ListKind::ALL`].
    pub fn of(mut make: impl FnMut(ListKind) -> T) -> Self {
        Self {
            tools: make(ListKind::Tools),
            prompts: make(ListKind::Prompts),
            resources: make(ListKind::Resources),
            templates: make(ListKind::Templates),
        }
    }

    /// The value of a kind.
    #[must_use]
    pub fn kind(&self, kind: ListKind) -> &T {
        match kind {
            ListKind::Tools => &self.tools,
            ListKind::Prompts => &self.prompts,
            ListKind::Resources => &self.resources,
            ListKind::Templates => &self.templates,
        }
    }

    /// The value of a kind, to change.
    pub fn kind_mut(&mut self, kind: ListKind) -> &mut T {
        match kind {
            ListKind::Tools => &mut self.tools,
            ListKind::Prompts => &mut self.prompts,
            ListKind::Resources => &mut self.resources,
            ListKind::Templates => &mut self.templates,
        }
    }
}
