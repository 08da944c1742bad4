//! A small shop with three tills, each a connection of its own. It writes its orders, and beside them the outbox rows,
//! by ordinary SQL; among them everything that a relay may get wrong.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;

use super::ledger::{Event, Ledger, Written};
use super::place::{self, connect};
use super::screen::{Row, Screen, Side, millis};
use crate::source::postgres::sql::SqlSession;

/// Aggregate type of the rush at the end.
pub(super) const RUSH: &str = "Till";
/// All aggregate types of the shop: each has its topic.
pub(super) const AGGREGATES: [&str; 4] = ["Order", "Customer", "Stock", RUSH];

const CUSTOMERS: [&str; 6] = ["Zoë", "Łukasz", "Ana", "Jürgen", "Søren", "Müge"];
const ARTICLES: [&str; 5] = ["Käsekuchen", "Żurek", "Smørrebrød", "Börek", "Éclair"];

/// Pace at which a person can read along.
const SLOWEST: Duration = Duration::from_millis(330);
/// Steps in which everything has been shown twice.
const STEPS: u32 = 20;
/// Transactions of each till in the rush.
const RUSH_EACH: u32 = 100;
/// One of so many is rolled back in the rush.
const RUSH_ROLLBACK: u32 = 10;

/// The shop.
pub(super) struct Shop<'a> {
    tills: [SqlSession; 3],
    ledger: &'a Ledger,
    screen: &'a Screen,
    order: Order,
    open: Option<Open>,
}

#[derive(Clone, Copy)]
struct Order {
    number: u32,
    customer: &'static str,
    article: &'static str,
    quantity: u32,
}

/// A transaction that is not yet committed.
struct Open {
    row: Written,
    since: Instant,
}

impl<'a> Shop<'a> {
    /// Opens the tills.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn open(url: &str, ledger: &'a Ledger, screen: &'a Screen) -> anyhow::Result<Self> {
        let tills = [connect(url).await?, connect(url).await?, connect(url).await?];
        let order = Order { number: 1000, customer: "", article: "", quantity: 0 };
        Ok(Self { tills, ledger, screen, order, open: None })
    }

    /// Sells for so long.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn sell(&mut self, time: Duration) -> anyhow::Result<()> {
        let (begun, pace) = (Instant::now(), (time / STEPS).min(SLOWEST));
        for step in 0.. {
            if begun.elapsed() >= time && self.open.is_none() {
                break;
            }
            match step % 10 {
                0 => self.place().await,
                1 => self.pay().await,
                2 => self.decline().await,
                3 => self.hold().await,
                4 => self.ship().await,
                5 => self.place_for_new_customer().await,
                6 => self.pay().await,
                7 => self.wrap().await,
                8 => self.release().await,
                _ => self.ship().await,
            }?;
            tokio::time::sleep(pace).await;
        }
        Ok(())
    }

    /// The next order: one event.
    async fn place(&mut self) -> anyhow::Result<()> {
        let order = self.next_order();
        let [till, ..] = &self.tills;
        begin(till).await?;
        let row = place_order(till, order).await?;
        self.commit(till, &[row], &[order.to_string()]).await
    }

    /// A transaction of three events, one of each kind.
    async fn place_for_new_customer(&mut self) -> anyhow::Result<()> {
        let order = self.next_order();
        let [till, ..] = &self.tills;
        begin(till).await?;
        let joined = json!({"customer": order.customer, "greeting": "ようこそ 🎂"});
        let left = json!({"article": order.article, "sold": order.quantity});
        let rows = [
            place_order(till, order).await?,
            insert(till, Event::new("Customer", order.customer, "CustomerJoined", joined)).await?,
            insert(till, Event::new("Stock", order.article, "StockTaken", left)).await?,
        ];
        let notes = [1, 2, 3].map(|row| format!("row {row} of 3 in one transaction"));
        self.commit(till, &rows, &notes).await
    }

    /// The last order is paid, at another till.
    async fn pay(&self) -> anyhow::Result<()> {
        let [_, till, _] = &self.tills;
        begin(till).await?;
        let row = self.progress(till, "OrderPaid", "paid").await?;
        self.commit(till, &[row], &[format!("{} pays", self.order.customer)]).await
    }

    /// The last order is shipped; the outbox row never stands in the table.
    async fn ship(&self) -> anyhow::Result<()> {
        let [till, ..] = &self.tills;
        begin(till).await?;
        let row = self.progress(till, "OrderShipped", "shipped").await?;
        let delete = "DELETE FROM outbox WHERE id = $1::text::uuid";
        till.client.execute(delete, &[&row.id]).await.context("delete an outbox row")?;
        self.commit(till, &[row], &["row deleted at once".to_owned()]).await
    }

    /// An order that comes to nothing.
    async fn decline(&mut self) -> anyhow::Result<()> {
        let last = self.order;
        let order = self.next_order();
        let [_, till, _] = &self.tills;
        begin(till).await?;
        let row = place_order(till, order).await?;
        self.show(Side::NotKept, "ROLLBACK", &row, &format!("{}'s card is declined", order.customer));
        self.ledger.roll_back(std::slice::from_ref(&row));
        till.client.batch_execute("ROLLBACK").await.context("roll back")?;
        self.order = last;
        Ok(())
    }

    /// A transaction that is rolled back in part.
    async fn wrap(&self) -> anyhow::Result<()> {
        let [till, ..] = &self.tills;
        begin(till).await?;
        let row = self.progress(till, "OrderWrapped", "wrapped").await?;
        till.client.batch_execute("SAVEPOINT coupon").await.context("set a savepoint")?;
        let refused = self.progress(till, "CouponUsed", "discounted").await?;
        till.client.batch_execute("ROLLBACK TO SAVEPOINT coupon").await.context("roll back to the savepoint")?;
        self.show(Side::NotKept, "ROLLBACK", &refused, "to a savepoint");
        self.ledger.roll_back(&[refused]);
        self.commit(till, &[row], &["of the rest".to_owned()]).await
    }

    /// Begins a transaction that stays open while others are committed.
    async fn hold(&mut self) -> anyhow::Result<()> {
        let [.., till] = &self.tills;
        begin(till).await?;
        let article = self.order.article;
        let row = insert(till, Event::new("Stock", article, "StockCounted", json!({"article": article}))).await?;
        self.show(Side::NotKept, "INSERT", &row, "the transaction stays open");
        self.open = Some(Open { row, since: Instant::now() });
        Ok(())
    }

    /// Commits it.
    async fn release(&mut self) -> anyhow::Result<()> {
        let Some(Open { row, since }) = self.open.take() else { return Ok(()) };
        let [.., till] = &self.tills;
        let note = format!("after {:.1} s; others overtook it", since.elapsed().as_secs_f64());
        self.commit(till, &[row], &[note]).await
    }

    /// All tills at once, as fast as they can.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn rush(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let [first, second, third] = &self.tills;
        tokio::try_join!(self.rush_at(first, 1), self.rush_at(second, 2), self.rush_at(third, 3))?;
        let rolled_back = 3 * RUSH_EACH / RUSH_ROLLBACK;
        let row = |side, what, number: u32, note: &str| {
            let id = format!("{number} ids");
            self.screen.row(Row { side, what, key: "3 keys", id: &id, subject: "Sold", note });
        };
        let note = format!("a rush: 3 connections, {}", millis(begun.elapsed()));
        row(Side::Kept, "COMMIT", 3 * RUSH_EACH - rolled_back, &note);
        row(Side::NotKept, "ROLLBACK", rolled_back, "among them");
        Ok(())
    }

    /// Says that all of the rush has arrived.
    pub(super) fn rush_is_over(&self, delay: Duration) {
        let number = 3 * RUSH_EACH - 3 * RUSH_EACH / RUSH_ROLLBACK;
        let (id, topic) = (format!("{number} ids"), format!("outbox.event.{RUSH}"));
        let note = format!("{:>8}  after the last COMMIT", millis(delay));
        self.screen.row(Row {
            side: Side::Read,
            what: "arrived",
            key: "3 keys",
            id: &id,
            subject: &topic,
            note: &note,
        });
    }

    async fn rush_at(&self, till: &SqlSession, number: u32) -> anyhow::Result<()> {
        for sale in 1..=RUSH_EACH {
            begin(till).await?;
            let key = format!("till-{number}");
            let row = insert(till, Event::new(RUSH, &key, "Sold", json!({"till": number, "sale": sale}))).await?;
            if sale % RUSH_ROLLBACK == 0 {
                till.client.batch_execute("ROLLBACK").await.context("roll back")?;
                self.ledger.roll_back(&[row]);
            } else {
                self.ledger.commit(&[row]);
                till.client.batch_execute("COMMIT").await.context("commit")?;
            }
        }
        Ok(())
    }

    /// End of the log, behind the last commit.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn log_end(&self) -> anyhow::Result<String> {
        let [till, ..] = &self.tills;
        place::text(till, "SELECT pg_current_wal_lsn()").await
    }

    /// Whether the relay has confirmed the log up to there.
    ///
    /// # Errors
    /// The server's, or the slot has gone.
    pub(super) async fn is_confirmed(&self, slot: &str, position: &str) -> anyhow::Result<bool> {
        let [till, ..] = &self.tills;
        let sql = format!(
            "SELECT confirmed_flush_lsn >= '{position}'::pg_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
        );
        Ok(place::text(till, &sql).await? == "t")
    }

    /// One step of the last order.
    async fn progress(&self, till: &SqlSession, kind: &'static str, status: &str) -> anyhow::Result<Written> {
        let Order { number, customer, .. } = self.order;
        let update = "UPDATE orders SET status = $1 WHERE id = $2";
        till.client.execute(update, &[&status, &i64::from(number)]).await.context("update an order")?;
        let payload = json!({"order": number, "customer": customer, "status": status});
        insert(till, Event::new("Order", &number.to_string(), kind, payload)).await
    }

    async fn commit(&self, till: &SqlSession, rows: &[Written], notes: &[String]) -> anyhow::Result<()> {
        for (row, note) in rows.iter().zip(notes) {
            self.show(Side::Kept, "COMMIT", row, note);
        }
        // noted before: the consumer may be quicker than the answer
        self.ledger.commit(rows);
        till.client.batch_execute("COMMIT").await.context("commit")
    }

    fn show(&self, side: Side, what: &str, row: &Written, note: &str) {
        let Event { key, kind, .. } = &row.event;
        self.screen.row(Row { side, what, key, id: &row.id, subject: kind, note });
    }

    fn next_order(&mut self) -> Order {
        let number = self.order.number + 1;
        let pick = |list: &[&'static str]| {
            let length = list.len().max(1);
            usize::try_from(number).ok().and_then(|number| list.get(number % length).copied()).unwrap_or_default()
        };
        self.order = Order { number, customer: pick(&CUSTOMERS), article: pick(&ARTICLES), quantity: number % 3 + 1 };
        self.order
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} × {}", self.customer, self.quantity, self.article)
    }
}

impl Event {
    fn new(aggregate: &'static str, key: &str, kind: &'static str, payload: serde_json::Value) -> Self {
        Self { aggregate, key: key.to_owned(), kind, payload }
    }
}

async fn begin(till: &SqlSession) -> anyhow::Result<()> {
    till.client.batch_execute("BEGIN").await.context("begin a transaction")
}

async fn place_order(till: &SqlSession, order: Order) -> anyhow::Result<Written> {
    let Order { number, customer, article, quantity } = order;
    let sql = "INSERT INTO orders (id, customer, article, quantity, status) VALUES ($1, $2, $3, $4::bigint, 'placed')";
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&i64::from(number), &customer, &article, &i64::from(quantity)];
    till.client.execute(sql, &values).await.context("insert an order")?;
    let payload = json!({"order": number, "customer": customer, "article": article, "quantity": quantity});
    insert(till, Event::new("Order", &number.to_string(), "OrderPlaced", payload)).await
}

/// Writes an outbox row into the transaction that is open.
async fn insert(till: &SqlSession, event: Event) -> anyhow::Result<Written> {
    let sql = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ($1, $2, $3, $4::text::jsonb) \
               RETURNING id::text";
    let payload = event.payload.to_string();
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&event.aggregate, &event.key, &event.kind, &payload];
    let row = till.client.query_one(sql, &values).await.context("insert an outbox row")?;
    Ok(Written { id: row.try_get(0).context("read the id")?, event })
}
