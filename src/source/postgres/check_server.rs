//! What `outboxd check` says about the server itself: places, limits, standbys.

use std::time::Duration;

use super::check::{Check, Published};
use super::error::quote_literal;
use super::surroundings::{self, Room};
use crate::config::Start;
use crate::finding::{Report, bytes};

/// For how long the rate of the log is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// Begins the finding that says why no replication connection can be had.
pub(super) const NO_WALSENDER: &str = "no room for the replication connection";

impl Check<'_> {
    /// A standby decodes its log from PostgreSQL 16 on.
    pub(super) fn standby(&self, report: &mut Report) {
        if self.survey.facts.server.version < 160_000 {
            report.error(
                "the server is a standby, and before PostgreSQL 16 a standby cannot decode its log",
                "point option \"source.postgres.url\" at the primary",
            );
        } else {
            report.warning(
                "the server is a standby: publications are made on the primary, and a slot is made only when the primary \
                 writes",
                "point option \"source.postgres.url\" at the primary",
            );
        }
    }

    /// Places for a slot and a walsender.
    pub(super) fn free_room(&self, room: &Room, published: Published<'_>, report: &mut Report) {
        if self.survey.slot.is_none() && !matches!(published, Published::Upto(_)) {
            // the first read has a slot of its own
            let needed = if self.settings.start == Start::Table { 2 } else { 1 };
            let (limit, used) = room.slots;
            if limit - used < needed {
                report.error(
                    format!(
                        "no room for the slot: max_replication_slots is {limit}, {used} exist, and {needed} more \
                         {} needed",
                        if needed == 1 { "is" } else { "are" }
                    ),
                    format!(
                        "ALTER SYSTEM SET max_replication_slots = {}; -- then restart the server; or drop a slot that \
                         nobody uses",
                        used + needed
                    ),
                );
            }
            let (count, oldest) = room.old_transactions;
            if count > 0 {
                report.warning(
                    format!(
                        "making the slot waits for transactions that are open: {count} for more than a minute, the \
                         oldest for {oldest} s"
                    ),
                    "SELECT pid, usename, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY \
                     xact_start;",
                );
            }
        }
        let (limit, used) = room.walsenders;
        if self.survey.holder().is_none() && limit - used < 1 {
            report.error(
                format!("{NO_WALSENDER}: max_wal_senders is {limit}, and {used} run"),
                format!("ALTER SYSTEM SET max_wal_senders = {}; -- then restart the server", used + 1),
            );
        }
    }

    /// What the server may do to the slot while the relay is away.
    pub(super) async fn limits(&self, room: &Room, report: &mut Report) -> Result<(), tokio_postgres::Error> {
        if let Some(timeout) = &room.idle_timeout {
            report.warning(
                format!(
                    "idle_replication_slot_timeout is {timeout}: when the relay is away for longer, the slot is \
                     invalidated and events may be missing"
                ),
                "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
            );
        }
        let rate = surroundings::wal_rate(&self.survey.session.client, MEASURE).await?;
        let hourly = rate.map(|rate| rate.saturating_mul(3600));
        let pace = match hourly {
            None => "how fast cannot be measured on a standby".to_owned(),
            Some(0) => "nothing was written in the second in which that was measured".to_owned(),
            Some(hourly) => format!("{} an hour now, measured over one second", bytes(hourly)),
        };
        let formula = "the time until it is full is its free space (df on the server) divided by that";
        if room.keep_mib < 0 {
            report.warning(
                format!(
                    "max_slot_wal_keep_size is unlimited: while the relay is away the log fills the server's disk: {pace}; \
                     {formula}"
                ),
                "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf(); -- choose what the disk can \
                 spare; beyond it the slot is invalidated and events may be missing",
            );
        } else {
            let limit = u64::try_from(room.keep_mib).unwrap_or_default() << 20;
            let time = hourly.filter(|hourly| *hourly > 0).map_or_else(String::new, |hourly| {
                let minutes = limit.saturating_mul(60) / hourly;
                format!(": {} h {} min at the present rate", minutes / 60, minutes % 60)
            });
            report.fact(format!("max_slot_wal_keep_size: {}{time}; {pace}", bytes(limit)));
        }
        Ok(())
    }

    /// What happens to the slot when a standby takes over.
    pub(super) fn failover(&self, room: &Room, report: &mut Report) {
        let name = &self.settings.names.slot;
        let standbys: Vec<&str> = room.physical_slots.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(list) = &room.synchronized {
            for wanted in list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()) {
                let is_active = room.physical_slots.iter().any(|(name, active)| name == wanted && *active);
                if !is_active {
                    report.error(
                        format!(
                            "synchronized_standby_slots names \"{wanted}\", and no standby uses that slot: a slot with \
                             failover gets nothing until one does"
                        ),
                        "ALTER SYSTEM RESET synchronized_standby_slots; SELECT pg_reload_conf(); -- or bring the standby \
                         back",
                    );
                }
            }
        }
        if standbys.is_empty() {
            return;
        }
        let version = self.survey.facts.server.version;
        if version < 170_000 {
            report.warning(
                format!(
                    "the server has standbys ({}), and before PostgreSQL 17 they do not keep slot \"{name}\": after a \
                     failover it is missing",
                    standbys.join(", ")
                ),
                format!("after a failover, run: {}", self.settings.names.resume_command("now")),
            );
        } else if !self.settings.failover_slot {
            report.warning(
                format!("the server has standbys ({}), and they do not keep slot \"{name}\"", standbys.join(", ")),
                "set source.postgres.failover-slot = true",
            );
        } else if room.synchronized.is_none() {
            report.warning(
                format!(
                    "the server has standbys ({}), and the slot may get ahead of them: a failover then loses what was \
                     published",
                    standbys.join(", ")
                ),
                format!(
                    "ALTER SYSTEM SET synchronized_standby_slots = {}; SELECT pg_reload_conf(); -- and on each standby \
                     sync_replication_slots = on, hot_standby_feedback = on, dbname in primary_conninfo",
                    quote_literal(&standbys.join(", "))
                ),
            );
        }
    }
}
