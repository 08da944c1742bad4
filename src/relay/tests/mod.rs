//! The session's promises, with a scripted source and sink under tokio's paused clock: any order of events that real
//! servers may bring, brought on purpose.

mod attempts;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Reporter;
use super::session::{End, Session, Settings};
use crate::change::{Batch, Cell, Column, ColumnType, Item, Relation};
use crate::config::{Config, DeliveryConfig, OnUpdate};
use crate::http::Heartbeat;
use crate::metrics::Metrics;
use crate::position::{Lsn, Position};
use crate::record::Record;
use crate::route::Router;
use crate::sink::positions::{FORMAT, PositionRecord, SourceIdentity};
use crate::sink::{Ack, Acknowledgements, Blocked, Enqueued, Ordinal, Sink, SinkError};
use crate::source::{Source, SourceError, Terminal};
use crate::state::{Gap, Phase, Reason, StatusBoard};

fn at(lsn: u64) -> Position {
    Position::Postgres(Lsn(lsn))
}

/// One row of a transaction; `None` is a row without routing value.
fn push_row(batch: &mut Batch, relation: &Arc<Relation>, topic: Option<&str>) {
    let text = topic.unwrap_or_default();
    let cell = if topic.is_some() { Cell::Text(0..text.len()) } else { Cell::Null };
    batch.push_row(Arc::clone(relation), Bytes::copy_from_slice(text.as_bytes()), vec![cell; 4]);
}

fn relation() -> Arc<Relation> {
    let column = |name: &str| Column { name: name.to_owned(), kind: ColumnType::Text };
    Arc::new(Relation {
        serial: 1,
        schema: "public".to_owned(),
        table: "outbox".to_owned(),
        columns: ["id", "aggregatetype", "aggregateid", "payload"].map(column).to_vec(),
    })
}

/// What one read brings.
#[derive(Clone, Debug)]
enum Read {
    /// A whole transaction of so many rows that ends at this LSN.
    Transaction(u32, u64),
    /// The beginning of a transaction and so many rows of it.
    Opens(u32),
    /// So many more rows of it, and its end.
    Closes(u32, u64),
    /// A stop is asked for.
    Stop,
    /// A transaction whose only row has no topic.
    Poison(u64),
    /// A keepalive.
    Progress(u64),
    /// Nothing comes for so long.
    Wait(Duration),
    /// The connection breaks.
    Break,
    /// A whole transaction of so many rows that ends at this LSN, and behind it what nobody can read.
    Fails(u32, u64),
    /// Nothing follows.
    End,
}

/// What both sides saw, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Enqueued(Ordinal),
    Acknowledged(Ordinal),
    Committed(Position),
    Confirmed(Position),
    Completed,
    Closed,
}

type Log = Arc<Mutex<Vec<Seen>>>;

struct ScriptedSource {
    script: VecDeque<Read>,
    relation: Arc<Relation>,
    log: Log,
    stop: CancellationToken,
    waits_until: Option<Instant>,
}

impl ScriptedSource {
    fn new(script: Vec<Read>, log: &Log, stop: &CancellationToken) -> Self {
        let (log, stop) = (Arc::clone(log), stop.clone());
        Self { script: script.into(), relation: relation(), log, stop, waits_until: None }
    }

    fn rows(&self, count: u32, batch: &mut Batch) {
        for _ in 0..count {
            push_row(batch, &self.relation, Some("T"));
        }
    }
}

impl Source for ScriptedSource {
    async fn read(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        // as a socket: something comes after a while, or never
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(Read::Wait(time)) = self.script.front() {
            let until = *self.waits_until.get_or_insert_with(|| Instant::now() + *time);
            tokio::time::sleep_until(until).await;
            self.waits_until = None;
        }
        match self.script.pop_front() {
            None => std::future::pending().await,
            Some(Read::Break) => Err(SourceError::Connection {
                reason: Reason::SourceUnreachable,
                message: "broke".to_owned(),
                source: None,
            }),
            // as a keepalive that tells nothing new
            Some(Read::Wait(_)) => {
                batch.push(Item::Progress(at(1)));
                Ok(())
            }
            Some(Read::End) => {
                batch.push(Item::End);
                Ok(())
            }
            Some(Read::Progress(lsn)) => {
                batch.push(Item::Progress(at(lsn)));
                Ok(())
            }
            Some(Read::Poison(lsn)) => {
                batch.push(Item::Begin { commit_ts_us: 0 });
                push_row(batch, &self.relation, None);
                batch.push(Item::Commit(at(lsn)));
                Ok(())
            }
            Some(Read::Transaction(rows, lsn)) => {
                batch.push(Item::Begin { commit_ts_us: 0 });
                self.rows(rows, batch);
                batch.push(Item::Commit(at(lsn)));
                Ok(())
            }
            Some(Read::Fails(rows, lsn)) => {
                batch.push(Item::Begin { commit_ts_us: 0 });
                self.rows(rows, batch);
                batch.push(Item::Commit(at(lsn)));
                Err(SourceError::Terminal(Box::new(Terminal {
                    reason: Reason::LogNotUnderstood,
                    message: "not understood".to_owned(),
                    gap: Some(Gap { from: Some(at(lsn)), to: None }),
                    hint: String::new(),
                })))
            }
            Some(Read::Opens(rows)) => {
                batch.push(Item::Begin { commit_ts_us: 0 });
                self.rows(rows, batch);
                Ok(())
            }
            Some(Read::Closes(rows, lsn)) => {
                self.rows(rows, batch);
                batch.push(Item::Commit(at(lsn)));
                Ok(())
            }
            Some(Read::Stop) => {
                self.stop.cancel();
                Ok(())
            }
        }
    }

    async fn confirm(&mut self, durable: Option<Position>) -> Result<(), SourceError> {
        self.log.lock().unwrap().extend(durable.map(Seen::Confirmed));
        Ok(())
    }

    fn wants_word(&self) -> bool {
        false
    }

    fn silent_for(&self) -> Duration {
        Duration::ZERO
    }

    fn verified(&self) -> Position {
        at(1)
    }

    fn retained_bytes(&self) -> Option<u64> {
        None
    }

    async fn complete(&mut self) -> Result<(), SourceError> {
        self.log.lock().unwrap().push(Seen::Completed);
        Ok(())
    }

    async fn close(self) {
        self.log.lock().unwrap().push(Seen::Closed);
    }
}

/// A sink that acknowledges in a scripted order, takes only so many records at once, and commits after a while.
struct ScriptedSink {
    log: Log,
    /// Records that are not acknowledged.
    outstanding: Vec<Ordinal>,
    /// Which of them is next.
    picks: VecDeque<prop::sample::Index>,
    capacity: usize,
    committing: Option<Position>,
    /// What one record takes of the window; all are alike.
    bytes: u64,
    /// Records after which the broker is gone.
    dies_after: Option<usize>,
    /// Whether it comes back at once then, having learned something.
    learns: bool,
    /// Sessions that it begins before no broker answers any more.
    opens: usize,
    is_open: bool,
    blocked: Option<Blocked>,
}

impl ScriptedSink {
    /// One acknowledgement, commit or failure; `None` if there is nothing to say.
    fn next_word(&mut self, into: &mut Acknowledgements) -> Option<Result<(), SinkError>> {
        let mut log = self.log.lock().unwrap();
        let done = log.iter().filter(|seen| matches!(seen, Seen::Acknowledged(_))).count();
        if self.dies_after.is_some_and(|limit| done >= limit) {
            let message = "gone".to_owned();
            return Some(Err(SinkError::Restart { reason: Reason::SinkUnreachable, message, at_once: self.learns }));
        }
        if let Some(position) = self.committing.take() {
            log.push(Seen::Committed(position.clone()));
            into.committed = Some(position);
            return Some(Ok(()));
        }
        if self.outstanding.is_empty() {
            return None;
        }
        let pick = self.picks.pop_front()?;
        let ordinal = self.outstanding.remove(pick.index(self.outstanding.len()));
        log.push(Seen::Acknowledged(ordinal));
        into.acks.push(Ack { ordinal, records: 1, bytes: self.bytes });
        Some(Ok(()))
    }
}

impl Sink for ScriptedSink {
    async fn open(&mut self, _: &str) -> Result<Option<PositionRecord>, SinkError> {
        self.is_open = false;
        let Some(left) = self.opens.checked_sub(1) else { return std::future::pending().await };
        (self.opens, self.is_open) = (left, true);
        Ok(None)
    }

    async fn stored_position(&mut self, _: &str) -> Result<Option<PositionRecord>, SinkError> {
        Ok(None)
    }

    async fn close(&mut self, _: Duration) {
        self.is_open = false;
    }

    fn enqueue(&mut self, record: &Record<'_>, ordinal: Ordinal) -> Result<Enqueued, SinkError> {
        if self.blocked.is_some() {
            return Ok(Enqueued::Blocked);
        }
        if self.outstanding.len() >= self.capacity {
            return Ok(Enqueued::Full);
        }
        self.outstanding.push(ordinal);
        self.bytes = record.window_bytes();
        self.log.lock().unwrap().push(Seen::Enqueued(ordinal));
        Ok(Enqueued::Queued)
    }

    async fn acknowledged(&mut self, into: &mut Acknowledgements) -> Result<(), SinkError> {
        tokio::time::sleep(Duration::from_millis(3)).await;
        match self.next_word(into) {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }

    fn commit(&mut self, record: &PositionRecord) -> Result<bool, SinkError> {
        if self.committing.is_some() {
            return Ok(false);
        }
        self.committing = Some(record.position.clone());
        Ok(true)
    }

    fn blocked(&self) -> Option<Blocked> {
        self.blocked.clone()
    }

    fn is_connected(&self) -> bool {
        self.is_open
    }
}

/// A sink that acknowledges nothing until it is told otherwise.
fn sink(log: &Log) -> ScriptedSink {
    ScriptedSink {
        log: Arc::clone(log),
        outstanding: Vec::new(),
        picks: VecDeque::new(),
        capacity: usize::MAX,
        committing: None,
        bytes: 0,
        dies_after: None,
        learns: false,
        opens: usize::MAX,
        is_open: true,
        blocked: None,
    }
}

fn start() -> PositionRecord {
    PositionRecord {
        version: FORMAT,
        instance: "test".to_owned(),
        generation: 1,
        source: SourceIdentity::Postgres {
            system_id: "1".to_owned(),
            timeline: 1,
            database: "d".to_owned(),
            slot: "s".to_owned(),
            publication: "p".to_owned(),
            publication_oid: 1,
            publication_xmin: None,
            tables: Vec::new(),
            schemas: Vec::new(),
        },
        position: at(1),
        verified: at(1),
    }
}

/// What both sides saw of a session, and how it ended.
type Ran = (Option<End>, Vec<Seen>, StatusBoard);

/// Runs a session for two seconds of the paused clock, or until it ends by itself.
async fn run(reads: Vec<Read>, change: impl FnOnce(&mut ScriptedSink)) -> Ran {
    run_from(Some(start()), reads, change).await
}

async fn run_from(start: Option<PositionRecord>, reads: Vec<Read>, change: impl FnOnce(&mut ScriptedSink)) -> Ran {
    run_for(Duration::from_secs(2), start, reads, change).await
}

async fn run_for(
    time: Duration,
    start: Option<PositionRecord>,
    reads: Vec<Read>,
    change: impl FnOnce(&mut ScriptedSink),
) -> Ran {
    let (log, stop) = (Log::default(), CancellationToken::new());
    let source = ScriptedSource::new(reads, &log, &stop);
    let mut sink = sink(&log);
    change(&mut sink);
    let config = Config::default();
    let delivery = DeliveryConfig { shutdown_timeout: Duration::from_secs(1), ..DeliveryConfig::default() };
    let settings = Settings { delivery, on_update: OnUpdate::Warn, silence_timeout: Duration::from_secs(30) };
    let board = StatusBoard::default();
    let (metrics, _) = Metrics::new("test", &[]);
    let mut reporter = Reporter::new(board.clone(), metrics, Heartbeat::default(), 1 << 20);
    let mut router = Router::new(&config);
    let session = Session::new(&settings, source, &mut sink, &mut router, &mut reporter, start);
    let end = tokio::time::timeout(time, session.run(&stop)).await.ok();
    let seen = log.lock().unwrap().clone();
    (end, seen, board)
}

/// A position may be committed only when every record before it is acknowledged, and confirmed only when committed.
fn check(reads: &[Read], seen: &[Seen]) -> Result<(), TestCaseError> {
    // ordinal -> where its transaction ends, and how many rows it has
    let transactions: Vec<(u32, u64)> = reads
        .iter()
        .filter_map(|read| match read {
            Read::Transaction(rows, lsn) => Some((*rows, *lsn)),
            _ => None,
        })
        .collect();
    let mut acknowledged = vec![0; transactions.len()];
    let mut committed = None;
    let mut confirmed = None;
    for step in seen {
        match step {
            Seen::Acknowledged(ordinal) => acknowledged[*ordinal] += 1,
            Seen::Committed(position) => {
                prop_assert!(Some(position) > committed.as_ref(), "commits go forward");
                for (index, (rows, lsn)) in transactions.iter().enumerate() {
                    if at(*lsn) <= *position {
                        prop_assert_eq!(acknowledged[index], *rows, "committed {} too early", position);
                    }
                }
                committed = Some(position.clone());
            }
            Seen::Confirmed(position) => {
                prop_assert!(Some(position) <= committed.as_ref(), "confirmed {} before it was committed", position);
                prop_assert!(Some(position) >= confirmed.as_ref(), "confirmations go forward");
                confirmed = Some(position.clone());
            }
            Seen::Enqueued(_) | Seen::Completed | Seen::Closed => {}
        }
    }
    Ok(())
}

fn scripts() -> impl Strategy<Value = Vec<Read>> {
    prop::collection::vec((0_u32..6, any::<bool>()), 1..20).prop_map(|steps| {
        let mut lsn = 1;
        let next = |(rows, is_progress): (u32, bool)| {
            lsn += 10;
            if is_progress { Read::Progress(lsn) } else { Read::Transaction(rows, lsn) }
        };
        steps.into_iter().map(next).collect()
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(future)
}

proptest! {
    /// Whatever the order of acknowledgements, however small the sink's queue, wherever the broker dies.
    #[test]
    fn committed_behind_acknowledged_and_confirmed_behind_committed(
        reads in scripts(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..120),
        capacity in 1_usize..8,
        dies_after in prop::option::of(0_usize..40),
    ) {
        let (end, seen, _) = block_on(run(reads.clone(), |sink| {
            sink.picks = picks.into();
            sink.capacity = capacity;
            sink.dies_after = dies_after;
        }));
        check(&reads, &seen)?;
        let rows: u32 = reads.iter().map(|read| if let Read::Transaction(rows, _) = read { *rows } else { 0 }).sum();
        let acknowledged = seen.iter().filter(|seen| matches!(seen, Seen::Acknowledged(_))).count();
        if end.is_none() && acknowledged == usize::try_from(rows).unwrap() {
            let last = reads.iter().map(|read| match read {
                Read::Transaction(_, lsn) | Read::Progress(lsn) | Read::Poison(lsn) => *lsn,
                _ => 0,
            }).max();
            let confirmed = seen.iter().rev().find_map(|seen| if let Seen::Confirmed(at) = seen { Some(at.clone()) } else { None });
            prop_assert_eq!(confirmed, last.map(at), "all is acknowledged and confirmed");
        }
    }
}

fn in_order(count: usize) -> VecDeque<prop::sample::Index> {
    // index 0 of whatever is outstanding: the oldest
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let zero = any::<prop::sample::Index>().new_tree(&mut runner).unwrap();
    std::iter::repeat_n(zero.current(), count).collect()
}

/// The first commit comes before anything is read, so that from then on a slot that is made again is noticed.
#[tokio::test(start_paused = true)]
async fn the_start_is_committed_even_if_nothing_comes() {
    let (end, seen, _) = run(Vec::new(), |_| {}).await;
    assert!(end.is_none());
    assert_eq!(seen, [Seen::Committed(at(1)), Seen::Confirmed(at(1))]);
}

/// A row that cannot be routed ends the session; what came before it is committed after the source is closed.
#[tokio::test(start_paused = true)]
async fn a_poison_row_ends_the_session_behind_what_came_before() {
    let reads = vec![Read::Transaction(2, 10), Read::Poison(20), Read::Transaction(1, 30)];
    let (end, seen, _) = run(reads, |sink| sink.picks = in_order(10)).await;
    assert!(matches!(end, Some(End::Row { .. })), "{end:?}");
    let closed = seen.iter().position(|seen| *seen == Seen::Closed).unwrap();
    let committed = seen.iter().rposition(|seen| *seen == Seen::Committed(at(10))).unwrap();
    assert!(closed < committed, "{seen:?}");
    assert!(!seen.contains(&Seen::Enqueued(2)), "nothing behind the poison goes out: {seen:?}");
}

/// A broken source is closed at once, and what is on its way is still committed, so that it is not sent again.
#[tokio::test(start_paused = true)]
async fn a_broken_source_loses_no_acknowledgement() {
    let reads = vec![Read::Transaction(3, 10), Read::Break];
    let (end, seen, _) = run(reads, |sink| sink.picks = in_order(10)).await;
    assert!(matches!(end, Some(End::Source(_))), "{end:?}");
    assert_eq!(seen.last(), Some(&Seen::Committed(at(10))), "{seen:?}");
}

/// A blocked topic stops reading and nothing else, and is told by name.
#[tokio::test(start_paused = true)]
async fn a_blocked_topic_is_told_and_moves_nothing() {
    let blocked = Blocked {
        reason: Reason::TopicMissing,
        detail: "topic \"x\" does not exist".to_owned(),
        hint: "make it".to_owned(),
    };
    let reads = vec![Read::Transaction(1, 10), Read::Transaction(1, 20)];
    let (end, seen, board) = run(reads, |sink| sink.blocked = Some(blocked)).await;
    assert!(end.is_none());
    assert_eq!(seen, [Seen::Committed(at(1)), Seen::Confirmed(at(1))]);
    let status = board.get();
    assert_eq!((status.phase, status.reason), (Phase::Blocked, Reason::TopicMissing));
    assert!(!status.is_ready());
}

fn gap_begins(end: Option<&End>) -> Option<Position> {
    match end {
        Some(End::Source(SourceError::Terminal(terminal))) => terminal.gap.as_ref().and_then(|gap| gap.from.clone()),
        _ => None,
    }
}

/// A person may go on behind what cannot be read, so what came before it goes out first, one by one if need be.
#[tokio::test(start_paused = true)]
async fn a_terminal_error_comes_behind_what_came_before() {
    let (end, seen, _) = run(vec![Read::Fails(5, 10)], |sink| {
        sink.capacity = 1;
        sink.picks = in_order(10);
    })
    .await;
    assert_eq!(seen.iter().filter(|seen| matches!(seen, Seen::Acknowledged(_))).count(), 5);
    assert!(seen.contains(&Seen::Committed(at(10))), "{seen:?}");
    assert_eq!(gap_begins(end.as_ref()), Some(at(10)), "{end:?}");
}

/// What does not go out is in the gap.
#[tokio::test(start_paused = true)]
async fn the_gap_of_a_terminal_error_begins_where_publishing_ended() {
    let (end, _, _) = run_for(Duration::from_secs(60), Some(start()), vec![Read::Fails(5, 10)], |_| {}).await;
    assert_eq!(gap_begins(end.as_ref()), Some(at(1)), "{end:?}");
}

/// A sink has its time for a record from when it got that, however long nothing was sent before.
#[tokio::test(start_paused = true)]
async fn a_pause_before_a_record_is_not_the_sinks() {
    let reads = || vec![Read::Wait(Duration::from_secs(20)), Read::Transaction(1, 10)];
    let (_, _, board) = run_for(Duration::from_secs(25), Some(start()), reads(), |_| {}).await;
    assert_eq!(board.get().phase, Phase::Streaming, "{:?}", board.get());
    let (_, _, board) = run_for(Duration::from_secs(30), Some(start()), reads(), |_| {}).await;
    assert_eq!(board.get().reason, Reason::SinkUnreachable);
}

proptest! {
    /// A first read is complete when everything is acknowledged and not before, and neither commits nor confirms.
    #[test]
    fn a_first_read_is_complete_when_all_is_acknowledged(
        portions in prop::collection::vec(1_u32..6, 0..10),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        capacity in 1_usize..8,
    ) {
        // all portions end at the same place: the snapshot's
        let mut reads: Vec<Read> = portions.iter().map(|rows| Read::Transaction(*rows, 5)).collect();
        reads.push(Read::End);
        let rows = usize::try_from(portions.iter().sum::<u32>()).unwrap();
        let is_enough = picks.len() >= rows;
        let (end, seen, _) = block_on(run_from(None, reads, |sink| {
            sink.picks = picks.into();
            sink.capacity = capacity;
        }));
        prop_assert!(!seen.iter().any(|seen| matches!(seen, Seen::Committed(_) | Seen::Confirmed(_))), "{seen:?}");
        let acknowledged = seen.iter().filter(|seen| matches!(seen, Seen::Acknowledged(_))).count();
        if is_enough {
            prop_assert!(matches!(end, Some(End::Complete)), "{end:?}");
            prop_assert_eq!(acknowledged, rows);
            prop_assert_eq!(&seen[seen.len() - 2..], &[Seen::Completed, Seen::Closed]);
        } else {
            prop_assert!(end.is_none() && !seen.contains(&Seen::Completed), "{seen:?}");
        }
    }
}

/// What is acknowledged of a first read that breaks counts for nothing.
#[tokio::test(start_paused = true)]
async fn a_broken_first_read_commits_nothing() {
    let reads = vec![Read::Transaction(3, 5), Read::Break];
    let (end, seen, _) = run_from(None, reads, |sink| sink.picks = in_order(10)).await;
    assert!(matches!(end, Some(End::Source(_))), "{end:?}");
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Committed(_) | Seen::Completed)), "{seen:?}");
}

/// A stop lets the open transaction come to its end, and takes no other one.
#[tokio::test(start_paused = true)]
async fn a_stop_cuts_no_transaction_off() {
    let reads = vec![Read::Opens(2), Read::Stop, Read::Closes(1, 10), Read::Transaction(1, 20)];
    let (end, seen, _) = run(reads, |sink| sink.picks = in_order(10)).await;
    assert!(matches!(end, Some(End::Stopped)), "{end:?}");
    let enqueued = |ordinal| seen.iter().filter(|seen| **seen == Seen::Enqueued(ordinal)).count();
    assert_eq!((enqueued(0), enqueued(1)), (3, 0), "{seen:?}");
    assert!(seen.contains(&Seen::Confirmed(at(10))), "{seen:?}");
}

/// But only for a while: a transaction may be endless.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_ever() {
    let reads = vec![Read::Transaction(1, 10), Read::Opens(2), Read::Stop];
    let (end, seen, board) = run(reads, |sink| sink.picks = in_order(10)).await;
    assert!(matches!(end, Some(End::Stopped)), "{end:?}");
    assert_eq!(
        seen.iter().rfind(|seen| matches!(seen, Seen::Committed(_))),
        Some(&Seen::Committed(at(10))),
        "{seen:?}"
    );
    assert_eq!(board.get().phase, Phase::Stopping);
}
