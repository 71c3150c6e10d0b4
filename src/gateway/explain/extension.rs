//! The same of an extension of the protocol: whether a client is promised it, and why not.
//!
//! Must not know: who asks, how the answer is shown.

use std::sync::Arc;

use super::{Findings, Rule, Step, Verdict, absence};
use crate::config::{ClientConfig, Layer, Pattern};
use crate::exchange::Principal;
use crate::gateway::extensions::Offered;
use crate::gateway::{Current, Gateway, Target};
use crate::mcp::extension;

impl Gateway {
    /// What is found out about an extension. Where several upstreams have it, it is about the first that the client
    /// may use, or else the first of them.
    pub(super) fn explain_extension(
        &self,
        current: &Current,
        (principal, client): (&Principal, &ClientConfig),
        id: &str,
    ) -> Findings {
        let offered = self.extensions(current, principal);
        let having: Vec<&Offered> = offered.iter().filter(|offered| *offered.extension.id == *id).collect();
        let chosen = having.iter().find(|offered| offered.is_admitted).or_else(|| having.first());
        let mut steps = vec![self.explain_client(client)];
        let is_elsewhere = |other: usize| {
            let there = self.extensions(current, &Principal::new(0, "").at(other));
            having.is_empty() && there.iter().any(|offered| *offered.extension.id == *id)
        };
        steps.extend(self.explain_endpoint(principal.endpoint, is_elsewhere));
        steps.push(self.explain_declared(current, principal, &having));
        let Some(chosen) = chosen else {
            return Findings { verdict: Verdict::Unknown, target: None, steps };
        };
        steps.extend(self.explain_extension_rules(principal, chosen.upstream, id));
        if extension::is_known(id) {
            steps.push(self.explain_uses(current, principal, chosen.upstream));
        }
        steps.extend(self.explain_upstream(current, chosen.upstream));
        steps.extend(self.explain_breaker(chosen.upstream, None));
        steps.extend(self.explain_limits(client, chosen.upstream));
        let verdict = match chosen.is_admitted {
            true => self.presence(current, chosen.upstream, None),
            false => Verdict::Denied,
        };
        let target = Target { upstream: chosen.upstream, native: id.into() };
        Findings { verdict, target: Some(target), steps }
    }

    /// Who declares it; where nobody does, of whom that is not known.
    fn explain_declared(&self, current: &Current, principal: &Principal, having: &[&Offered]) -> Step {
        let name = |upstream: usize| self.config.upstreams.get(upstream).map(|one| format!("`{}`", one.name));
        let names: Vec<String> = having.iter().filter_map(|offered| name(offered.upstream)).collect();
        match names.as_slice() {
            [] => {}
            [one] => return Step::pass("extensions", format!("{one} declares it")),
            many => return Step::pass("extensions", format!("{} declare it", many.join(", "))),
        }
        let unknown: Vec<String> = self
            .offers_at(current, principal)
            .filter_map(|(upstream, offer)| Some(format!("`{}` {}", upstream.name, absence(&offer.health)?)))
            .collect();
        let unknown = match unknown.as_slice() {
            [] => String::new(),
            some => format!("; not known of all: {}", some.join(", ")),
        };
        Step::stop("extensions", format!("no upstream declares an extension of this identifier{unknown}"))
    }

    fn explain_extension_rules(&self, principal: &Principal, upstream: usize, id: &str) -> Vec<Step> {
        let owner = self.config.upstreams.get(upstream).map(|upstream| upstream.layer());
        let layers = self.config.layers(principal.endpoint, principal.client, &principal.roles);
        let is_said = |layer: &Layer<'_>| {
            layer.section != "endpoints" || layer.rules.line > 0 || !layer.rules.is_open()
        };
        let others = layers.into_iter().flatten().filter(is_said);
        owner.into_iter().chain(others).map(|layer| self.explain_extension_layer(layer, id)).collect()
    }

    /// What `admits` of extensions says, in words.
    fn explain_extension_layer(&self, layer: Layer<'_>, id: &str) -> Step {
        let check = format!("{}.{}.extensions", layer.section, layer.name);
        let Some(filter) = &layer.rules.extensions else {
            return match (extension::is_known(id), layer.rules.is_open()) {
                (true, _) => Step::pass(check, "no rules; each of its uses is judged by itself".to_owned()),
                (false, true) => Step::pass(check, "no rules".to_owned()),
                (false, false) => Step::stop(
                    check,
                    "its rules about tools, resources or prompts cannot judge an extension; say so here"
                        .to_owned(),
                )
                .at(self.place(layer.rules.line)),
            };
        };
        let (text, line) = match filter.judge(id) {
            Rule::Denied(pattern) => (format!("`deny` has `{pattern}`"), pattern.line()),
            Rule::NotAllowed => {
                let first = filter.allow.iter().flatten().next().map_or(layer.rules.line, Pattern::line);
                (format!("nothing in `allow` matches `{id}`"), first)
            }
            Rule::Allowed(pattern) => (format!("`allow` has `{pattern}`"), pattern.line()),
            Rule::Unrestricted => ("nothing in `deny` matches".to_owned(), 0),
        };
        let step = if filter.admits(id) { Step::pass(check, text) } else { Step::stop(check, text) };
        step.at(self.place(line))
    }

    /// An extension that is known is of use only with something of its upstream.
    fn explain_uses(&self, current: &Current, principal: &Principal, upstream: usize) -> Step {
        let name = self.config.upstreams.get(upstream).map(|one| Arc::clone(&one.name)).unwrap_or_default();
        match self.sees(current, principal, upstream) {
            true => Step::pass("lists", format!("the client sees something of `{name}`")),
            false => Step::stop("lists", format!("the client sees nothing in the lists of `{name}`")),
        }
    }
}
