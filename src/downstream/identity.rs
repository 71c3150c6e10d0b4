//! What the gateway calls itself, as each revision has it.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::config::{Icon, ServerInfo};
use crate::mcp::ProtocolVersion;

/// The `Implementation` of the gateway, written once.
#[derive(Debug)]
pub(super) struct Identity {
    /// One for each of [`ProtocolVersion::ALL`].
    written: [Bytes; ProtocolVersion::ALL.len()],
    newest: Bytes,
}

impl Identity {
    pub(super) fn new(info: &ServerInfo) -> Self {
        let written = ProtocolVersion::ALL.map(|version| write(info, version));
        let newest = write(info, ProtocolVersion::NEWEST);
        Self { written, newest }
    }

    /// As a client of this revision may be told.
    pub(super) fn at(&self, version: ProtocolVersion) -> Bytes {
        let mut all = ProtocolVersion::ALL.iter().zip(&self.written);
        all.find(|(known, _)| **known == version).map_or(&self.newest, |(_, written)| written).clone()
    }

    /// As clients of the newest revision are told.
    pub(super) fn newest(&self) -> Bytes {
        self.newest.clone()
    }
}

fn write(info: &ServerInfo, version: ProtocolVersion) -> Bytes {
    let mut object = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        object.extend(value.map(|value| (key.to_owned(), value)));
    };
    put("name", Some(info.name.clone().into()));
    put("version", Some(info.version.clone().into()));
    if version.has_titles() {
        put("title", info.title.clone().map(Value::from));
    }
    if version.has_icons() {
        put("description", info.description.clone().map(Value::from));
        put("websiteUrl", info.website_url.clone().map(Value::from));
        put("icons", (!info.icons.is_empty()).then(|| info.icons.iter().map(icon).collect()));
    }
    Bytes::from(Value::Object(object).to_string())
}

fn icon(icon: &Icon) -> Value {
    let mut object = json!({"src": icon.src});
    if let Some(members) = object.as_object_mut() {
        members.extend(icon.mime_type.clone().map(|text| ("mimeType".to_owned(), text.into())));
        if !icon.sizes.is_empty() {
            members.insert("sizes".to_owned(), icon.sizes.clone().into());
        }
        members.extend(icon.theme.map(|theme| ("theme".to_owned(), theme.into())));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_told_what_it_knows() {
        let icons = vec![Icon {
            src: "https://a.example/i.png".to_owned(),
            mime_type: None,
            sizes: vec!["any".to_owned()],
            theme: Some("dark"),
        }];
        let text = |text: &str| Some(text.to_owned());
        let info = ServerInfo {
            name: "n".to_owned(),
            title: text("t"),
            version: "7".to_owned(),
            description: text("d"),
            website_url: text("https://a.example"),
            icons,
        };
        let identity = Identity::new(&info);
        let told = |version| -> Value { serde_json::from_slice(&identity.at(version)).unwrap() };
        let least = json!({"name": "n", "version": "7"});
        assert_eq!(told(ProtocolVersion::V2024_11_05), least);
        assert_eq!(told(ProtocolVersion::V2025_03_26), least);
        assert_eq!(told(ProtocolVersion::V2025_06_18), json!({"name": "n", "version": "7", "title": "t"}));
        let icons = json!([{"src": "https://a.example/i.png", "sizes": ["any"], "theme": "dark"}]);
        let all = json!({"name": "n", "version": "7", "title": "t", "description": "d",
            "websiteUrl": "https://a.example", "icons": icons});
        assert_eq!(told(ProtocolVersion::V2025_11_25), all);
        assert_eq!(told(ProtocolVersion::V2026_07_28), all);
        assert_eq!(identity.newest(), identity.at(ProtocolVersion::V2026_07_28));
    }
}
