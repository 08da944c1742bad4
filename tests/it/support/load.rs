//! Rows that are written under load, numbered so that a [`Ledger`](super::ledger::Ledger) can tell what is missing.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::postgres::Session;
use super::{Case, Config, Kafka, quote, within};

/// Distance between the numbers of two writers.
pub(crate) const SPAN: u64 = 1_000_000_000;

/// The kind of event that all these rows are.
pub(crate) const KIND: &str = "order";

/// Runs statements on one connection.
pub(crate) type Link = Box<dyn FnMut(&str) -> Result<(), String>>;

/// A case whose table takes numbered rows.
pub(crate) trait Ground {
    fn kafka(&self) -> &Kafka;

    /// The topic of [`KIND`].
    fn topic_of_load(&self) -> String;

    /// A relay's configuration that logs no more than state changes.
    fn quiet_config(&self) -> Config;

    /// Makes connections, from whichever thread.
    fn connector(&self) -> impl Fn() -> Result<Link, String> + Clone + Send + 'static;

    /// Statements that commit the rows `first..end` of a writer in one transaction. The payload begins with the row's
    /// number, and so does the id; a key's numbers grow.
    fn transaction_sql(&self, load: &Load, writer: u64, first: u64, end: u64) -> String;

    /// The position that the relay has stored, as text.
    fn position_text(&self) -> Option<String>;
}

/// Rows to write. Each key belongs to one writer, and a writer has one connection, so that the commit order of a key
/// is the order of its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) writers: u64,
    /// Rows of each writer.
    pub(crate) rows: u64,
    /// Keys of each writer.
    pub(crate) keys: u64,
    pub(crate) per_transaction: u64,
    /// Length of each payload, about.
    pub(crate) bytes: u64,
    /// Pause after each transaction.
    pub(crate) pause: Duration,
    /// Whether the server may go away: a transaction whose outcome is not known is tried again.
    pub(crate) stubborn: bool,
}

impl Load {
    /// At full speed: 1,000 keys, 100 rows a transaction.
    pub(crate) fn full_speed(rows: u64) -> Self {
        let (writers, keys) = (4, 250);
        Self {
            writers,
            rows: rows / writers,
            keys,
            per_transaction: 100,
            bytes: 300,
            pause: Duration::ZERO,
            stubborn: false,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.writers * self.rows
    }

    /// Every number that is written.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> {
        (0..self.writers).flat_map(move |writer| (0..self.rows).map(move |row| writer * SPAN + row))
    }

    /// Begins to write, each writer in a thread.
    pub(crate) fn begin(self, ground: &impl Ground) -> Vec<JoinHandle<()>> {
        let writer = |writer| {
            let transactions: Vec<_> = (0..self.rows)
                .step_by(usize::try_from(self.per_transaction).unwrap())
                .map(|first| ground.transaction_sql(&self, writer, first, self.rows.min(first + self.per_transaction)))
                .collect();
            let connect = ground.connector();
            std::thread::spawn(move || self.write(connect, &transactions))
        };
        (0..self.writers).map(writer).collect()
    }

    fn write(&self, connect: impl Fn() -> Result<Link, String>, transactions: &[String]) {
        let mut link = None;
        for sql in transactions {
            let begin = Instant::now();
            loop {
                let failure = match link.take().map_or_else(&connect, Ok) {
                    Ok(mut open) => match open(sql) {
                        Ok(()) => {
                            link = Some(open);
                            break;
                        }
                        Err(error) => error,
                    },
                    Err(error) => error,
                };
                assert!(self.stubborn && begin.elapsed() < within(60), "a row could not be written: {failure}");
                std::thread::sleep(Duration::from_millis(100));
            }
            std::thread::sleep(self.pause);
        }
    }
}

pub(crate) fn finish(writers: Vec<JoinHandle<()>>) {
    for writer in writers {
        writer.join().expect("a writer failed");
    }
}

impl Ground for Case {
    fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    fn topic_of_load(&self) -> String {
        self.topic(KIND)
    }

    fn quiet_config(&self) -> Config {
        self.config().set("log.level", "info")
    }

    fn connector(&self) -> impl Fn() -> Result<Link, String> + Clone + Send + 'static {
        let url = self.db.url();
        move || {
            let session = Session::try_connect(&url).map_err(|error| format!("{error:?}"))?;
            Ok(Box::new(move |sql: &str| session.try_run(sql).map_err(|error| format!("{error:?}"))))
        }
    }

    fn transaction_sql(&self, load: &Load, writer: u64, first: u64, end: u64) -> String {
        let (kind, keys, bytes) = (quote(&self.kind(KIND)), load.keys, load.bytes);
        let (first, last) = (writer * SPAN + first, writer * SPAN + end - 1);
        let again = if load.stubborn { "ON CONFLICT (id) DO NOTHING" } else { "" };
        format!(
            "INSERT INTO outbox (id, aggregatetype, aggregateid, payload) \
             SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, {kind}, \
             'k{writer}-' || n % {keys}, n || ' ' || repeat('x', {bytes} - 8) \
             FROM generate_series({first}::bigint, {last}::bigint) n {again}"
        )
    }

    fn position_text(&self) -> Option<String> {
        self.stored_position().map(|position| position.to_string())
    }
}
