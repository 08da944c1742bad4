//! Watches the server by SQL while the stream runs: is it stopping, and is what it publishes still what it was?
//!
//! PostgreSQL says nothing in the stream when a table leaves the publication, and from version 18 on only a warning when
//! the publication has gone. And a server that was asked to stop waits for its subscribers, so the relay must notice.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::address::reach_any;
use super::catalog::{self, SlotFacts};
use super::error::{ServerError, from_driver, from_server};
use super::guard::{Difference, difference};
use super::inspect::{self, Facts, Finding, refusal};
use super::newcomers::Newcomers;
use super::settings::PostgresSettings;
use super::sql::SqlSession;
use crate::position::{Lsn, Position};
use crate::sink::positions::SourceIdentity;
use crate::source::SourceError;
use crate::state::{Gap, Phase, Reason, Status};

/// How often the end of the SQL session is looked for: the first sign of a server that stops.
const GLANCE: Duration = Duration::from_millis(100);

/// How often the catalogue is read.
const CHECK: Duration = Duration::from_secs(3);

/// A running watch; ends with its owner.
#[derive(Debug)]
pub(super) struct Watch {
    alarms: mpsc::Receiver<SourceError>,
    shared: Arc<Shared>,
    begun: Instant,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// What the source has confirmed: where a gap may begin.
    confirmed: AtomicU64,
    /// What was confirmed when the catalogue was last found in order.
    verified: AtomicU64,
    /// Log that the slot holds back, in bytes; -1 until known.
    retained: AtomicI64,
    /// What the stream should have brought by now.
    due: AtomicU64,
    /// When the server last answered, in milliseconds since the watch began.
    answered: AtomicU64,
    /// Tables that patterns fit and that are not published.
    unpublished: Mutex<Option<Finding>>,
}

/// What a watch looks at.
pub(super) struct Watched {
    /// Everything that a position depends on.
    pub identity: SourceIdentity,
    /// The same as it was when the position was stored, if one was.
    pub before: Option<SourceIdentity>,
    /// Name of the slot.
    pub slot: String,
    /// Whether nothing but the watch would notice that the slot has gone or can no longer be read.
    pub is_idle: bool,
    /// Where the reading begins.
    pub begin: Lsn,
    /// Where the server's log ended before.
    pub wal_end: Lsn,
    /// The server's process that uses the slot.
    pub walsender_pid: i32,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub(super) fn start(session: SqlSession, settings: Arc<PostgresSettings>, watched: Watched) -> Self {
        let (sender, alarms) = mpsc::channel(1);
        let shared = Arc::new(Shared {
            confirmed: AtomicU64::new(watched.begin.0),
            verified: AtomicU64::new(watched.begin.0),
            retained: AtomicI64::new(-1),
            due: AtomicU64::new(readable(watched.wal_end).0),
            answered: AtomicU64::new(0),
            unpublished: Mutex::default(),
        });
        let begun = Instant::now();
        let newcomers = Newcomers::new(&settings, &watched.identity, watched.before.as_ref());
        let wal_end = watched.wal_end;
        let watcher = Watcher { session, settings, watched, begun, newcomers, wal_end, shared: Arc::clone(&shared) };
        let task = tokio::spawn(async move {
            let alarm = watcher.run().await;
            // the receiver has gone when the stream ended first
            let _ = sender.send(alarm).await;
        });
        Self { alarms, shared, begun, task }
    }

    /// Waits for something wrong. Cancel-safe.
    pub(super) async fn alarm(&mut self) -> SourceError {
        match self.alarms.recv().await {
            Some(alarm) => alarm,
            None => std::future::pending().await,
        }
    }

    /// Something wrong, if it has been found.
    pub(super) fn try_alarm(&mut self) -> Option<SourceError> {
        self.alarms.try_recv().ok()
    }

    /// What the stream should have brought by now: where the server's log ended some seconds ago.
    #[must_use]
    pub(super) fn due(&self) -> Lsn {
        Lsn(self.shared.due.load(Ordering::Relaxed))
    }

    /// Tells what the source has confirmed.
    pub(super) fn set_confirmed(&self, lsn: Lsn) {
        self.shared.confirmed.store(lsn.0, Ordering::Relaxed);
    }

    /// What a person has to do although the stream goes on.
    #[must_use]
    pub(super) fn status(&self) -> Option<Status> {
        let unpublished = self.shared.unpublished.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut status = Status::new(Phase::Blocked, unpublished.reason, unpublished.message);
        status.hint = Some(unpublished.hint);
        Some(status)
    }

    /// What was confirmed when the catalogue was last found in order.
    #[must_use]
    pub(super) fn verified(&self) -> Lsn {
        Lsn(self.shared.verified.load(Ordering::Relaxed))
    }

    /// When the server last answered.
    #[must_use]
    pub(super) fn last_answer(&self) -> Instant {
        self.begun + Duration::from_millis(self.shared.answered.load(Ordering::Relaxed))
    }

    /// Log that the slot holds back, in bytes.
    #[must_use]
    pub(super) fn retained_bytes(&self) -> Option<u64> {
        u64::try_from(self.shared.retained.load(Ordering::Relaxed)).ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How far a log that ends here can be read. The server may have written it up to the end of a page, in the middle of a
/// record that nobody can read before the rest follows (PostgreSQL source, `XLogBackgroundFlush`).
fn readable(wal_end: Lsn) -> Lsn {
    const PAGE: u64 = 8 << 10;
    const LONGEST_USUAL_RECORD: u64 = 2 * PAGE;
    if wal_end.0.is_multiple_of(PAGE) { Lsn(wal_end.0.saturating_sub(LONGEST_USUAL_RECORD)) } else { wal_end }
}

struct Watcher {
    session: SqlSession,
    settings: Arc<PostgresSettings>,
    watched: Watched,
    begun: Instant,
    newcomers: Newcomers,
    /// Where the log ended at the last look.
    wal_end: Lsn,
    shared: Arc<Shared>,
}

impl Watcher {
    /// Runs until something is wrong.
    async fn run(mut self) -> SourceError {
        let mut next_check = Instant::now();
        loop {
            if self.session.is_closed() {
                match SqlSession::connect(&self.settings.connect).await {
                    Ok(session) => self.session = session,
                    Err(error) if error.reason() == Reason::ServerStopping => return error,
                    // the stream notices by itself when the server has gone
                    Err(error) => debug!(error = %crate::chain(&error), "watching session is not back yet"),
                }
            } else if Instant::now() >= next_check {
                next_check = Instant::now() + CHECK;
                match timeout(CHECK, self.check()).await {
                    Ok(Ok(Some(alarm))) => return alarm,
                    Ok(Ok(None)) => {}
                    Ok(Err(error)) => debug!(error = %crate::chain(&error), "could not read the catalogue"),
                    Err(_) => debug!("reading the catalogue takes long"),
                }
            }
            tokio::time::sleep(GLANCE).await;
        }
    }

    async fn check(&mut self) -> Result<Option<SourceError>, tokio_postgres::Error> {
        let client = &self.session.client;
        // taken before the catalogue is read: what is confirmed later may already lack rows
        let confirmed = Lsn(self.shared.confirmed.load(Ordering::Relaxed));
        let facts = inspect::read(client, &self.settings).await?;
        let slot = catalog::slot(client, facts.server.version, &self.watched.slot).await?;
        let answered = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.answered.store(answered, Ordering::Relaxed);
        // a look ago: by now the server has told in the stream that it has passed that
        self.shared.due.store(readable(self.wal_end).0, Ordering::Relaxed);
        self.wal_end = facts.server.wal_end;
        if self.watched.is_idle
            && let Some(alarm) = unusable(&self.watched.slot, slot.as_ref())
        {
            return Ok(Some(alarm));
        }
        if let Some(slot) = slot {
            self.shared.retained.store(slot.retained_bytes.unwrap_or(-1), Ordering::Relaxed);
        }
        let sync_state = catalog::sync_state(client, self.watched.walsender_pid).await?;
        if sync_state.is_some_and(|state| state != "async") {
            let application_name = &self.settings.connect.application_name;
            return Ok(refusal(&[inspect::synchronous(&facts.server.standby_names, application_name)]));
        }
        let unpublished = self.newcomers.look(client, &facts, &self.settings).await?;
        *self.shared.unpublished.lock().unwrap_or_else(PoisonError::into_inner) = unpublished;
        let Some(found) = changed(&facts, &self.settings, &self.watched.identity) else {
            self.shared.verified.store(confirmed.0, Ordering::Relaxed);
            return Ok(None);
        };
        let from = Position::Postgres(Lsn(self.shared.verified.load(Ordering::Relaxed)));
        let gap = Gap { from: Some(from), to: Some(Position::Postgres(facts.server.wal_end)) };
        Ok(Some(SourceError::Terminal(Box::new(found.terminal(&self.settings.names, gap)))))
    }
}

/// Asks for the log that the slot holds back, in bytes: none, if there is no slot or it has lost its log.
///
/// # Errors
/// The server cannot be reached.
pub(super) async fn retained_bytes(settings: &PostgresSettings) -> Result<u64, SourceError> {
    let (connect, session) = reach_any(&settings.connect).await?;
    let slot = async {
        let version = catalog::server(&session.client).await?.version;
        catalog::slot(&session.client, version, &settings.names.slot).await
    };
    let slot = slot.await.map_err(|error| from_driver("read the slot's state", &connect, error))?;
    Ok(slot.and_then(|slot| u64::try_from(slot.retained_bytes?).ok()).unwrap_or(0))
}

/// Whether a slot that nobody reads from has gone, or has lost its log.
fn unusable(name: &str, slot: Option<&SlotFacts>) -> Option<SourceError> {
    let (reason, message) = match slot {
        None => (Reason::SourceUnreachable, format!("slot \"{name}\" has gone: the connection that held it broke")),
        Some(slot) => {
            let why = slot.why_unusable()?;
            let message = format!(
                "slot \"{name}\" was invalidated ({why}): raise max_slot_wal_keep_size, so that the log of the whole \
                 first read fits"
            );
            (Reason::SlotInvalidated, message)
        }
    };
    Some(SourceError::Connection { reason, message, source: None })
}

/// What is no longer as it was, or no longer works; `None` if all is in order.
#[must_use]
pub(super) fn changed(facts: &Facts, settings: &PostgresSettings, identity: &SourceIdentity) -> Option<Difference> {
    let SourceIdentity::Postgres { system_id, timeline, database, slot, publication, .. } = identity.clone() else {
        return None;
    };
    let Some(present) = &facts.publication else {
        let message = format!("publication \"{publication}\" was dropped: rows are no longer published");
        return Some(Difference::new(Reason::PublicationMissing, message));
    };
    for (name, table) in &facts.tables {
        if table.is_none() {
            let message = format!("table \"{}\" was dropped or renamed", name.plain());
            return Some(Difference::new(Reason::TableRemade, message));
        }
    }
    if let Some(taken_out) = facts.taken_out(settings, identity) {
        return Some(taken_out);
    }
    let now = SourceIdentity::Postgres {
        system_id,
        timeline,
        database,
        slot,
        publication,
        publication_oid: present.oid,
        publication_xmin: present.xmin,
        tables: facts.table_identities(),
        schemas: facts.schema_identities(),
    };
    if let Some(difference) = difference(identity, &now) {
        return Some(difference);
    }
    let unpublished = facts.findings(settings).into_iter().find(|finding| finding.reason == Reason::TableNotPublished);
    unpublished.map(|finding| Difference::new(finding.reason, finding.message))
}

/// What the server's last word means. Both sides of the result are the verdict; the left one was found early.
pub(super) async fn verdict(
    settings: &PostgresSettings,
    identity: &SourceIdentity,
    confirmed: Lsn,
    words: ServerError,
) -> Result<SourceError, SourceError> {
    let is_about_publication = words.sqlstate == "42704" || words.severity == "WARNING";
    let is_about_slot = words.sqlstate == "55000" && !is_about_publication;
    if !is_about_publication && !is_about_slot {
        return Ok(from_server("read the stream", &settings.connect, words));
    }
    let session = SqlSession::connect(&settings.connect).await?;
    let facts = inspect::read(&session.client, settings).await;
    let facts = facts.map_err(|error| from_driver("read the catalogue", &settings.connect, error))?;
    let found = if is_about_slot {
        let message = format!("slot \"{}\" can no longer be read: {words}", settings.names.slot);
        Difference::new(Reason::SlotInvalidated, message)
    } else {
        changed(&facts, settings, identity).unwrap_or_else(|| {
            let name = &settings.names.publication;
            let message = format!(
                "publication \"{name}\" exists now, but not yet at {confirmed}, where slot \"{}\" stands: the slot was \
                 made before it, and the server cannot decode the rows between ({words})",
                settings.names.slot
            );
            Difference::new(Reason::PublicationNewerThanSlot, message)
        })
    };
    let gap = Gap { from: Some(Position::Postgres(confirmed)), to: Some(Position::Postgres(facts.server.wal_end)) };
    Ok(SourceError::Terminal(Box::new(found.terminal(&settings.names, gap))))
}
