//! Compares what the server holds with what was published: the check that no event can be missing unnoticed.
//!
//! The position record is written before the slot is confirmed, so a slot at or behind the record is what a crash
//! leaves behind; a slot ahead of it, or any identity that has changed, is somebody's doing and may hide events.

use super::settings::Names;
use crate::position::{Lsn, Position};
use crate::sink::positions::{PositionRecord, SchemaIdentity, SourceIdentity};
use crate::source::{SourceError, Terminal};
use crate::state::{Gap, Reason};

/// Where a timeline ended and the next began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fork {
    /// The timeline that ended.
    pub timeline: u32,
    /// Where it ended.
    pub at: Lsn,
}

/// Reads the content of a timeline history file: one line per fork, `timeline TAB lsn TAB reason`.
#[must_use]
pub(super) fn parse_history(content: &str) -> Vec<Fork> {
    let fork = |line: &str| {
        let mut words = line.split_whitespace();
        Some(Fork { timeline: words.next()?.parse().ok()?, at: words.next()?.parse().ok()? })
    };
    content.lines().filter_map(fork).collect()
}

/// What the server holds now.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Who and what it is.
    pub identity: SourceIdentity,
    /// Where the slot will begin.
    pub slot: Lsn,
    /// Where the log ends.
    pub wal_end: Lsn,
    /// Whether it is a standby: its log goes on with what its primary has.
    pub in_recovery: bool,
    /// The server's history, if it has one.
    pub forks: Vec<Fork>,
}

impl Standing {
    /// Checks it against what was published. A standby that has not got all of it yet is waited for: it may still get it.
    ///
    /// # Errors
    /// As [`verify`](Self::verify), as the relay's dispositions say.
    pub(super) fn judge(&self, names: &Names, record: &PositionRecord) -> Result<(), SourceError> {
        self.verify(names, record).map_err(|terminal| SourceError::Terminal(Box::new(terminal)))?;
        if self.in_recovery && self.wal_end < record.position.lsn().unwrap_or_default() {
            return Err(SourceError::Connection {
                reason: Reason::SourceUnreachable,
                message: format!(
                    "the server is a standby whose log ends at {}, and what is before {} was published: waiting for it to \
                     come that far, or to be promoted",
                    self.wal_end, record.position
                ),
                source: None,
            });
        }
        Ok(())
    }

    /// Checks it against what was published.
    ///
    /// # Errors
    /// The state that says what is different, with the range in which events may be missing.
    fn verify(&self, names: &Names, record: &PositionRecord) -> Result<(), Terminal> {
        let published = record.position.lsn().unwrap_or_default();
        let end = |reason, message: String, from: Lsn, to: Lsn| {
            let gap = Gap { from: Some(Position::Postgres(from)), to: Some(Position::Postgres(to)) };
            Err(Terminal { reason, message, gap: Some(gap), hint: names.leave_hint() })
        };
        self.verify_history(names, record)?;
        let (Some((old_slot, old_database)), Some((slot, database))) = (place(&record.source), place(&self.identity))
        else {
            return Ok(());
        };
        if (old_slot, old_database) != (slot, database) {
            let message = format!(
                "instance \"{}\" published from slot \"{old_slot}\" of database \"{old_database}\" before, and slot \
                 \"{slot}\" of database \"{database}\" is configured now",
                record.instance
            );
            return end(Reason::OtherSlot, message, published, self.slot);
        }
        if let Some(difference) = difference(&record.source, &self.identity) {
            let from = record.verified.clone();
            return Err(
                difference.terminal(names, Gap { from: Some(from), to: Some(Position::Postgres(self.wal_end)) })
            );
        }
        if self.slot > published {
            let message = format!(
                "slot \"{slot}\" begins at {}, but only what is before {published} was published: the slot was moved \
                 ahead, or dropped and made again",
                self.slot
            );
            return end(Reason::SlotMovedAhead, message, published, self.slot);
        }
        if self.wal_end < published && !self.in_recovery {
            let message = format!(
                "the server's log ends at {}, but what is before {published} was published: the server was restored \
                 from an older state",
                self.wal_end
            );
            return end(Reason::ServerBehind, message, self.wal_end, published);
        }
        Ok(())
    }

    /// Same server, and a history that holds what was published.
    fn verify_history(&self, names: &Names, record: &PositionRecord) -> Result<(), Terminal> {
        let SourceIdentity::Postgres { system_id, timeline, .. } = &self.identity else { return Ok(()) };
        let (published, old_timeline) = match (&record.position, &record.source) {
            (Position::Postgres(published), SourceIdentity::Postgres { system_id: old, timeline, .. })
                if old == system_id =>
            {
                (*published, timeline)
            }
            _ => return Err(other_server(record, system_id, names)),
        };
        if old_timeline == timeline {
            return Ok(());
        }
        let fork = self.forks.iter().find(|fork| fork.timeline == *old_timeline).map(|fork| fork.at);
        if fork.is_some_and(|at| published <= at) {
            return Ok(());
        }
        let from = fork.map(Position::Postgres);
        let place = fork.map_or_else(|| "an unknown place".to_owned(), |at| at.to_string());
        Err(Terminal {
            reason: Reason::TimelineDiverged,
            message: format!(
                "the server is on timeline {timeline}, which left timeline {old_timeline} at {place}, but what is \
                 before {published} was published: consumers hold events that this server never had"
            ),
            gap: Some(Gap { from, to: Some(record.position.clone()) }),
            hint: names.leave_hint(),
        })
    }
}

/// Slot and database.
fn place(identity: &SourceIdentity) -> Option<(&String, &String)> {
    match identity {
        SourceIdentity::Postgres { slot, database, .. } => Some((slot, database)),
        SourceIdentity::Mysql { .. } | SourceIdentity::Mariadb { .. } => None,
    }
}

/// The server is another one than the one that was published from.
#[must_use]
pub(super) fn other_server(record: &PositionRecord, system_id: &str, names: &Names) -> Terminal {
    Terminal {
        reason: Reason::OtherServer,
        message: format!(
            "the server has system identifier {system_id}, and the instance published from {} before",
            record.source.system_id().cloned().unwrap_or_else(|| record.source.server())
        ),
        gap: Some(Gap { from: Some(record.position.clone()), to: None }),
        hint: names.leave_hint(),
    }
}

/// Something that is not as it was, so that rows may have been passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// The stable code.
    pub reason: Reason,
    /// What it is, one line.
    pub message: String,
    /// Whether it may have hidden nothing at all, with the slot in order.
    may_be_harmless: bool,
}

impl Difference {
    /// One that hides rows.
    #[must_use]
    pub(super) fn new(reason: Reason, message: String) -> Self {
        Self { reason, message, may_be_harmless: false }
    }

    /// The state that it leads to.
    #[must_use]
    pub(super) fn terminal(self, names: &Names, gap: Gap) -> Terminal {
        let Self { reason, message, may_be_harmless } = self;
        let leave = names.leave_hint();
        let hint = if may_be_harmless {
            format!(
                "if inserts were published all the time, as with a change of the owner or of another option, nothing is \
                 missing: stop the relay, run {} with the slot's position, which {} shows, and start it again; else {leave}",
                names.resume_command("POSITION"),
                names.command("status")
            )
        } else {
            leave
        };
        Terminal { reason, message, gap: Some(gap), hint }
    }
}

/// What is another one than before: publication, table, or membership; or a publication that was altered, since it may
/// have been altered back. `None` if nothing is. What an older record does not know is not judged.
#[must_use]
pub(super) fn difference(before: &SourceIdentity, now: &SourceIdentity) -> Option<Difference> {
    let SourceIdentity::Postgres {
        publication: old_publication,
        publication_oid: old_oid,
        publication_xmin: old_xmin,
        tables: old_tables,
        schemas: old_schemas,
        ..
    } = before
    else {
        return None;
    };
    let SourceIdentity::Postgres { publication, publication_oid, publication_xmin, tables, schemas, .. } = now else {
        return None;
    };
    if (old_publication, old_oid) != (publication, publication_oid) {
        let message = format!(
            "publication \"{publication}\" (OID {publication_oid}) is not the one that was used before \
             (\"{old_publication}\", OID {old_oid}): rows written in between may not be published"
        );
        return Some(Difference::new(Reason::PublicationRemade, message));
    }
    for table in tables {
        // a table that is configured for the first time has no history
        let Some(old) = old_tables.iter().find(|old| old.name == table.name) else { continue };
        if old.oid != table.oid {
            let message = format!(
                "table \"{}\" (OID {}) is not the one that was used before (OID {}): it was dropped and made again, \
                 and rows written meanwhile may not be published",
                table.name, table.oid, old.oid
            );
            return Some(Difference::new(Reason::TableRemade, message));
        }
        if old.membership_oid != table.membership_oid {
            let again = if table.membership_oid.is_some() { " and put in again" } else { "" };
            let message = format!(
                "table \"{}\" was taken out of publication \"{publication}\"{again}: rows written meanwhile may not be \
                 published",
                table.name
            );
            return Some(Difference::new(Reason::TableNotPublished, message));
        }
    }
    let is_another = |schema: &&SchemaIdentity| {
        old_schemas.iter().any(|old| old.oid == schema.oid && old.membership_oid != schema.membership_oid)
    };
    if let Some(schema) = schemas.iter().find(is_another) {
        let message = format!(
            "schema \"{}\" was taken out of publication \"{publication}\" and put in again: rows written meanwhile may not \
             be published",
            schema.name
        );
        return Some(Difference::new(Reason::TableNotPublished, message));
    }
    let ((Some(old_xmin), Some(xmin)), true) = ((old_xmin, publication_xmin), old_xmin != publication_xmin) else {
        return None;
    };
    let message = format!(
        "publication \"{publication}\" was altered (ALTER PUBLICATION … SET, OWNER TO or RENAME TO, last by transaction \
         {xmin}, before by {old_xmin}): rows written while it did not publish inserts, or had another name, are not published"
    );
    Some(Difference { reason: Reason::TableNotPublished, message, may_be_harmless: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::positions::{FORMAT, TableIdentity};
    use crate::source::Disposition;

    fn names() -> Names {
        Names {
            instance: "shop".to_owned(),
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            file: None,
            file_flags: Vec::new(),
        }
    }

    fn identity(timeline: u32) -> SourceIdentity {
        SourceIdentity::Postgres {
            system_id: "77".to_owned(),
            timeline,
            database: "d".to_owned(),
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            publication_oid: 10,
            publication_xmin: Some(40),
            tables: vec![TableIdentity { name: "public.outbox".to_owned(), oid: 20, membership_oid: Some(30) }],
            schemas: vec![SchemaIdentity { name: "s".to_owned(), oid: 50, membership_oid: 60 }],
        }
    }

    fn record(position: u64) -> PositionRecord {
        PositionRecord {
            version: FORMAT,
            instance: "shop".to_owned(),
            generation: 1,
            source: identity(1),
            position: Position::Postgres(Lsn(position)),
            verified: Position::Postgres(Lsn(position)),
        }
    }

    fn standing(slot: u64) -> Standing {
        let (identity, slot, wal_end) = (identity(1), Lsn(slot), Lsn(1000));
        Standing { identity, slot, wal_end, in_recovery: false, forks: Vec::new() }
    }

    fn reason(standing: &Standing, position: u64) -> Option<(Reason, String)> {
        let error = standing.verify(&names(), &record(position)).err()?;
        Some((error.reason, error.gap.unwrap_or_default().to_string()))
    }

    #[test]
    fn a_slot_at_or_behind_what_was_published_goes_on() {
        assert_eq!(reason(&standing(100), 100), None);
        assert_eq!(reason(&standing(40), 100), None);
    }

    #[test]
    fn a_slot_ahead_names_the_gap() {
        assert_eq!(reason(&standing(101), 100), Some((Reason::SlotMovedAhead, "0/64 to 0/65".to_owned())));
    }

    #[test]
    fn a_log_that_ends_before_what_was_published_is_an_older_state() {
        assert_eq!(reason(&standing(100), 1001), Some((Reason::ServerBehind, "0/3E8 to 0/3E9".to_owned())));
    }

    #[test]
    fn a_standby_may_still_get_what_was_published() {
        let standby = Standing { in_recovery: true, ..standing(100) };
        assert!(standby.judge(&names(), &record(1000)).is_ok());
        let error = standby.judge(&names(), &record(1001)).unwrap_err();
        assert_eq!((error.disposition(), error.reason()), (Disposition::Retry, Reason::SourceUnreachable));
    }

    #[test]
    fn a_fork_behind_what_was_published_goes_on_and_one_before_does_not() {
        let mut after = standing(100);
        after.identity = identity(2);
        after.forks = parse_history("1\t0/64\tno recovery target specified\n");
        assert_eq!(reason(&after, 100), None);
        assert_eq!(reason(&after, 101), Some((Reason::TimelineDiverged, "0/64 to 0/65".to_owned())));
        after.forks.clear();
        assert_eq!(reason(&after, 100), Some((Reason::TimelineDiverged, "? to 0/64".to_owned())));
    }

    #[test]
    fn every_identity_counts() {
        type Parts<'a> = (&'a mut String, &'a mut String, &'a mut String, &'a mut u32, &'a mut Vec<TableIdentity>);
        fn parts(identity: &mut SourceIdentity) -> Parts<'_> {
            match identity {
                SourceIdentity::Postgres { system_id, slot, database, publication_oid, tables, .. } => {
                    (system_id, slot, database, publication_oid, tables)
                }
                other => panic!("{other:?}"),
            }
        }
        let change = |change: fn(Parts<'_>)| {
            let mut changed = standing(50);
            change(parts(&mut changed.identity));
            reason(&changed, 100).map(|(reason, _)| reason)
        };
        assert_eq!(change(|(system_id, ..)| *system_id = "78".into()), Some(Reason::OtherServer));
        assert_eq!(change(|(_, slot, ..)| *slot = "t".into()), Some(Reason::OtherSlot));
        assert_eq!(change(|(_, _, database, ..)| *database = "e".into()), Some(Reason::OtherSlot));
        assert_eq!(change(|(_, _, _, publication_oid, _)| *publication_oid = 11), Some(Reason::PublicationRemade));
        assert_eq!(change(|(.., tables)| tables[0].oid = 21), Some(Reason::TableRemade));
        assert_eq!(change(|(.., tables)| tables[0].membership_oid = Some(31)), Some(Reason::TableNotPublished));
        let new_table = TableIdentity { name: "a.b".to_owned(), oid: 1, membership_oid: None };
        let mut wider = standing(50);
        parts(&mut wider.identity).4.push(new_table);
        assert_eq!(reason(&wider, 100), None, "a table that is new in the configuration");
    }

    type Later<'a> = (&'a mut Option<u32>, &'a mut Vec<SchemaIdentity>);

    fn later(identity: &mut SourceIdentity) -> Later<'_> {
        match identity {
            SourceIdentity::Postgres { publication_xmin, schemas, .. } => (publication_xmin, schemas),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_altered_and_altered_back_counts() {
        let change = |change: fn(Later<'_>)| {
            let mut changed = standing(50);
            change(later(&mut changed.identity));
            changed.verify(&names(), &record(100)).err()
        };
        let altered = change(|(xmin, _)| *xmin = Some(41)).unwrap();
        assert!(altered.reason == Reason::TableNotPublished && altered.message.contains("was altered"), "{altered}");
        assert!(altered.hint.contains("resume --from POSITION"), "{}", altered.hint);
        let again = change(|(_, schemas)| schemas[0].membership_oid = 61).unwrap();
        assert!(again.message.contains("schema \"s\" was taken out") && !again.hint.contains("POSITION"), "{again}");
        assert!(change(|(_, schemas)| schemas[0].oid = 51).is_none(), "a schema that is new");
        assert!(change(|(_, schemas)| schemas.clear()).is_none(), "a schema that has gone");
    }

    #[test]
    fn what_an_older_record_does_not_know_is_not_judged() {
        let mut old = record(100);
        let (xmin, schemas) = later(&mut old.source);
        *xmin = None;
        schemas.clear();
        assert!(standing(50).verify(&names(), &old).is_ok());
    }

    #[test]
    fn a_record_of_another_kind_of_server_is_another_server() {
        let mut foreign = record(100);
        foreign.source = SourceIdentity::Mysql { server: "u".to_owned() };
        foreign.position = "@bin.000001:4".parse().unwrap();
        let error = standing(50).verify(&names(), &foreign).unwrap_err();
        assert!(error.reason == Reason::OtherServer && error.message.contains("MySQL"), "{error}");
    }
}
