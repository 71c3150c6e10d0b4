//! Which rule denied something, for whoever writes it down.
//!
//! Must not know: who asks.

use super::{Entry, StepOutcome, find};
use crate::exchange::Principal;
use crate::gateway::Gateway;
use crate::gateway::admit::Named;
use crate::mcp::ListKind;

impl Gateway {
    /// The rule because of which a principal may not have what it named, and where it stands in the file.
    pub(in crate::gateway) fn denying_rule(
        &self,
        principal: &Principal,
        named: &Named,
    ) -> Option<(String, Option<String>)> {
        let (kind, name) = match named {
            Named::Name(kind, name) => (*kind, name),
            Named::Uri(uri) | Named::Reference(uri) => (ListKind::Resources, uri),
            Named::Method(_) => return None,
        };
        let entry = Entry { kind, name };
        let current = self.current.load();
        let snapshot = current.at(principal);
        let target = find(snapshot, entry).or_else(|| self.owner(principal.endpoint, entry))?;
        let mut steps = self.explain_rules((snapshot, principal), entry, &target).into_iter();
        let step = steps.find(|step| step.outcome == StepOutcome::Stop)?;
        Some((format!("{}: {}", step.check, step.text), step.place))
    }
}
