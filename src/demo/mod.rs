//! `outboxd demo`: everything on one machine, from a shop's transactions to a consumer, to look at and to be counted.
//!
//! ```text
//!  shop ──SQL──▶ PostgreSQL ──WAL──▶ outboxd ──TCP──▶ broker in this process ──TCP──▶ consumer
//!    │            (a real one)      (the real one)     (librdkafka's mock)               │
//!    └────────────────────── ledger: what was committed = what arrived? ◀────────────────┘
//! ```
//!
//! All that it starts ends with it: processes and folders belong to values that remove them when dropped, also on
//! Ctrl-C, an error or a panic; a server whose demo was killed is ended by a shell that watches.

mod account;
mod binaries;
mod broker;
mod guard;
mod ledger;
mod place;
mod relay;
mod screen;
mod server;
mod shop;

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::broker::{Broker, ShopConsumer};
use self::ledger::{Ledger, Tally};
use self::place::Place;
use self::relay::RunningRelay;
use self::screen::{Screen, millis};
use self::shop::Shop;
use crate::cli::DemoOptions;

/// Longest wait for the consumer's start.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest wait for the relay's end.
const RELAY_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for what was committed.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(15);
/// What should not come would come in this time.
const SILENCE: Duration = Duration::from_millis(300);
/// Longest wait for the slot to be confirmed.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the demo. Returns whether it is proven that all that was committed arrived, once and in order, and nothing else.
///
/// # Errors
/// [`Refusal`](crate::commands::run::Refusal) inside where a person can help.
pub async fn demo(options: &DemoOptions) -> anyhow::Result<bool> {
    let stop = CancellationToken::new();
    let screen = Screen::new(stop.clone());
    stop_on_signal(stop.clone())?;
    screen.heading(&format!("outboxd {} demo: from a shop's transactions to a consumer", env!("CARGO_PKG_VERSION")));
    screen.line("");
    let place = tokio::select! {
        place = Box::pin(Place::prepare(options, &screen)) => place?,
        () = stop.cancelled() => {
            screen.line("interrupted");
            return Ok(false);
        }
    };
    let broker = Broker::start(&crate::config::KafkaConfig::default().positions_topic)?;
    screen.fact("broker", &format!("{}, inside this process, speaks Kafka's protocol", broker.address()));
    let (proven, relay) = (Cell::new(None), Cell::new(None));
    let outcome = tokio::select! {
        outcome = Box::pin(play(options, &place, &broker, &screen, &proven, &relay)) => outcome,
        () = stop.cancelled() => Ok(()),
    };
    if let Some(gone) = relay.take() {
        let _ = tokio::time::timeout(RELAY_TIMEOUT, gone.cancelled()).await;
    }
    drop(broker);
    if outcome.is_ok() && proven.get().is_none() {
        screen.line("interrupted before anything was proven");
    }
    place.leave().await;
    outcome?;
    Ok(proven.get().unwrap_or(false))
}

/// Everything between a database that is ready and the tally; with `--keep` it does not end by itself.
async fn play(
    options: &DemoOptions,
    place: &Place,
    broker: &Broker,
    screen: &Screen,
    proven: &Cell<Option<bool>>,
    gone: &Cell<Option<CancellationToken>>,
) -> anyhow::Result<()> {
    place.furnish().await?;
    let config = relay::config(place, broker.address())?;
    let mut relay = RunningRelay::start(&config).await?;
    gone.set(Some(relay.gone.clone()));
    screen.fact("outboxd", &format!("streams from slot {}, state at http://{}/", place.slot, relay.page));
    let (ledger, consumer) = (Ledger::default(), broker::consumer(&broker.address())?);
    let ready = tokio::time::timeout(CONSUMER_TIMEOUT, broker::ready(&consumer)).await;
    ready.context("wait for the consumer")??;
    screen.fact("consumer", "reads the topics over TCP; the time behind an event is that from COMMIT to here");
    let mut shop = Shop::open(&place.shop_url, &ledger, screen).await?;
    screen.fact("shop", &format!("three connections, {} s", options.seconds));
    screen.line("");
    screen.begin();
    {
        let trouble = trouble(&mut relay, &consumer, &ledger, screen);
        tokio::pin!(trouble);
        let confirmed = tokio::select! {
            error = &mut trouble => return Err(error),
            confirmed = prove(options, place, &mut shop, &ledger) => confirmed?,
        };
        let tally = ledger.tally();
        show(&tally, confirmed.as_deref(), screen);
        proven.set(Some(tally.is_proven() && confirmed.is_some()));
        if options.keep {
            show_the_way(place, broker, screen);
            return Err(trouble.await);
        }
    }
    relay.stop().await;
    Ok(())
}

/// What goes on beside the shop and should not end: the consumer and the relay. Returns why one of them did.
async fn trouble(relay: &mut RunningRelay, consumer: &ShopConsumer, ledger: &Ledger, screen: &Screen) -> anyhow::Error {
    tokio::select! {
        error = relay.ended() => error,
        result = broker::consume(consumer, ledger, screen) => {
            result.err().unwrap_or_else(|| anyhow::anyhow!("the consumer ended by itself"))
        }
    }
}

/// The shop's day, and the wait for its events. Returns the position up to which the slot is confirmed, if it is.
async fn prove(
    options: &DemoOptions,
    place: &Place,
    shop: &mut Shop<'_>,
    ledger: &Ledger,
) -> anyhow::Result<Option<String>> {
    shop.sell(Duration::from_secs(options.seconds)).await?;
    arrive(ledger).await;
    shop.rush().await?;
    let last_commit = Instant::now();
    let position = shop.log_end().await?;
    if arrive(ledger).await {
        shop.rush_is_over(last_commit.elapsed());
    }
    tokio::time::sleep(SILENCE).await;
    let begun = Instant::now();
    while begun.elapsed() < CONFIRM_TIMEOUT {
        if shop.is_confirmed(&place.slot, &position).await? {
            return Ok(Some(position));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(None)
}

/// Waits for all that was committed. Whether it came.
async fn arrive(ledger: &Ledger) -> bool {
    let begun = Instant::now();
    while ledger.outstanding() > 0 {
        if begun.elapsed() > ARRIVAL_TIMEOUT {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

fn show(tally: &Tally, confirmed: Option<&str>, screen: &Screen) {
    let Tally { committed, transactions, missing, repeated, rolled_back, from_rollback, unknown, .. } = tally;
    screen.line("");
    screen.heading("Result");
    let text = match (missing, repeated) {
        (0, 0) => "all arrived, each once".to_owned(),
        _ => format!("{missing} did not arrive, {repeated} arrived more than once"),
    };
    screen.check(
        missing + repeated == 0,
        &format!("{committed} events in {transactions} committed transactions: {text}"),
    );
    let text = match (from_rollback, unknown) {
        (0, 0) => "none arrived, nor anything else".to_owned(),
        _ => format!("{from_rollback} arrived, and {unknown} that nobody wrote"),
    };
    let text = format!("{rolled_back} events rolled back, whole transactions or to a savepoint: {text}");
    screen.check(from_rollback + unknown == 0, &text);
    let text = match tally.out_of_order {
        0 => format!("{} keys: the events of each are in the order of its commits", tally.keys),
        wrong => format!("{wrong} of {} keys are not as they were committed", tally.keys),
    };
    screen.check(tally.out_of_order == 0, &text);
    let text = match tally.altered {
        0 => "every value is as it was written".to_owned(),
        altered => format!("{altered} values are not as they were written"),
    };
    screen.check(tally.altered == 0, &text);
    let text = match confirmed {
        Some(position) => {
            format!("PostgreSQL may forget the log: the slot is confirmed up to the last commit, {position}")
        }
        None => "the slot is not confirmed up to the last commit".to_owned(),
    };
    screen.check(confirmed.is_some(), &text);
    let [half, most, all] = [50, 99, 100].map(|percent| millis(tally.delay(percent)));
    screen.line(&format!("  from COMMIT to the consumer: half within {half}, 99 % within {most}, all within {all}"));
    screen.line("");
    if tally.is_proven() && confirmed.is_some() {
        screen.verdict(true, "proven: every committed event arrived, once and in order, and nothing else did");
    } else {
        screen.verdict(false, "not proven: see above");
    }
}

/// How to try it by hand.
fn show_the_way(place: &Place, broker: &Broker, screen: &Screen) {
    screen.line("");
    screen.line("Everything stays up until Ctrl-C. In another terminal, write an event and read the topic:");
    screen.line("");
    screen.line(&format!("  psql '{}'", place.shop_url));
    screen.line("    INSERT INTO outbox (aggregatetype, aggregateid, type, payload)");
    screen.line("    VALUES ('Order', '42', 'OrderPlaced', '{\"total\": 12.5}');");
    screen.line(&format!("  kcat -b {} -C -t outbox.event.Order -f 'key %k, headers %h: %s\\n'", broker.address()));
    screen.line("");
}

/// Ctrl-C, SIGTERM and a closed terminal end the demo in good order.
fn stop_on_signal(stop: CancellationToken) -> anyhow::Result<()> {
    let on = |kind| signal(kind).context("listen for signals");
    let mut interrupt = on(SignalKind::interrupt())?;
    let (mut terminate, mut hangup) = (on(SignalKind::terminate())?, on(SignalKind::hangup())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        stop.cancel();
    });
    Ok(())
}
