//! A look at the server from outside of a session, and the few acts of a person's commands on it: making publication and
//! slot, moving and dropping the slot.
//!
//! What a look says about a start is said by the code that a start runs, short of taking the slot.

use super::address::reach;
use super::attach::{self, Lost, ServerIdentity};
use super::catalog::SlotFacts;
use super::client::ReplicationClient;
use super::error::{from_driver, unreachable};
use super::guard::Standing;
use super::inspect::{Facts, refusal};
use super::settings::PostgresSettings;
use super::slot;
use super::sql::SqlSession;
use crate::position::Lsn;
use crate::sink::positions::{PositionRecord, SourceIdentity};
use crate::source::SourceError;
use crate::state::{Reason, StatusBoard};

/// What the server held when it was looked at, and a session on it.
pub struct Survey {
    /// With the address of the server that was chosen.
    pub(super) settings: PostgresSettings,
    pub(super) session: SqlSession,
    pub(super) facts: Facts,
    pub(super) slot: Option<SlotFacts>,
    /// Who the server says it is, if a replication connection could be had.
    pub(super) server: Result<ServerIdentity, SourceError>,
    holder: Option<Holder>,
}

/// Who uses the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The server's process.
    pub pid: i32,
    /// Whether it is an instance of this relay, by its user and application name.
    pub is_peer: bool,
    /// For a person: slot, process, user, application, since when.
    pub words: String,
}

/// The slot as far as a person needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Everything before it was confirmed.
    pub confirmed: Option<Lsn>,
    /// Log that it holds back, in bytes.
    pub retained_bytes: Option<u64>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
}

impl Survey {
    /// Connects and looks. A replication connection that cannot be had is no error yet: see [`server`](Self::identity).
    ///
    /// # Errors
    /// The server cannot be reached, refuses the login, or does not answer.
    pub async fn take(settings: &PostgresSettings) -> Result<Self, SourceError> {
        let (settings, session) = reach(settings).await?;
        let mut facts = attach::read_facts(&session, &settings).await?;
        let slot = attach::read_slot(&session, &settings, facts.server.version).await?;
        let holder = match slot.as_ref().and_then(|slot| slot.active_pid) {
            None => None,
            Some(pid) => {
                match slot::in_use(&session, &settings, facts.server.version, None, &settings.names.slot, "").await {
                    SourceError::SlotInUse { by_peer, message } if !message.is_empty() => {
                        Some(Holder { pid, is_peer: by_peer, words: message })
                    }
                    // it has gone meanwhile
                    _ => None,
                }
            }
        };
        let server = match replication(&settings).await {
            // dropped afterwards, not closed in good order: that is for streams
            Ok(mut client) => attach::identify(&mut client, &settings).await,
            Err(error) => Err(error),
        };
        facts.server.may_replicate |= server.is_ok();
        Ok(Self { settings, session, facts, slot, server, holder })
    }

    /// The server's version as people say it: `15.18`.
    #[must_use]
    pub fn version(&self) -> String {
        format!("{}.{}", self.facts.server.version / 10_000, self.facts.server.version % 10_000)
    }

    /// Where the server's log ends.
    #[must_use]
    pub fn wal_end(&self) -> Lsn {
        self.facts.server.wal_end
    }

    /// The slot; `None` if there is none.
    #[must_use]
    pub fn slot(&self) -> Option<SlotView> {
        self.slot.as_ref().map(|slot| SlotView {
            confirmed: slot.confirmed,
            retained_bytes: slot.retained_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            wal_status: slot.wal_status.clone(),
        })
    }

    /// Who uses the slot.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Whether the publication exists.
    #[must_use]
    pub fn has_publication(&self) -> bool {
        self.facts.publication.is_some()
    }

    /// Everything that a position depends on, as it is now.
    ///
    /// # Errors
    /// No replication connection could be had.
    pub fn identity(&self) -> Result<SourceIdentity, &SourceError> {
        self.server.as_ref().map(|server| server.identity(&self.settings, &self.facts))
    }

    /// What the relay would say at a start, where `record` is what was published; `Ok` if it would stream. What can be
    /// made at a start and needs no decision is not an error.
    ///
    /// # Errors
    /// As for attaching: what differs from the record, with the gap.
    pub async fn judge(&self, record: Option<&PositionRecord>) -> Result<(), SourceError> {
        let refused = refusal(&self.facts.findings(&self.settings));
        let gap = self.gap(record).await;
        match (gap, refused) {
            // who the server is, and what was published from, is said before what it lacks, as at a start
            (Err(SourceError::Terminal(terminal)), _) => Err(SourceError::Terminal(terminal)),
            (_, Some(refused)) => Err(refused),
            (judged, None) => judged,
        }
    }

    /// Whether events may be missing or the slot is not ours, whatever else is wrong.
    ///
    /// # Errors
    /// A terminal state; a slot of somebody else; no replication connection could be had.
    pub async fn gap(&self, record: Option<&PositionRecord>) -> Result<(), SourceError> {
        let server = self.server.as_ref().map_err(repeat)?;
        // a relay that runs may have published more than the log held at the first look
        let wal_end = attach::log_end(&self.session, &self.settings).await.unwrap_or_default().max(server.wal_end);
        let lost = record.map(|record| Lost { settings: &self.settings, record, wal_end });
        if let Some(lost) = &lost {
            lost.check(server, &self.facts, self.slot.is_some())?;
        }
        match (&self.slot, &lost) {
            (Some(slot), lost) => slot::check(&self.settings, slot, lost.as_ref())?,
            (None, Some(lost)) => return Err(lost.slot()),
            (None, None) => {}
        }
        let Some(record) = record else { return Ok(()) };
        let standing = Standing {
            identity: server.identity(&self.settings, &self.facts),
            slot: self.slot.as_ref().and_then(|slot| slot.confirmed).unwrap_or_default(),
            wal_end,
            in_recovery: self.facts.server.in_recovery,
            forks: server.forks.clone(),
        };
        standing.judge(&self.settings.names, record)
    }

    /// What keeps the relay from working, whatever was published: findings about server and tables, a slot of somebody
    /// else. A missing publication is not in it.
    ///
    /// # Errors
    /// Every finding at once.
    pub fn usable(&self) -> Result<(), SourceError> {
        if let Some(error) = refusal(&self.facts.findings(&self.settings)) {
            return Err(error);
        }
        self.is_ours()?;
        self.server.as_ref().map(|_| ()).map_err(repeat)
    }

    /// Whether the slot is one that the relay may read, or drop: of its plug-in and its database.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] if it is somebody else's.
    pub fn is_ours(&self) -> Result<(), SourceError> {
        let Some(slot) = &self.slot else { return Ok(()) };
        slot::is_ours(&self.settings, slot)
    }

    /// Whether the slot can bring everything from `position` on; returns where it stands.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn serves(&self, position: Lsn) -> Result<Lsn, SourceError> {
        let names = &self.settings.names;
        let slot_name = &names.slot;
        let refuse = |message: String| SourceError::Configuration {
            reason: Reason::Configuration,
            message,
            hint: format!("to go on without what is missing: {}", names.resume_command("now")),
        };
        let Some(slot) = &self.slot else { return Err(refuse(format!("slot \"{slot_name}\" does not exist"))) };
        match slot::check(&self.settings, slot, None) {
            Err(SourceError::Terminal(terminal)) => return Err(refuse(terminal.message.clone())),
            checked => checked?,
        }
        if !self.has_publication() {
            let message =
                format!("publication \"{}\" does not exist: made now, it is newer than the slot", names.publication);
            return Err(refuse(message));
        }
        let confirmed = slot.confirmed.unwrap_or_default();
        if position < confirmed {
            return Err(refuse(format!(
                "slot \"{slot_name}\" stands at {confirmed}: what is before that is gone for it"
            )));
        }
        let wal_end = self.wal_end();
        if position > wal_end {
            return Err(refuse(format!("the server's log ends at {wal_end}, before {position}")));
        }
        Ok(confirmed)
    }

    /// How many rows stand in the configured tables, counted up to 100,000; `None` if they may not be read.
    pub async fn standing_rows(&self) -> Option<i64> {
        let mut sum = 0;
        for (name, _) in self.facts.tables.iter().filter(|(_, table)| table.is_some()) {
            let sql = format!("SELECT count(*) FROM (SELECT FROM {name} LIMIT 100000) AS standing");
            let query = tokio::time::timeout(self.settings.connect.timeout, self.session.client.query_one(&sql, &[]));
            sum += query.await.ok()?.ok()?.try_get::<_, i64>(0).ok()?;
        }
        Some(sum)
    }

    /// Makes the publication.
    ///
    /// # Errors
    /// Without the right to, the statement for somebody who has it.
    pub async fn make_publication(&self) -> Result<(), SourceError> {
        attach::make_publication(&self.session, &self.settings, attach::Keep::Yes).await
    }

    /// Makes the slot; waits for all transactions that are open. Returns where it begins.
    ///
    /// # Errors
    /// What the server says.
    pub async fn make_slot(&self) -> Result<Lsn, SourceError> {
        let mut client = replication(&self.settings).await?;
        let (version, name) = (self.facts.server.version, &self.settings.names.slot);
        let kind = slot::Kind::permanent(&self.settings, version);
        let made = slot::make(&mut client, &self.settings, version, name, kind, &StatusBoard::default()).await?;
        let taken = || unreachable(format!("could not make slot \"{name}\""), "somebody else has made it meanwhile");
        Ok(made.ok_or_else(taken)?.position)
    }

    /// Moves the slot ahead to `position`: the server no longer sends what is before it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn advance_slot(&self, position: Lsn) -> Result<(), SourceError> {
        let sql = "SELECT pg_replication_slot_advance($1::text::name, $2::text::pg_lsn)";
        self.call("move the slot", sql, &[&self.settings.names.slot, &position.to_string()]).await
    }

    /// Drops the slot.
    ///
    /// # Errors
    /// What the server says: somebody may have begun to use it.
    pub async fn drop_slot(&self) -> Result<(), SourceError> {
        let sql = "SELECT pg_drop_replication_slot($1::text::name)";
        self.call("drop the slot", sql, &[&self.settings.names.slot]).await
    }

    async fn call(
        &self,
        action: &str,
        sql: &str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<(), SourceError> {
        match self.session.client.execute(sql, values).await {
            Ok(_) => Ok(()),
            Err(error) => Err(from_driver(action, &self.settings.connect, error)),
        }
    }
}

/// A replication connection with a session that no time-out ends.
async fn replication(settings: &PostgresSettings) -> Result<ReplicationClient, SourceError> {
    let mut client = ReplicationClient::connect(&settings.connect, &attach::replication_parameters()).await?;
    // unknown before 17
    let _ = client.query("SET transaction_timeout = 0").await;
    Ok(client)
}

/// An error once more: it is kept, and it is given away.
fn repeat(error: &SourceError) -> SourceError {
    match error {
        SourceError::Configuration { reason, message, hint } => {
            SourceError::Configuration { reason: *reason, message: message.clone(), hint: hint.clone() }
        }
        other => SourceError::Connection { reason: other.reason(), message: crate::chain(other), source: None },
    }
}
