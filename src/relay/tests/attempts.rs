//! What happens between sessions: which ends are waited for, and what is told meanwhile.

use super::*;
use crate::relay::{Outcome, Relay};
use crate::source::{Attached, Begun, Connector, Ready};

/// What one attempt at a session brings; after the last one nothing answers.
enum Attempt {
    Fails(SourceError),
    Streams(Vec<Read>),
}

struct ScriptedConnector {
    attempts: VecDeque<Attempt>,
    log: Log,
    stop: CancellationToken,
    retained: Option<u64>,
}

struct ScriptedReady(ScriptedSource);

impl Ready for ScriptedReady {
    type Stream = ScriptedSource;

    async fn begin(self, _: Option<&PositionRecord>) -> Result<Begun<ScriptedSource>, SourceError> {
        let PositionRecord { source: identity, position, .. } = start();
        Ok(Begun { stream: self.0, identity, position })
    }
}

impl Connector for ScriptedConnector {
    type Stream = ScriptedSource;
    type Tables = ScriptedSource;
    type Ready = ScriptedReady;

    async fn attach(&mut self, _: Option<&PositionRecord>, _: &StatusBoard) -> Result<Attached<Self>, SourceError> {
        match self.attempts.pop_front() {
            None => std::future::pending().await,
            Some(Attempt::Fails(error)) => Err(error),
            Some(Attempt::Streams(reads)) => {
                Ok(Attached::Stream(ScriptedReady(ScriptedSource::new(reads, &self.log, &self.stop))))
            }
        }
    }

    fn tables_were_read(&mut self) {}

    async fn retained_bytes(&mut self) -> Option<u64> {
        self.retained
    }
}

/// A relay that runs beside the test.
struct Running {
    board: StatusBoard,
    metrics: Metrics,
    relay: tokio::task::JoinHandle<Outcome>,
}

fn run_relay(attempts: Vec<Attempt>, retained: Option<u64>, change: impl FnOnce(&mut ScriptedSink)) -> Running {
    let (log, stop) = (Log::default(), CancellationToken::new());
    let connector =
        ScriptedConnector { attempts: attempts.into(), log: Arc::clone(&log), stop: stop.clone(), retained };
    let mut sink = sink(&log);
    change(&mut sink);
    let board = StatusBoard::default();
    let (metrics, _) = Metrics::new("test", &[]);
    let reporter = Reporter::new(board.clone(), metrics.clone(), Heartbeat::default(), 1 << 20);
    let relay = Relay::new(&Config::default(), connector, Duration::from_secs(30), sink, reporter, stop);
    Running { board, metrics, relay: tokio::spawn(relay.run()) }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

fn wrong_password() -> SourceError {
    let message = "password authentication failed".to_owned();
    SourceError::Configuration { reason: Reason::AuthenticationFailed, message, hint: "mend it".to_owned() }
}

/// A password that is being changed does not end an instance that has stood by; one that was never right does.
#[tokio::test(start_paused = true)]
async fn a_standby_waits_for_its_configuration_to_be_mended() {
    let standby = || Attempt::Fails(SourceError::SlotInUse { by_peer: true, message: "held".to_owned() });
    let attempts = vec![standby(), Attempt::Fails(wrong_password()), standby()];
    let running = run_relay(attempts, None, |_| {});
    let mut reasons = Vec::new();
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!running.relay.is_finished(), "{reasons:?}");
        let status = running.board.get();
        reasons.push((status.reason, status.is_ready()));
        reasons.dedup();
    }
    let red = (Reason::AuthenticationFailed, false);
    assert!(reasons.starts_with(&[(Reason::Standby, true), red, (Reason::Standby, true)]), "{reasons:?}");

    let running = run_relay(vec![Attempt::Fails(wrong_password())], None, |_| {});
    assert!(matches!(running.relay.await.unwrap(), Outcome::Refused { .. }));
}

/// A sink that begins anew at once does not turn health red, unless no broker answers it.
#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_begin_is_told_soon() {
    let attempts = vec![Attempt::Streams(Vec::new()), Attempt::Streams(Vec::new())];
    let running = run_relay(attempts, None, |sink| {
        (sink.opens, sink.learns, sink.dies_after) = (1, true, Some(0));
    });
    seconds(1).await;
    assert!(running.board.get().is_ready(), "{:?}", running.board.get());
    seconds(2).await;
    let status = running.board.get();
    assert_eq!((status.phase, status.reason), (Phase::Connecting, Reason::SinkUnreachable));
}

/// The same where it is the database that does not answer.
#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_answer_is_told_soon() {
    let standby = Attempt::Fails(SourceError::SlotInUse { by_peer: true, message: "held".to_owned() });
    let running = run_relay(vec![standby], None, |_| {});
    seconds(1).await;
    assert!(running.board.get().is_ready(), "{:?}", running.board.get());
    seconds(3).await;
    assert_eq!(running.board.get().reason, Reason::SourceUnreachable);
}

/// What was on its way when a session ended is not on its way any more.
#[tokio::test(start_paused = true)]
async fn gauges_end_with_their_session() {
    let reads = vec![Read::Transaction(3, 10), Read::Wait(Duration::from_secs(1)), Read::Break];
    let Running { metrics, .. } = run_relay(vec![Attempt::Streams(reads)], None, |_| {});
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!((metrics.pending_count.get(), metrics.source_connected.get()), (3, 1));
    assert!(metrics.in_flight_bytes.get() > 0);
    seconds(5).await;
    assert_eq!((metrics.pending_count.get(), metrics.source_connected.get()), (0, 0));
    assert_eq!((metrics.in_flight_bytes.get(), metrics.kafka_connected.get()), (0, 0));
}

/// A slot goes on holding back the log in a state that only a person ends, and this goes on being told.
#[tokio::test(start_paused = true)]
async fn a_terminal_state_tells_what_the_slot_holds_back() {
    let attempts = vec![Attempt::Streams(vec![Read::Poison(10)])];
    let Running { board, metrics, .. } = run_relay(attempts, Some(7 << 30), |sink| sink.picks = in_order(10));
    seconds(30).await;
    assert_eq!((board.get().phase, board.get().reason), (Phase::Terminal, Reason::RowError));
    assert_eq!((metrics.slot_retained_bytes.get(), metrics.kafka_connected.get()), (7 << 30, 0));
}
