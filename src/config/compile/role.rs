//! Roles, and which of them a client has.

use std::collections::HashMap;
use std::sync::Arc;

use super::access;
use super::client::{RULES, check_name, check_upstream};
use crate::config::effective::Block;
use crate::config::nearest::nearest;
use crate::config::reference as keys;
use crate::config::section::{Section, quoted};
use crate::config::source::Finding;
use crate::config::tree::Span;
use crate::config::{Naming, RoleConfig};

/// The roles of a file, and which of them somebody has.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    by_name: HashMap<String, Entry>,
    order: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    role: Arc<RoleConfig>,
    span: Span,
    is_used: bool,
}

/// Reads all roles.
pub(crate) fn roles(top: &mut Section<'_>, prefixes: &[String], naming: &Naming) -> Roles {
    let key = &keys::ROLES;
    let node = top.find(key.name);
    let entries =
        node.and_then(|node| top.reader.entries(node, &quoted(key.name), "a mapping of names to roles"));
    let mut roles = Roles::default();
    let mut block = Block::default();
    for (name, node) in entries.unwrap_or_default() {
        check_name(top, name, "a role");
        let what = format!("the role `{}`", name.text);
        let Some(entries) = top.reader.entries(node, &what, "a mapping of rules") else { continue };
        let mut section = Section::open(top.reader, &keys::ROLE, entries, name.span);
        let (rules, places) = access::rules(&mut section, &RULES);
        for (pattern, span) in places {
            check_upstream(top, pattern.literal_start(), span, prefixes, naming);
        }
        block.put_block(&name.text, section.finish());
        let role = Arc::new(RoleConfig { name: name.text.as_str().into(), rules });
        roles.by_name.insert(name.text.clone(), Entry { role, span: name.span, is_used: false });
        roles.order.push(name.text.clone());
    }
    if node.is_some() {
        top.out.put_block(key.name, block);
    } else {
        top.out.put_unset(key.name);
    }
    roles
}

impl Roles {
    /// Reads which roles a client has.
    pub(crate) fn of_client(&mut self, client: &mut Section<'_>) -> Vec<Arc<RoleConfig>> {
        let mut roles: Vec<Arc<RoleConfig>> = Vec::new();
        for text in client.texts(&keys::CLIENT_ROLES) {
            let Some(entry) = self.by_name.get_mut(&text.value) else {
                let known = self.order.iter().map(String::as_str);
                let finding = Finding::error(format!("no role is called `{}`", text.written.escape_debug()));
                let finding = finding.at(text.span);
                client.report(match nearest(known, &text.value) {
                    Some(nearest) => finding.help(format!("did you mean `{nearest}`?")),
                    None => finding.help("a role is a key under `roles`"),
                });
                continue;
            };
            entry.is_used = true;
            if roles.iter().any(|role| role.name == entry.role.name) {
                let finding = Finding::warning(format!("the role `{}` is named twice", text.written));
                client.report(finding.at(text.span).help("once is enough"));
                continue;
            }
            roles.push(Arc::clone(&entry.role));
        }
        roles
    }

    /// Somebody may have any of them.
    pub(crate) fn use_all(&mut self) {
        self.by_name.values_mut().for_each(|entry| entry.is_used = true);
    }

    /// All roles in the order of the file. Warns of those that nobody has.
    pub(crate) fn finish(self, top: &Section<'_>) -> Vec<Arc<RoleConfig>> {
        let entries = self.order.iter().filter_map(|name| self.by_name.get(name));
        let roles = entries.map(|entry| {
            if !entry.is_used {
                let finding = Finding::warning(format!("no client has the role `{}`", entry.role.name));
                top.report(finding.at(entry.span).help("write `roles` under a client, or take it out"));
            }
            Arc::clone(&entry.role)
        });
        roles.collect()
    }
}
