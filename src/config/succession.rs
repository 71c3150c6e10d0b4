//! A configuration in the place of an earlier one: whatever keeps its name keeps its place, so that whoever remembers
//! a place means the same by it. What is no longer there leaves an empty place: a client that may nothing, a role and
//! an endpoint that let nothing through, an upstream that no endpoint has.
//!
//! Must not know: what is done about a change.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::{ClientConfig, Config, EndpointConfig, Filter, Http, JwtIssuer, RoleConfig, Rules, Transport};
use super::{Resilience, Sessions, Stdio, UpstreamConfig};

/// Names of one kind that there may have been since the start. Places are not given away again.
const MOST: usize = 10_000;

/// More names than there are places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("since the start there were more than {MOST} different {0}: start anew")]
pub struct TooMany(&'static str);

/// The places of what stands in a list, in its order, and how many there are.
struct Places {
    of: Vec<usize>,
    count: usize,
}

impl Places {
    fn new<T>(
        what: &'static str,
        (before, now): (&[T], &[T]),
        name: impl Fn(&T) -> &str,
    ) -> Result<Self, TooMany> {
        let mut count = before.len();
        let place = |item: &T| {
            let found = before.iter().position(|earlier| name(earlier) == name(item));
            found.unwrap_or_else(|| {
                count += 1;
                count - 1
            })
        };
        let of = now.iter().map(place).collect();
        if count > MOST { Err(TooMany(what)) } else { Ok(Self { of, count }) }
    }

    fn of(&self, place: usize) -> usize {
        self.of.get(place).copied().unwrap_or(usize::MAX)
    }

    /// Puts everything in its place, and something else where nothing is.
    fn settle<T>(&self, items: Vec<T>, gone: impl Fn(usize) -> Option<T>) -> Vec<T> {
        let mut slots: Vec<Option<T>> = (0..self.count).map(|_| None).collect();
        for (place, item) in self.of.iter().zip(items) {
            if let Some(slot) = slots.get_mut(*place) {
                *slot = Some(item);
            }
        }
        slots.into_iter().enumerate().filter_map(|(place, slot)| slot.or_else(|| gone(place))).collect()
    }

    fn has_gaps(&self) -> bool {
        self.of.len() < self.count
    }
}

impl Config {
    /// The upstreams that there are, in the order of the file.
    pub fn upstreams_in_order(&self) -> impl Iterator<Item = &Arc<UpstreamConfig>> + Clone {
        self.order.iter().filter_map(|place| self.upstreams.get(*place))
    }

    /// The clients that there are, and their places.
    pub fn clients_there(&self) -> impl Iterator<Item = (usize, &ClientConfig)> {
        self.clients.iter().enumerate().filter(|(_, client)| !client.name.is_empty())
    }

    /// The endpoints that there are, and their places.
    pub fn endpoints_there(&self) -> impl Iterator<Item = (usize, &Arc<EndpointConfig>)> {
        self.endpoints.iter().enumerate().filter(|(_, endpoint)| !endpoint.path.is_empty())
    }

    /// The same configuration in the place of `before`: what has the same name has the same place, and what only a
    /// start can change is as it was. The second value names the keys of which that is so although the file says
    /// something else.
    ///
    /// # Errors
    /// If there have been too many names.
    pub fn in_place_of(mut self, before: &Self) -> Result<(Self, Vec<&'static str>), TooMany> {
        let upstreams =
            Places::new("upstreams", (&before.upstreams, &self.upstreams), |upstream| &upstream.name)?;
        let endpoints =
            Places::new("endpoints", (&before.endpoints, &self.endpoints), |endpoint| &endpoint.path)?;
        let roles = Places::new("roles", (&before.roles, &self.roles), |role| &role.name)?;
        let clients = Places::new("clients", (&before.clients, &self.clients), |client| &client.name)?;
        for endpoint in &mut self.endpoints {
            let endpoint = Arc::make_mut(endpoint);
            if let Some(shown) = &mut endpoint.upstreams {
                shown.iter_mut().for_each(|place| *place = upstreams.of(*place));
            } else if upstreams.has_gaps() {
                endpoint.upstreams = Some(upstreams.of.clone());
            }
            endpoint.prefixes.iter_mut().for_each(|(place, _)| *place = upstreams.of(*place));
        }
        let at = |place: usize, upstream: &Arc<UpstreamConfig>| UpstreamConfig {
            index: place,
            ..UpstreamConfig::clone(upstream)
        };
        let moved = self.upstreams.iter().enumerate();
        let moved = moved.map(|(place, upstream)| Arc::new(at(upstreams.of(place), upstream))).collect();
        self.upstreams = upstreams
            .settle(moved, |place| before.upstreams.get(place).map(|upstream| Arc::new(gone(upstream))));
        self.order = upstreams.of;
        self.endpoints = endpoints.settle(self.endpoints, |_| Some(Arc::new(nowhere())));
        self.roles = roles.settle(self.roles, |_| Some(Arc::new(no_role())));
        for issuer in &mut self.jwt {
            let issuer = Arc::make_mut(issuer);
            issuer.group.0 = clients.of(issuer.group.0);
        }
        self.clients = clients.settle(self.clients, |_| Some(nobody()));
        let kept = self.keep(before);
        Ok((self, kept))
    }

    /// Keeps what only a start can change, and names what of that should be something else.
    fn keep(&mut self, before: &Self) -> Vec<&'static str> {
        let mut kept = Vec::new();
        let mut keep = |is_same: bool, key: &'static str| {
            if !is_same {
                kept.push(key);
            }
        };
        keep(self.listen == before.listen && self.listen_tls == before.listen_tls, "listen");
        keep(self.admin == before.admin && self.admin_tls == before.admin_tls, "admin");
        keep(self.demo == before.demo, "demo");
        let edge = self.limits.edge.clone();
        self.limits.edge.clone_from(&before.limits.edge);
        keep(self.limits == before.limits, "limits");
        keep(is_same_sessions(&self.sessions, &before.sessions), "sessions");
        keep(self.log == before.log, "log");
        keep(self.audit == before.audit, "audit");
        (self.listen, self.listen_tls) = (before.listen, before.listen_tls.clone());
        (self.admin, self.admin_tls) = (before.admin, before.admin_tls.clone());
        (self.is_admin_named, self.demo) = (before.is_admin_named, before.demo);
        self.limits = before.limits.clone();
        self.limits.edge = edge;
        self.sessions = before.sessions.clone();
        self.log = before.log.clone();
        self.audit.clone_from(&before.audit);
        kept
    }
}

/// What an upstream leaves behind.
fn gone(upstream: &UpstreamConfig) -> UpstreamConfig {
    UpstreamConfig { name: "".into(), prefix: String::new(), rules: nothing(), ..upstream.clone() }
}

fn nowhere() -> EndpointConfig {
    let path = "".into();
    EndpointConfig { path, upstreams: Some(Vec::new()), rules: nothing(), ..EndpointConfig::default() }
}

fn no_role() -> RoleConfig {
    RoleConfig { name: "".into(), rules: nothing() }
}

fn nobody() -> ClientConfig {
    ClientConfig { name: "".into(), rules: nothing(), ..ClientConfig::default() }
}

/// Rules that let nothing through.
fn nothing() -> Rules {
    let none = || Filter { allow: Some(Vec::new()), deny: Vec::new(), ..Filter::default() };
    Rules { tools: none(), resources: none(), prompts: none(), extensions: Some(none()), line: 0 }
}

fn is_same_sessions(one: &Sessions, other: &Sessions) -> bool {
    let Sessions { idle_timeout, keep_alive, resume_window, key } = one;
    (*idle_timeout, *keep_alive, *resume_window)
        == (other.idle_timeout, other.keep_alive, other.resume_window)
        && exposed(key.as_ref()) == exposed(other.key.as_ref())
}

fn exposed(secret: Option<&SecretString>) -> Option<&str> {
    secret.map(SecretString::expose_secret)
}

impl UpstreamConfig {
    /// Whether a connection that was made for `other` is one for this: whatever is not the gateway's own business is
    /// the same.
    #[must_use]
    pub fn has_connection_of(&self, other: &Self) -> bool {
        let Self {
            name,
            index: _,
            transport,
            era,
            prefix: _,
            rules: _,
            timeout,
            connect_timeout,
            list_timeout,
            grace,
            refresh,
            sharing,
            resilience,
            limits: _,
        } = self;
        *name == other.name
            && *era == other.era
            && (*timeout, *connect_timeout, *list_timeout, *grace, *refresh)
                == (other.timeout, other.connect_timeout, other.list_timeout, other.grace, other.refresh)
            && *sharing == other.sharing
            && is_same_care(resilience, &other.resilience)
            && is_same_transport(transport, &other.transport)
    }
}

fn is_same_care(one: &Resilience, other: &Resilience) -> bool {
    let Resilience { stream_idle, max_timeout, timeouts, health, breaker: _, retry: _ } = one;
    (stream_idle, max_timeout, timeouts, health)
        == (&other.stream_idle, &other.max_timeout, &other.timeouts, &other.health)
}

fn is_same_transport(one: &Transport, other: &Transport) -> bool {
    match (one, other) {
        (Transport::Stdio(one), Transport::Stdio(other)) => {
            let Stdio { command, args, env, cwd, process } = one;
            (command, args, cwd, process) == (&other.command, &other.args, &other.cwd, &other.process)
                && is_same_pairs(env, &other.env)
        }
        (Transport::Http(one), Transport::Http(other)) => {
            let Http { url, headers, kind, oauth, way } = one;
            let secret =
                |http: &Http| http.oauth.as_ref().map(|oauth| oauth.client_secret.expose_secret().to_owned());
            (url, kind, way) == (&other.url, &other.kind, &other.way)
                && is_same_pairs(headers, &other.headers)
                && secret(one) == secret(other)
                && format!("{oauth:?}") == format!("{:?}", other.oauth)
        }
        (Transport::Stdio(_), Transport::Http(_)) | (Transport::Http(_), Transport::Stdio(_)) => false,
    }
}

fn is_same_pairs<K: PartialEq>(one: &[(K, SecretString)], other: &[(K, SecretString)]) -> bool {
    let is_same = |((name, value), (other_name, other)): (&(K, SecretString), &(K, SecretString))| {
        name == other_name && value.expose_secret() == other.expose_secret()
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

impl JwtIssuer {
    /// Whether its keys are those of `other`.
    #[must_use]
    pub fn has_keys_of(&self, other: &Self) -> bool {
        (&self.issuer, &self.jwks_url, &self.way, &self.algorithms, self.refresh)
            == (&other.issuer, &other.jwks_url, &other.way, &other.algorithms, other.refresh)
            && self.group.1 == other.group.1
    }
}

#[cfg(test)]
mod tests;
