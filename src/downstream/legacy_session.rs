//! The sessions of legacy clients.
//!
//! The id is a sealed token that says what was agreed on, so any replica with the key can serve it. What
//! lives here is only what changes: the last use, the log level, and which ids have ended.
//!
//! Must not know: HTTP.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use dashmap::DashMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::departed::Departed;
use super::level::Level;
use super::listening::Place;
use crate::config::Config;
use crate::exchange::{CallerSession, Principal};
use crate::gateway::{Following, Seen};
use crate::mcp::{ObjectView, ProtocolVersion, Raw};
use crate::seal::{Purpose, SealError, Sealer};
use crate::telemetry::{Metrics, SessionClosed, SessionOpened, Table};
use crate::translate::from_legacy::{self, Asking, Handshake};

/// Bytes of capabilities, and of a client's description of itself, that go into a session id. The id is a
/// header of every request, so longer ones are cut down to their names.
const MAX_AGREED: usize = 1024;

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    /// Its id.
    pub(super) id: Arc<str>,
    /// What upstreams may know of it.
    pub(super) peer: Arc<CallerSession>,
    /// The name of the client that it belongs to.
    principal: Arc<str>,
    /// The path of the endpoint at which it began.
    endpoint: Arc<str>,
    /// The revision agreed on.
    pub(super) version: ProtocolVersion,
    /// What else was agreed on.
    pub(super) handshake: Handshake,
    level: Mutex<Option<Level>>,
    /// What it was told of the lists.
    seen: Mutex<Option<Seen>>,
    /// The resources that it follows.
    following: Arc<Following>,
    /// Ends its stream, if one is open.
    stream: Mutex<CancellationToken>,
    /// What that stream has taken of the limit on streams.
    place: Mutex<Weak<Place>>,
    ended: CancellationToken,
    /// When its id was given out.
    issued_ms: u64,
    last_use_ms: AtomicU64,
    users: AtomicUsize,
}

/// Whose a session is, and where it began.
struct Owner {
    /// The name of the client.
    principal: Arc<str>,
    /// The path of the endpoint.
    endpoint: Arc<str>,
}

/// A session in use: it does not become idle as long as this is kept.
#[derive(Debug)]
pub(super) struct SessionUse {
    session: Arc<Session>,
    clock: Clock,
}

/// Is told of a session that has ended.
type Bereaved = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// All sessions, at most `limits.sessions` of them in memory.
pub(super) struct SessionTable {
    sealer: Sealer,
    live: DashMap<Arc<str>, Arc<Session>>,
    /// Those that are no longer in memory.
    departed: Departed,
    /// The paths of the endpoints, by their places.
    paths: ArcSwap<Vec<Arc<str>>>,
    most: usize,
    idle_ms: u64,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Is told of each session that has ended for good.
    bereaved: Bereaved,
}

/// Milliseconds since 1970 that never go back.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start_ms: u64,
    start: Instant,
}

/// What a session id says.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    #[serde(borrow)]
    principal: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    endpoint: std::borrow::Cow<'a, str>,
    version: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    client: Option<&'a RawValue>,
}

fn paths(config: &Config) -> Vec<Arc<str>> {
    config.endpoints.iter().map(|endpoint| Arc::clone(&endpoint.path)).collect()
}

impl SessionTable {
    /// An empty table.
    ///
    /// # Errors
    /// If the key for the ids cannot be set up.
    pub(super) fn new(config: &Config, metrics: Arc<Metrics>) -> Result<Self, SealError> {
        Ok(Self {
            sealer: Sealer::new(&config.sessions, Purpose::Session)?,
            live: DashMap::new(),
            departed: Departed::new(config.limits.sessions, millis(config.sessions.idle_timeout)),
            paths: ArcSwap::from_pointee(paths(config)),
            most: config.limits.sessions,
            idle_ms: millis(config.sessions.idle_timeout),
            clock: Clock::new(),
            metrics,
            bereaved: Box::new(|_| {}),
        })
    }

    /// Has `bereaved` told of each session that ends for good: deleted by its client, or idle for too long. It
    /// must not block.
    pub(super) fn telling(self, bereaved: impl Fn(&Arc<str>) + Send + Sync + 'static) -> Self {
        Self { bereaved: Box::new(bereaved), ..self }
    }

    /// Begins a session and gives its id. What changes after `seen` its stream will tell.
    ///
    /// # Errors
    /// If the id cannot be sealed.
    pub(super) fn begin(
        &self,
        principal: &Principal,
        version: ProtocolVersion,
        handshake: Handshake,
        seen: Seen,
    ) -> Result<Arc<str>, SealError> {
        let now = self.clock.now_ms();
        let owner = self.owner(principal);
        let handshake = bounded(&handshake);
        let raw = |raw: &Option<Raw>| {
            raw.as_ref().and_then(|raw| serde_json::from_str::<Box<RawValue>>(raw.text()).ok())
        };
        let (capabilities, client) = (raw(&handshake.capabilities), raw(&handshake.client_info));
        let sealed = Sealed {
            principal: (&*principal.name).into(),
            endpoint: (&*owner.endpoint).into(),
            version: version.as_str().into(),
            capabilities: capabilities.as_deref(),
            client: client.as_deref(),
        };
        let content = serde_json::to_vec(&sealed).map_err(|_| SealError)?;
        let id: Arc<str> = self.sealer.seal(now, &content)?.into();
        let session = Session::new(Arc::clone(&id), owner, version, handshake, now);
        session.set_seen(seen);
        self.keep(session);
        Ok(id)
    }

    /// Takes the endpoints of a configuration that comes in the place of the one before.
    pub(super) fn know(&self, config: &Config) {
        self.paths.store(Arc::new(paths(config)));
    }

    fn owner(&self, principal: &Principal) -> Owner {
        let endpoint = self.paths.load().get(principal.endpoint).cloned().unwrap_or_default();
        Owner { principal: Arc::clone(&principal.name), endpoint }
    }

    /// The session with this id, if it lives, belongs to `principal` and began at the same endpoint.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Option<SessionUse> {
        let now = self.clock.now_ms();
        let owner = self.owner(principal);
        if let Some(session) = self.live.get(id) {
            let is_idle = session.is_idle(now, self.idle_ms);
            if session.principal != owner.principal || session.endpoint != owner.endpoint {
                return None;
            }
            if !is_idle {
                return Some(SessionUse::new(Arc::clone(&session), self.clock));
            }
            drop(session);
            self.remove_idle(id, now);
            return None;
        }
        let session = self.unseal(id, owner, now)?;
        // Somebody else may have been faster; theirs then has the log level.
        Some(SessionUse::new(self.keep(session), self.clock))
    }

    /// What an id says that another replica gave out, or whose state had to make room here.
    fn unseal(&self, id: &str, owner: Owner, now: u64) -> Option<Session> {
        let opened = self.sealer.open(id)?;
        if !self.departed.is_alive(id, opened.issued_ms, now) {
            return None;
        }
        let sealed: Sealed<'_> = serde_json::from_slice(&opened.content).ok()?;
        let raw = |raw: &RawValue| Raw::trusted(raw.get().to_owned().into());
        let handshake =
            Handshake { client_info: sealed.client.map(raw), capabilities: sealed.capabilities.map(raw) };
        let version = ProtocolVersion::known(&sealed.version)?;
        let is_owner = sealed.principal == *owner.principal && sealed.endpoint == *owner.endpoint;
        is_owner.then(|| {
            let session = Session::new(id.into(), owner, version, handshake, now);
            Session { issued_ms: opened.issued_ms, ..session }
        })
    }

    /// Ends a session; its id is unknown from now on.
    pub(super) fn end(&self, session: &SessionUse) {
        let now = self.clock.now_ms();
        self.departed.end(&session.id, session.issued_ms, now);
        session.ended.cancel();
        (self.bereaved)(&session.id);
        session.following.clear();
        if self.live.remove(&session.id).is_some() {
            self.closed("deleted by its client");
        }
    }

    /// Forgets what is idle. To be called every now and then.
    pub(super) fn sweep(&self) {
        let now = self.clock.now_ms();
        self.departed.sweep(now);
        self.metrics.set_entries(Table::DepartedSessions, self.departed.len());
        let idle: Vec<_> = self
            .live
            .iter()
            .filter(|entry| entry.is_idle(now, self.idle_ms))
            .map(|entry| Arc::clone(entry.key()))
            .collect();
        for id in idle {
            self.remove_idle(&id, now);
        }
    }

    fn remove_idle(&self, id: &str, now: u64) {
        if self.live.remove_if(id, |_, session| session.is_idle(now, self.idle_ms)).is_some() {
            (self.bereaved)(&Arc::from(id));
            self.closed("idle");
        }
    }

    fn keep(&self, session: Session) -> Arc<Session> {
        if self.live.len() >= self.most {
            self.make_room();
        }
        let mut is_new = false;
        let kept = Arc::clone(&self.live.entry(Arc::clone(&session.id)).or_insert_with(|| {
            is_new = true;
            Arc::new(session)
        }));
        if is_new {
            self.departed.bring_back(&kept.id);
            SessionOpened { client: &kept.principal, version: kept.version.as_str() }.emit(&self.metrics);
        }
        kept
    }

    /// Drops the state of the session that has not been used for the longest time. Its id still says what
    /// was agreed on, and when it was used last is remembered, so its client loses no more than its log level.
    fn make_room(&self) {
        self.sweep();
        if self.live.len() < self.most {
            return;
        }
        let unused = self.live.iter().filter(|entry| entry.users.load(Ordering::Acquire) == 0);
        let oldest = unused.min_by_key(|entry| entry.last_use_ms.load(Ordering::Acquire));
        let Some(id) = oldest.map(|entry| Arc::clone(entry.key())) else { return };
        if let Some((id, session)) = self.live.remove(&id) {
            let last_use = session.last_use_ms.load(Ordering::Acquire);
            self.departed.crowd_out(&id, last_use, self.clock.now_ms());
            self.closed("made room for another");
        }
    }

    fn closed(&self, reason: &str) {
        SessionClosed { reason }.emit(&self.metrics);
    }
}

impl Session {
    fn new(
        id: Arc<str>,
        Owner { principal, endpoint }: Owner,
        version: ProtocolVersion,
        handshake: Handshake,
        now: u64,
    ) -> Self {
        let capabilities = from_legacy::capabilities(Some(&handshake), Asking::Possible);
        let following = match version.has_tasks_by_caller() {
            true => Following::with_tasks(Arc::clone(&id)),
            false => Following::default(),
        };
        Self {
            peer: Arc::new(CallerSession::new(Arc::clone(&id), capabilities)),
            id,
            principal,
            endpoint,
            version,
            handshake,
            level: Mutex::default(),
            seen: Mutex::default(),
            following: Arc::new(following),
            stream: Mutex::default(),
            place: Mutex::default(),
            ended: CancellationToken::new(),
            issued_ms: now,
            last_use_ms: AtomicU64::new(now),
            users: AtomicUsize::new(0),
        }
    }

    fn is_idle(&self, now: u64, idle_ms: u64) -> bool {
        self.users.load(Ordering::Acquire) == 0
            && now.saturating_sub(self.last_use_ms.load(Ordering::Acquire)) > idle_ms
    }

    /// The least level of log messages that the client asked for, if it did.
    pub(super) fn level(&self) -> Option<Level> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the level that the client asks for.
    pub(super) fn set_level(&self, level: Level) {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }
}

impl Session {
    /// Opens the session's stream and ends the one that was open: a client that comes again has lost it, or
    /// will not read it. The token is cancelled when this one is to end.
    pub(super) fn open_stream(&self) -> CancellationToken {
        let stream = self.ended.child_token();
        let mut open = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *open, stream.clone()).cancel();
        stream
    }

    /// The place of its open stream, which the stream of a client that comes again takes over.
    pub(super) fn stream_place(&self) -> Option<Arc<Place>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// The place of the stream that it opens now.
    pub(super) fn set_stream_place(&self, place: &Arc<Place>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(place);
    }

    /// The resources that it follows.
    pub(super) fn following(&self) -> &Arc<Following> {
        &self.following
    }

    /// What the client was told of the lists, if that is known here.
    pub(super) fn seen(&self) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what the client was told.
    pub(super) fn set_seen(&self, seen: Seen) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}

impl SessionUse {
    fn new(session: Arc<Session>, clock: Clock) -> Self {
        session.users.fetch_add(1, Ordering::AcqRel);
        session.last_use_ms.fetch_max(clock.now_ms(), Ordering::AcqRel);
        Self { session, clock }
    }
}

impl Clone for SessionUse {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.session), self.clock)
    }
}

impl Deref for SessionUse {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        self.session.last_use_ms.fetch_max(self.clock.now_ms(), Ordering::AcqRel);
        self.session.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Clock {
    fn new() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self { start_ms: millis(since.unwrap_or_default()), start: Instant::now() }
    }

    fn now_ms(self) -> u64 {
        self.start_ms.saturating_add(millis(self.start.elapsed()))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The handshake, cut down to what a header can hold.
fn bounded(handshake: &Handshake) -> Handshake {
    let capabilities = handshake.capabilities.as_ref().map(|raw| fit(raw, |_| serde_json::json!({})));
    let client_info = handshake.client_info.as_ref().map(|raw| {
        fit(raw, |value| {
            let text: String = value.string().unwrap_or_default().chars().take(64).collect();
            serde_json::Value::from(text)
        })
    });
    Handshake { client_info, capabilities }
}

/// The object itself if it is short, else its first members with values that `shorten` makes.
fn fit(raw: &Raw, shorten: impl Fn(&Raw) -> serde_json::Value) -> Raw {
    if raw.bytes().len() <= MAX_AGREED {
        return raw.clone();
    }
    let view = ObjectView::of(raw.bytes());
    let mut short = serde_json::Map::new();
    for member in view.members.iter().take(16) {
        let name = member.name(raw.bytes());
        let value = raw.bytes().get(member.value.clone()).unwrap_or_default();
        if name.len() <= 64 {
            let value = shorten(&Raw::trusted(bytes::Bytes::copy_from_slice(value)));
            short.insert(name.into_owned(), value);
        }
    }
    Raw::from_value(&serde_json::Value::Object(short))
}

#[cfg(test)]
mod tests;
