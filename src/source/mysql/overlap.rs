//! Which of the transactions that were committed around a snapshot are in it. MySQL does not tell.
//!
//! ```text
//! surely in it: GTIDs counted before  │  one by one: in it, or not  │  surely not in it
//!                                     │                             └ where the log ended after the snapshot
//!                                     └ @@gtid_executed before the snapshot
//! ```
//!
//! A commit is written to the log, then it can be seen, then its GTID is counted (MySQL source documentation, "Binary Log Group
//! Commit"). So what was counted before the snapshot is in it, and what is in it was in the log after it. The log between
//! the two is read before the tables are: a transaction is in the snapshot if the table has a row with an id that it wrote.
//! One that left no row there is not, or its rows were deleted by then: either way the stream publishes it.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::debug;

use super::assembler::{Assembler, Reading};
use super::client::Client;
use super::dump::{self, Way};
use super::error::unreachable;
use super::layout::{Wanted, same_name};
use super::lock::NamedLock;
use super::server::Server;
use super::settings::MysqlSettings;
use super::stream::BinlogSource;
use crate::change::{Batch, Item, RowView, Value};
use crate::gtid::{Gtids, MysqlGtids};
use crate::position::{BinlogPosition, Position};
use crate::source::SourceError;

/// A transaction is known by so many of its rows, whatever it wrote.
const MAX_IDS: usize = 10_000;

/// The transactions in question, and what was found out about them.
#[derive(Debug, Default)]
pub(super) struct Overlap {
    id_column: String,
    /// The transaction that wrote a row, by table and id; `None`: several did, and the id tells nothing.
    rows: HashMap<Vec<u8>, Option<usize>>,
    transactions: Vec<Transaction>,
}

#[derive(Debug, Default)]
struct Transaction {
    /// Its GTID, and those before it that wrote nothing to the outbox.
    gtids: MysqlGtids,
    is_in_snapshot: bool,
}

/// What lies between the two.
pub(super) struct Span<'a> {
    /// All that is surely in the snapshot.
    pub begin: &'a BinlogPosition,
    /// Where the log ended after the snapshot was taken.
    pub end: &'a BinlogPosition,
}

impl Overlap {
    /// Reads the log of the span, over a connection of its own.
    ///
    /// # Errors
    /// Those of a stream, but none is terminal: another snapshot has another span.
    pub(super) async fn read(
        settings: &Arc<MysqlSettings>,
        server: &Server,
        wanted: Wanted,
        lock: &Arc<NamedLock>,
        Span { begin, end }: Span<'_>,
    ) -> Result<Self, SourceError> {
        let mut client = Client::connect(&settings.connect).await?;
        // the server finds the place, which may be before the one that was its log's end a moment ago
        let begin = BinlogPosition::new(begin.gtids.clone(), String::new(), 0);
        dump::begin(&mut client, settings, &begin, Way::Gtids).await?;
        let reading = Reading { by_place: false, is_resumed: false };
        let assembler = Assembler::new(settings.tables.clone(), server.ignores_case(), wanted, &begin, reading);
        let handed_over = Position::Binlog(Arc::new(begin.clone()));
        let (settings, lock) = (Arc::clone(settings), Arc::clone(lock));
        let mut stream = BinlogSource { client, assembler, settings, lock, handed_over };
        let mut overlap = Self { id_column: stream.settings.id_column.clone(), ..Self::default() };
        let (mut batch, mut counted, mut ids) = (Batch::default(), begin.gtids.clone(), Vec::new());
        while !stream.assembler.has_reached(end) {
            batch.clear();
            stream.drain(&mut batch).map_err(passing)?;
            overlap.note(&batch, &mut counted, &mut ids);
            if batch.is_empty() {
                let patience = stream.settings.silence_timeout;
                let silent = |error| unreachable("the server sends nothing of its binary log", error);
                tokio::time::timeout(patience, stream.fill()).await.map_err(silent)??;
            }
        }
        debug!(transactions = overlap.transactions.len(), %begin, %end, "read what was committed around the snapshot");
        Ok(overlap)
    }

    /// Adds the transactions that end in `batch`; `ids` are those of the one that is open.
    fn note(&mut self, batch: &Batch, counted: &mut Gtids, ids: &mut Vec<Vec<u8>>) {
        for item in batch.items() {
            match item {
                Item::Row(row) if ids.len() < MAX_IDS => ids.extend(self.key(&batch.view(row))),
                Item::Commit(position) => {
                    let Some(place) = position.binlog() else { continue };
                    let gtids = match (&place.gtids, &*counted) {
                        (Gtids::Mysql(now), Gtids::Mysql(before)) => now.without(before),
                        _ => MysqlGtids::default(),
                    };
                    counted.clone_from(&place.gtids);
                    let number = Some(self.transactions.len());
                    for id in ids.drain(..) {
                        let writer = self.rows.entry(id).or_insert(number);
                        *writer = number.filter(|_| *writer == number);
                    }
                    self.transactions.push(Transaction { gtids, is_in_snapshot: false });
                }
                _ => {}
            }
        }
    }

    /// Looks for the transactions of rows that the snapshot has.
    pub(super) fn find(&mut self, batch: &Batch) {
        if self.rows.is_empty() {
            return;
        }
        for item in batch.items() {
            let Item::Row(row) = item else { continue };
            let number = self.key(&batch.view(row)).and_then(|key| self.rows.remove(&key)).flatten();
            if let Some(transaction) = number.and_then(|number| self.transactions.get_mut(number)) {
                transaction.is_in_snapshot = true;
            }
        }
    }

    /// What the snapshot holds, all its rows being seen: `begin`, and what was found.
    pub(super) fn complete(&self, begin: &BinlogPosition) -> BinlogPosition {
        let mut gtids = begin.gtids.clone();
        if let Gtids::Mysql(set) = &mut gtids {
            for found in self.transactions.iter().filter(|transaction| transaction.is_in_snapshot) {
                set.add_all(&found.gtids);
            }
        }
        BinlogPosition::new(gtids, begin.file.clone(), begin.offset)
    }

    /// The table and the id of a row; `None`: it has none.
    fn key(&self, row: &RowView<'_>) -> Option<Vec<u8>> {
        let index = row.relation.columns.iter().position(|column| same_name(&column.name, &self.id_column))?;
        let (Value::Text(id) | Value::Binary(id)) = row.value(index)? else { return None };
        let mut key = Vec::with_capacity(row.relation.schema.len() + row.relation.table.len() + id.len() + 2);
        for part in [row.relation.schema.as_bytes(), row.relation.table.as_bytes()] {
            key.extend_from_slice(part);
            key.push(0);
        }
        key.extend_from_slice(id);
        Some(key)
    }
}

/// What ends a stream does not end the first read: the next snapshot is behind it.
fn passing(error: SourceError) -> SourceError {
    match error {
        SourceError::Terminal(terminal) => {
            unreachable("what was committed while a snapshot was taken cannot be read; another one is tried", *terminal)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Cell, Column, ColumnType, Relation};

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    /// A batch of steps: `+ID` is a row, `=GTIDS` a commit with all GTIDs so far.
    fn batch(table: &str, steps: &[&str]) -> Batch {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        let relation = Arc::new(Relation {
            serial: 1,
            schema: "shop".to_owned(),
            table: table.to_owned(),
            columns: vec![column("payload", ColumnType::Text), column("ID", ColumnType::Text)],
        });
        let mut batch = Batch::default();
        for step in steps {
            match step.split_at(1) {
                ("+", id) => {
                    let body = format!("x{id}");
                    let cells = [Cell::Text(0..1), Cell::Text(1..body.len())];
                    batch.push_row(Arc::clone(&relation), body.into(), cells);
                }
                (_, gtids) => batch.push(Item::Commit(format!("{A}:{gtids}@bin.000001:9").parse().unwrap())),
            }
        }
        batch
    }

    fn place(gtids: &str) -> BinlogPosition {
        format!("{A}:{gtids}@bin.000001:4").parse().unwrap()
    }

    #[test]
    fn transactions_with_a_row_in_the_snapshot_are_in_it() {
        let begin = place("1-10");
        let mut overlap = Overlap { id_column: "id".to_owned(), ..Overlap::default() };
        let (mut counted, mut ids) = (begin.gtids.clone(), Vec::new());
        // 12 wrote nothing to the outbox, 14 was counted before 13 and goes over two batches
        overlap.note(&batch("outbox", &["+a", "+b", "=1-11", "+c"]), &mut counted, &mut ids);
        overlap.note(&batch("outbox", &["+d", "=1-12:14", "+e", "=1-14", "=1-15"]), &mut counted, &mut ids);
        assert_eq!(overlap.complete(&begin).gtids, begin.gtids);
        // the first row of the first was deleted since, and what only has the same id in another table is another row
        overlap.find(&batch("outbox", &["+old", "+b", "+d"]));
        overlap.find(&batch("other", &["+e"]));
        assert_eq!(overlap.complete(&begin).gtids, place("1-12:14").gtids);
        overlap.find(&batch("outbox", &["+e"]));
        assert_eq!(overlap.complete(&begin).gtids, place("1-14").gtids);
        // which of the two stands in the table cannot be told: rather twice than never
        overlap.note(&batch("outbox", &["+same", "=1-16", "+same", "=1-17"]), &mut counted, &mut ids);
        overlap.find(&batch("outbox", &["+same"]));
        assert_eq!(overlap.complete(&begin).gtids, place("1-14").gtids);
    }
}
