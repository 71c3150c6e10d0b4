//! The keys of `server_info`.

use super::{Choice, Free, Key, Nested, Table};

pub(crate) static SERVER_INFO_KEY: Key<Nested> =
    Key { name: "server_info", about: "What clients are told of the gateway.", form: Nested(&SERVER_INFO) };

/// What the gateway calls itself.
pub(crate) static SERVER_INFO: Table = Table {
    path: "server_info",
    about: "What clients are told of the gateway: the `serverInfo` of `initialize`, and of the results of the \
            modern revision. A client is told no more than its revision knows: `title` since 2025-06-18, \
            `description`, `website_url` and `icons` since 2025-11-25.",
    keys: &[&INFO_NAME, &INFO_TITLE, &INFO_VERSION, &INFO_DESCRIPTION, &INFO_WEBSITE, &INFO_ICONS],
    later: &[],
    foreign: &[],
    aliases: &[("websiteUrl", "website_url"), ("url", "website_url"), ("icon", "icons")],
    example: "\
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
server_info:
  name: acme-tools
  title: Tools of Acme
  website_url: https://tools.acme.example
  icons: [{src: \"https://tools.acme.example/icon.png\", mime_type: image/png, sizes: [48x48]}]
",
};

pub(crate) static INFO_NAME: Key<Free> = Key {
    name: "name",
    about: "For programs.",
    form: Free { written: "text", default: "`waypost`", bounds: "1 to 256 bytes" },
};

pub(crate) static INFO_TITLE: Key<Free> = Key {
    name: "title",
    about: "For people.",
    form: Free { written: "text", default: "", bounds: "1 to 256 bytes" },
};

pub(crate) static INFO_VERSION: Key<Free> = Key {
    name: "version",
    about: "The version of what is served, where that has one of its own.",
    form: Free { written: "text", default: "that of Waypost", bounds: "1 to 256 bytes" },
};

pub(crate) static INFO_DESCRIPTION: Key<Free> = Key {
    name: "description",
    about: "What it is for.",
    form: Free { written: "text", default: "", bounds: "1 to 4096 bytes" },
};

pub(crate) static INFO_WEBSITE: Key<Free> = Key {
    name: "website_url",
    about: "Where people read more.",
    form: Free { written: "URL", default: "", bounds: "`http` or `https`, at most 2048 bytes" },
};

pub(crate) static INFO_ICONS: Key<Free> = Key {
    name: "icons",
    about: "Images that stand for it.",
    form: Free { written: "list of icons", default: "`[]`", bounds: "at most 16" },
};

/// One icon.
pub(crate) static ICON: Table = Table {
    path: "server_info.icons[]",
    about: "One image. They are sent with every result of the modern revision, so small files behind a URL serve \
            better than `data:`.",
    keys: &[&ICON_SRC, &ICON_MIME_TYPE, &ICON_SIZES, &ICON_THEME],
    later: &[],
    foreign: &[],
    aliases: &[("mimeType", "mime_type"), ("url", "src"), ("size", "sizes")],
    example: "",
};

pub(crate) static ICON_SRC: Key<Free> = Key {
    name: "src",
    about: "Where it is. Must be there.",
    form: Free { written: "URI", default: "", bounds: "`http`, `https` or `data`, at most 8192 bytes" },
};

pub(crate) static ICON_MIME_TYPE: Key<Free> = Key {
    name: "mime_type",
    about: "Its type, like `image/png`.",
    form: Free { written: "text", default: "", bounds: "1 to 256 bytes" },
};

pub(crate) static ICON_SIZES: Key<Free> = Key {
    name: "sizes",
    about: "At which sizes it can be shown: `48x48`, or `any`.",
    form: Free { written: "list of texts", default: "`[]`, which is any", bounds: "at most 16" },
};

pub(crate) static ICON_THEME: Key<Choice> = Key {
    name: "theme",
    about: "On which background it is to stand; without the key on any.",
    form: Choice { words: &["light", "dark"], default: "" },
};
