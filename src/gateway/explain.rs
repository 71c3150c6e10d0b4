//! Why a client sees something or does not: the checks of a call, one by one, without the call.
//!
//! The verdict is that of the very function that admits calls; the steps beside it say what it looked at.
//!
//! Must not know: who asks, how the answer is shown.

mod denial;
mod extension;

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::admit::{self, Named};
use super::breaker::Spared;
use super::error::GatewayErrorKind;
use super::{Current, Gateway, Health, Target};
use crate::catalog::{Candidate, Snapshot, split_tag};
use crate::config::{CallLimits, ClientConfig, Layer, Pattern, Sight, Verdict as Rule};
use crate::exchange::Principal;
use crate::mcp::ListKind;

/// What is asked about, as clients name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which kind of thing.
    pub topic: Topic,
    /// Its exposed name, its URI, or its identifier.
    pub name: String,
    /// The path of the endpoint at which it is asked for; without it `/mcp`, or else the first of the file.
    pub endpoint: Option<String>,
}

/// Which kind of thing is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// What stands in a list: a tool, a prompt, or a resource.
    Listed(ListKind),
    /// An extension of the protocol.
    Extension,
}

/// An entry of a list that is asked about.
#[derive(Clone, Copy)]
struct Entry<'a> {
    kind: ListKind,
    name: &'a str,
}

/// The answer for one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The client, by its name in the configuration.
    pub client: String,
    /// The path of the endpoint.
    pub endpoint: String,
    /// `tool`, `prompt`, `resource` or `extension`.
    pub kind: String,
    /// What was asked about.
    pub name: String,
    /// What would become of a call now.
    pub verdict: Verdict,
    /// The upstream that it leads to, or would lead to.
    pub upstream: Option<String>,
    /// What the upstream calls it.
    pub native: Option<String>,
    /// The checks in their order, those after a failed one too.
    pub steps: Vec<Step>,
}

/// What would become of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is listed, and a call goes through, within the limits.
    Allowed,
    /// It is there, and a rule is against it.
    Denied,
    /// Nobody offers it.
    Unknown,
    /// The upstream that it belongs to is not there.
    Unavailable,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is checked: `upstream`, `list`, `limits`, or where the rule stands, like `roles.reader.tools`.
    pub check: String,
    /// How it ended.
    pub outcome: StepOutcome,
    /// In words.
    pub text: String,
    /// The file and the line that say so, where one does.
    pub place: Option<String>,
}

/// What was found out for one client.
struct Findings {
    verdict: Verdict,
    target: Option<Target>,
    steps: Vec<Step>,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It lets the call through.
    Pass,
    /// It stops the call.
    Stop,
    /// It is no check, or depends on more than is asked about.
    Note,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// There is no such client.
    #[error("no client is called `{name}`; there are: {}", known.join(", "))]
    NoClient {
        /// Who was asked for.
        name: String,
        /// Whom there is.
        known: Vec<String>,
    },
    /// There is no such endpoint.
    #[error("there is no endpoint `{path}`; there are: {}", known.join(", "))]
    NoEndpoint {
        /// The path that was asked for.
        path: String,
        /// The paths that there are.
        known: Vec<String>,
    },
}

impl Question {
    /// About a `tool`, a `prompt`, a `resource` or an `extension`; `None` for any other word.
    #[must_use]
    pub fn about(noun: &str, name: String) -> Option<Self> {
        let topics = [
            Topic::Listed(ListKind::Tools),
            Topic::Listed(ListKind::Prompts),
            Topic::Listed(ListKind::Resources),
            Topic::Extension,
        ];
        topics.into_iter().find(|topic| topic.noun() == noun).map(|topic| Self {
            topic,
            name,
            endpoint: None,
        })
    }
}

impl Topic {
    /// In a word.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Listed(kind) => kind.noun(),
            Self::Extension => "extension",
        }
    }
}

impl<'a> Entry<'a> {
    fn tool(self) -> Option<&'a str> {
        (self.kind == ListKind::Tools).then_some(self.name)
    }
}

impl Explanation {
    /// The first check that stops the call.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.outcome == StepOutcome::Stop)
    }
}

impl Verdict {
    /// In a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::Unavailable => "unavailable",
        }
    }
}

impl Gateway {
    /// Says whether the client called `client` could call (get, read) something now, and why.
    ///
    /// # Errors
    /// If there is no such client, or no such endpoint.
    pub fn explain(&self, client: &str, question: &Question) -> Result<Explanation, Unanswerable> {
        let endpoint = self.asked_endpoint(question)?;
        let mut all = self.config.clients_there();
        let Some((place, config)) = all.find(|(_, config)| &*config.name == client) else {
            let known = self.config.clients_there().map(|(_, client)| client.name.to_string()).collect();
            return Err(Unanswerable::NoClient { name: client.to_owned(), known });
        };
        Ok(self.explain_to(endpoint, (place, config), question))
    }

    /// The same for every client, in the order of the configuration.
    ///
    /// # Errors
    /// If there is no such endpoint.
    pub fn explain_all(&self, question: &Question) -> Result<Vec<Explanation>, Unanswerable> {
        let endpoint = self.asked_endpoint(question)?;
        let clients = self.config.clients_there();
        Ok(clients.map(|client| self.explain_to(endpoint, client, question)).collect())
    }

    fn asked_endpoint(&self, question: &Question) -> Result<usize, Unanswerable> {
        self.config.endpoint(question.endpoint.as_deref()).ok_or_else(|| Unanswerable::NoEndpoint {
            path: question.endpoint.clone().unwrap_or_default(),
            known: self.config.endpoints_there().map(|(_, endpoint)| endpoint.path.to_string()).collect(),
        })
    }

    fn explain_to(
        &self,
        endpoint: usize,
        (place, client): (usize, &ClientConfig),
        question: &Question,
    ) -> Explanation {
        let current = self.current.load();
        let principal = Principal::new(place, Arc::clone(&client.name)).at(endpoint);
        let findings = match question.topic {
            Topic::Listed(kind) => {
                let entry = Entry { kind, name: &question.name };
                self.explain_entry(&current, (&principal, client), entry)
            }
            Topic::Extension => self.explain_extension(&current, (&principal, client), &question.name),
        };
        let upstream = findings.target.as_ref().and_then(|target| self.config.upstreams.get(target.upstream));
        Explanation {
            client: client.name.to_string(),
            endpoint: self.config.endpoint_path(endpoint).to_string(),
            kind: question.topic.noun().to_owned(),
            name: question.name.clone(),
            verdict: findings.verdict,
            upstream: upstream.map(|upstream| upstream.name.to_string()),
            native: findings.target.map(|target| target.native.to_string()),
            steps: findings.steps,
        }
    }

    fn explain_entry(
        &self,
        current: &Current,
        (principal, client): (&Principal, &ClientConfig),
        entry: Entry<'_>,
    ) -> Findings {
        let (snapshot, endpoint) = (current.at(principal), principal.endpoint);
        let found = find(snapshot, entry);
        let target = found.clone().or_else(|| self.owner(endpoint, entry));
        let mut steps = vec![self.explain_client(client)];
        let is_elsewhere = |other: usize| {
            found.is_none() && find(current.at(&Principal::new(0, "").at(other)), entry).is_some()
        };
        steps.extend(self.explain_endpoint(endpoint, is_elsewhere));
        let known = (found.as_ref(), target.as_ref());
        steps.push(self.explain_list((current, snapshot), entry, known));
        if let Some(target) = &target {
            steps.extend(self.explain_rules((snapshot, principal), entry, target));
            if entry.kind == ListKind::Tools {
                let narrows = self.narrows(current, principal, target).into_iter();
                steps.extend(narrows.map(|narrow| {
                    let text =
                        format!("the arguments have to fit {} (`{}`)", narrow.schema(), narrow.pattern);
                    Step::note("narrow", text).at(self.place(narrow.pattern.line()))
                }));
            }
            steps.extend(self.explain_upstream(current, target.upstream));
            steps.extend(self.explain_breaker(target.upstream, entry.tool()));
            steps.extend(self.explain_limits(client, target.upstream));
        }
        Findings { verdict: self.verdict(current, principal, entry), target, steps }
    }

    /// What admits calls says.
    fn verdict(&self, current: &Current, principal: &Principal, entry: Entry<'_>) -> Verdict {
        let named = match entry.kind {
            ListKind::Resources | ListKind::Templates => Named::Uri(entry.name.to_owned()),
            kind @ (ListKind::Tools | ListKind::Prompts) => Named::Name(kind, entry.name.to_owned()),
        };
        match admit::grant(self, current, principal, &named, &mut admit::Findings::default()) {
            Ok(grant) => self.presence(current, grant.target.upstream, entry.tool()),
            Err(refusal) if refusal.kind == GatewayErrorKind::Denied => Verdict::Denied,
            Err(refusal) if refusal.kind == GatewayErrorKind::Unavailable => Verdict::Unavailable,
            Err(_) => Verdict::Unknown,
        }
    }

    /// The verdict on what is admitted: whether its upstream is there.
    fn presence(&self, current: &Current, upstream: usize, tool: Option<&str>) -> Verdict {
        let is_there = current.offers.get(upstream).is_some_and(|offer| offer.health.takes_calls());
        match is_there && self.spared(upstream, tool).is_none() {
            true => Verdict::Allowed,
            false => Verdict::Unavailable,
        }
    }

    /// The upstream whose prefix or tag the name has, whether or not it lists it.
    fn owner(&self, endpoint: usize, entry: Entry<'_>) -> Option<Target> {
        let of = |upstream: usize, native: &str| Target { upstream, native: native.into() };
        match entry.kind {
            ListKind::Tools | ListKind::Prompts => {
                let mut under = self.config.order.iter().copied().filter_map(|upstream| {
                    let names = self.names_at(endpoint, upstream)?;
                    names.under_prefix(entry.name).map(|native| (upstream, native))
                });
                let named = under.clone().find(|(_, native)| native.len() < entry.name.len());
                named.or_else(|| under.next()).map(|(upstream, native)| of(upstream, native))
            }
            ListKind::Resources | ListKind::Templates => {
                let (native, label) = split_tag(entry.name)?;
                let upstream = self.config.upstreams_in_order().find(|upstream| &*upstream.name == label)?;
                self.names_at(endpoint, upstream.index).map(|_| of(upstream.index, native))
            }
        }
    }

    /// Which endpoint it is, where there are several, and whether its upstreams are the ones that have it.
    fn explain_endpoint(&self, endpoint: usize, is_elsewhere: impl Fn(usize) -> bool) -> Option<Step> {
        let config =
            self.config.endpoints.get(endpoint).filter(|_| self.config.endpoints_there().count() > 1)?;
        let place = self.place(config.rules.line);
        let elsewhere = self.config.endpoints_there().filter(|(other, _)| is_elsewhere(*other));
        let elsewhere: Vec<String> = elsewhere.map(|(_, other)| format!("`{}`", other.path)).collect();
        let text = match elsewhere.as_slice() {
            [] => format!("`{}`", config.path),
            others => format!("`{}`; what is called so is at {}", config.path, others.join(", ")),
        };
        Some(Step::note("endpoint", text).at(place))
    }

    fn explain_client(&self, client: &ClientConfig) -> Step {
        let roles: Vec<String> = client.roles.iter().map(|role| format!("`{}`", role.name)).collect();
        let text = match roles.as_slice() {
            [] => "it has no roles".to_owned(),
            [one] => format!("it has the role {one}"),
            many => format!("it has the roles {}", many.join(", ")),
        };
        Step::note("client", text).at(self.place(client.rules.line))
    }

    fn explain_upstream(&self, current: &Current, upstream: usize) -> Option<Step> {
        let (config, offer) = (self.config.upstreams.get(upstream)?, current.offers.get(upstream)?);
        let step = match absence(&offer.health) {
            Some(absence) => Step::stop("upstream", format!("`{}` {absence}", config.name)),
            None => {
                let version = offer.protocol_version.unwrap_or("its version is not known");
                Step::pass("upstream", format!("`{}` is ready ({version})", config.name))
            }
        };
        Some(step.at(self.place(config.rules.line)))
    }

    /// Whether it is in the lists, and if not, what comes close.
    fn explain_list(
        &self,
        (current, snapshot): (&Current, &Snapshot),
        entry: Entry<'_>,
        (found, owner): (Option<&Target>, Option<&Target>),
    ) -> Step {
        let (noun, name) = (entry.kind.noun(), entry.name);
        let upstream =
            |target: &Target| self.config.upstreams.get(target.upstream).map(|u| Arc::clone(&u.name));
        if let Some((target, label)) = found.and_then(|target| Some((target, upstream(target)?))) {
            let is_listed = snapshot.find(entry.kind, name).is_some();
            let native = &target.native;
            return Step::pass(
                "list",
                match is_listed {
                    true => format!("`{label}` lists it as `{native}`"),
                    false => format!("`{label}` has a template of resources that makes `{native}`"),
                },
            );
        }
        let text = match owner.and_then(|owner| Some((owner, upstream(owner)?))) {
            Some((owner, label)) => self.explain_absence((current, snapshot), entry, (owner, &label)),
            None => format!("no upstream has a {noun} of this name"),
        };
        // Where a list is not known, what is close in the others is most likely not meant.
        let is_known = owner.is_none_or(|owner| {
            current.offers.get(owner.upstream).is_some_and(|offer| absence(&offer.health).is_none())
        });
        let nearest = nearest(snapshot, entry).filter(|_| is_known);
        let nearest = nearest.map(|nearest| format!("; did you mean `{nearest}`?"));
        Step::stop("list", text + nearest.as_deref().unwrap_or_default())
    }

    /// Why an upstream does not list what stands under its name.
    fn explain_absence(
        &self,
        (current, snapshot): (&Current, &Snapshot),
        entry: Entry<'_>,
        (owner, label): (&Target, &str),
    ) -> String {
        let native = &owner.native;
        let mut findings = snapshot.findings.iter();
        let is_it = |upstream: usize, name: &str| upstream == owner.upstream && *name == **native;
        if let Some(finding) = findings.find(|finding| is_it(finding.upstream, &finding.native)) {
            return format!("left out of the list of `{label}`: {}", finding.reason);
        }
        let offer = current.offers.get(owner.upstream);
        match offer.and_then(|offer| absence(&offer.health)) {
            Some(absence) => format!("what `{label}` lists is not known: it {absence}"),
            None => {
                let count = offer.map_or(0, |offer| offer.lists.kind(entry.kind).entries.len());
                format!("`{label}` has no {} `{native}` among the {count} that it lists", entry.kind.noun())
            }
        }
    }

    /// What each layer says: that of the upstream over the native name, the others over the one that rules know.
    fn explain_rules(
        &self,
        (snapshot, principal): (&Snapshot, &Principal),
        entry: Entry<'_>,
        target: &Target,
    ) -> Vec<Step> {
        let (Some(upstream), Some(names)) =
            (self.config.upstreams.get(target.upstream), self.names.get(target.upstream))
        else {
            return Vec::new();
        };
        let (kind, native) = (entry.kind, &*target.native);
        let listed = snapshot.find_native(kind, target.upstream, native);
        let known = names.expose(native);
        let hints = listed.map_or(Sight::Unseen, |entry| Sight::Seen(entry.hints));
        let beyond = match kind {
            ListKind::Tools | ListKind::Prompts => Candidate { kind, native, known: &known, hints },
            ListKind::Resources | ListKind::Templates => Candidate::uri(kind, native),
        };
        let within = Candidate { known: native, ..beyond };
        let first = self.explain_layer(upstream.layer(), within);
        let layers = self.config.layers(principal.endpoint, principal.client, &principal.roles);
        let is_said = |layer: &Layer<'_>| {
            layer.section != "endpoints" || layer.rules.line > 0 || !layer.rules.is_open()
        };
        let others =
            layers.into_iter().flatten().filter(is_said).map(|layer| self.explain_layer(layer, beyond));
        std::iter::once(first).chain(others).collect()
    }

    fn explain_layer(&self, layer: Layer<'_>, candidate: Candidate<'_>) -> Step {
        let key = match candidate.kind {
            ListKind::Tools => "tools",
            ListKind::Prompts => "prompts",
            ListKind::Resources | ListKind::Templates => "resources",
        };
        let check = format!("{}.{}.{key}", layer.section, layer.name);
        let filter = layer.rules.filter(candidate.kind);
        let is_admitted = candidate.passes(filter);
        let (text, line) = match candidate.judged(filter) {
            Rule::Denied(pattern) => (format!("`deny` has `{pattern}`"), pattern.line()),
            Rule::NotAllowed => {
                let first = filter.allow.iter().flatten().next().map_or(layer.rules.line, Pattern::line);
                (format!("nothing in `allow` matches `{}`", candidate.subject().name), first)
            }
            Rule::Unrestricted | Rule::Allowed(_) if !is_admitted => {
                ("another spelling of the URI is denied or not allowed".to_owned(), layer.rules.line)
            }
            Rule::Allowed(pattern) => (format!("`allow` has `{pattern}`"), pattern.line()),
            Rule::Unrestricted if filter.deny.is_empty() => ("no rules".to_owned(), 0),
            Rule::Unrestricted => ("nothing in `deny` matches".to_owned(), 0),
        };
        let step = if is_admitted { Step::pass(check, text) } else { Step::stop(check, text) };
        step.at(self.place(line))
    }

    /// What is not called now because it did not answer.
    fn spared(&self, upstream: usize, tool: Option<&str>) -> Option<Spared> {
        self.breakers.get(upstream)?.spared(tool, Instant::now())
    }

    fn explain_breaker(&self, upstream: usize, tool: Option<&str>) -> Option<Step> {
        let (what, wait) = match self.spared(upstream, tool)? {
            Spared::Upstream(wait) => ("its upstream is", wait),
            Spared::Tool(wait) => ("it alone is", wait),
        };
        let failures = self.breakers.get(upstream)?.threshold();
        let text = format!(
            "{what} not called for {} s: the last {failures} calls or more had no answer in time",
            wait.as_secs().max(1)
        );
        Some(Step::stop("breaker", text))
    }

    fn explain_limits(&self, client: &ClientConfig, upstream: usize) -> Vec<Step> {
        let upstream = self.config.upstreams.get(upstream);
        let limits = [
            Some((format!("clients.{}.limits", client.name), &client.limits)),
            upstream.map(|upstream| (format!("upstreams.{}.limits", upstream.name), &upstream.limits)),
        ];
        let limits = limits.into_iter().flatten().filter(|(_, limits)| **limits != CallLimits::default());
        limits.map(|(check, limits)| Step::note(check, in_words(limits))).collect()
    }

    fn place(&self, line: usize) -> Option<String> {
        (line > 0).then(|| format!("{}:{line}", self.config.file))
    }
}

impl Step {
    fn new(check: impl Into<String>, outcome: StepOutcome, text: String) -> Self {
        Self { check: check.into(), outcome, text, place: None }
    }

    fn pass(check: impl Into<String>, text: String) -> Self {
        Self::new(check, StepOutcome::Pass, text)
    }

    fn stop(check: impl Into<String>, text: String) -> Self {
        Self::new(check, StepOutcome::Stop, text)
    }

    fn note(check: impl Into<String>, text: String) -> Self {
        Self::new(check, StepOutcome::Note, text)
    }

    fn at(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }
}

/// Where the snapshot has it.
fn find(snapshot: &Snapshot, entry: Entry<'_>) -> Option<Target> {
    match entry.kind {
        ListKind::Tools | ListKind::Prompts => {
            let (_, entry) = snapshot.find(entry.kind, entry.name)?;
            Some(Target { upstream: entry.upstream, native: Arc::clone(&entry.native) })
        }
        ListKind::Resources | ListKind::Templates => {
            let location = snapshot.locate(entry.name)?;
            Some(Target { upstream: location.upstream, native: location.native })
        }
    }
}

/// The exposed name that comes closest.
fn nearest<'a>(snapshot: &'a Snapshot, entry: Entry<'_>) -> Option<&'a str> {
    let entries = snapshot.entries(entry.kind).iter();
    let asked = entry.name.to_ascii_lowercase();
    let distances = entries.map(|entry| {
        let exposed = entry.exposed.to_ascii_lowercase();
        // A name without its prefix is what people ask for first.
        let bare = entry.native.to_ascii_lowercase();
        let distance = strsim::osa_distance(&exposed, &asked).min(strsim::osa_distance(&bare, &asked));
        (distance, &*entry.exposed)
    });
    let closest = distances.min_by_key(|(distance, _)| *distance);
    closest.filter(|(distance, _)| *distance <= (asked.len() / 4).max(1)).map(|(_, name)| name)
}

/// What an upstream does that does not answer.
fn absence(health: &Health) -> Option<String> {
    match health {
        Health::Ready | Health::Idle => None,
        Health::Connecting => Some("is still connecting".to_owned()),
        Health::Down { reason, retry_at, .. } => {
            let wait = retry_at.saturating_duration_since(Instant::now()).as_secs();
            Some(format!("is down: {reason}; the next try is in {wait} s"))
        }
    }
}

fn in_words(limits: &CallLimits) -> String {
    let rate = limits.rate.map(|rate| rate.to_string());
    let burst = limits.burst.map(|burst| format!("{burst} at once"));
    let concurrency = limits.concurrency.map(|count| format!("{count} in flight"));
    rate.into_iter().chain(burst).chain(concurrency).collect::<Vec<_>>().join(", ")
}
