//! The lock that makes one instance of a name the publisher: a named lock of the server, held by a connection of its own.
//!
//! The server gives it up when the connection has been silent for ten seconds, so it is used every three. An instance that
//! does not hear from the server in time stops publishing before another can begin.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{Client, run};
use super::server::literal;
use super::settings::MysqlSettings;
use crate::source::SourceError;
use crate::state::Reason;

/// After so much silence the server ends the connection.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the lock is used.
const PING: Duration = Duration::from_secs(3);

/// Longest wait for the answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Longest name of a lock.
const MAX_NAME: usize = 64;

/// A held lock. It is given up when this is dropped.
#[derive(Debug)]
pub(super) struct NamedLock {
    task: JoinHandle<()>,
    lost: watch::Receiver<Option<String>>,
    /// When the server last said that the lock is ours.
    held: Arc<Mutex<Instant>>,
}

impl NamedLock {
    /// Takes the lock of the instance.
    ///
    /// # Errors
    /// [`SourceError::SlotInUse`] if another connection has it.
    pub(super) async fn acquire(settings: &MysqlSettings) -> Result<Self, SourceError> {
        let connect = &settings.connect;
        let mut client = Client::connect(connect).await?;
        let name = name(&settings.instance);
        let action = "take the instance's lock";
        run(&mut client, connect, action, &format!("SET SESSION wait_timeout = {}", WAIT_TIMEOUT.as_secs())).await?;
        let begun = Instant::now();
        let sql = format!("SELECT GET_LOCK({0}, 1), IS_USED_LOCK({0})", literal(&name));
        let rows = run(&mut client, connect, action, &sql).await?;
        let mut row = rows.into_iter().next().unwrap_or_default().into_iter();
        let (taken, holder) = (row.next().flatten(), row.next().flatten());
        if taken.as_deref() != Some(b"1") {
            let holder = holder.map_or_else(|| "?".to_owned(), |id| String::from_utf8_lossy(&id).into_owned());
            client.close().await;
            return Err(SourceError::SlotInUse {
                by_peer: true,
                message: format!("another instance holds lock \"{name}\" on {}: connection {holder}", connect.address),
            });
        }
        let held = Arc::new(Mutex::new(begun));
        let (sender, lost) = watch::channel(None);
        let task = tokio::spawn(keep(client, name, Arc::clone(&held), sender));
        Ok(Self { task, lost, held })
    }

    /// Waits until the lock is lost, and says why. Cancel-safe.
    pub(super) async fn lost(&self) -> SourceError {
        let mut receiver = self.lost.clone();
        let why = receiver.wait_for(Option::is_some).await.map(|why| why.clone());
        lost(&why.ok().flatten().unwrap_or_else(|| "its keeper has ended".to_owned()))
    }

    /// How long ago the server last said that the lock is ours.
    pub(super) fn held_for(&self) -> Duration {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Says whether the lock may be lost by now: this process may have stood still for longer than the server waits.
    pub(super) fn check(&self) -> Result<(), SourceError> {
        if let Some(why) = self.lost.borrow().as_ref() {
            return Err(lost(why));
        }
        if self.held_for() >= WAIT_TIMEOUT {
            return Err(lost("the server was not heard of for as long as it keeps the lock"));
        }
        Ok(())
    }
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        // its connection closes, and with it goes the lock
        self.task.abort();
    }
}

/// Locks are the server's, so the name says whose it is. To MySQL names that differ in case are one, and so are those
/// whose characters it does not have in its own catalogue; two instances must not exclude each other by that.
pub(super) fn name(instance: &str) -> String {
    const READABLE: usize = 20;
    let name = format!("outboxd.{instance}");
    let is_plain = instance.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
    if is_plain && name.len() <= MAX_NAME {
        return name;
    }
    let hash = ring::digest::digest(&ring::digest::SHA256, instance.as_bytes());
    let hex: String = hash.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    if is_plain {
        return format!("outboxd.{hex}");
    }
    let readable = instance.chars().filter(char::is_ascii_graphic).take(READABLE).collect::<String>();
    format!("outboxd.{}.{hex}", readable.to_ascii_lowercase())
}

fn lost(why: &str) -> SourceError {
    SourceError::Connection {
        reason: Reason::SourceUnreachable,
        message: format!("the instance's lock was lost: {why}"),
        source: None,
    }
}

/// Uses the lock until it is lost.
async fn keep(mut client: Client, name: String, held: Arc<Mutex<Instant>>, sender: watch::Sender<Option<String>>) {
    let sql = format!("SELECT IS_USED_LOCK({}) = CONNECTION_ID()", literal(&name));
    loop {
        tokio::time::sleep(PING).await;
        let asked = Instant::now();
        let why = match tokio::time::timeout(ANSWER, client.first(&sql)).await {
            Ok(Ok(Some(row))) if row.first().is_some_and(|held| held == "1") => {
                *held.lock().unwrap_or_else(PoisonError::into_inner) = asked;
                continue;
            }
            Ok(Ok(_)) => "the server says that it is another's".to_owned(),
            Ok(Err(error)) => crate::chain(&error),
            Err(_) => format!("the server did not answer within {ANSWER:?}"),
        };
        sender.send_replace(Some(why));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_locks_differ_whatever_the_server_makes_of_case() {
        assert_eq!(name("shop-2"), "outboxd.shop-2");
        assert_eq!(name(&"a".repeat(60)).len(), 8 + 32);
        let names = ["shop", "Shop", "SHOP", "shöp", "SHÖP", "shop ", "\u{1F600}", "\u{1F601}"].map(name);
        for (index, one) in names.iter().enumerate() {
            assert!(one.len() <= MAX_NAME && one.bytes().all(|byte| !byte.is_ascii_uppercase()), "{one}");
            assert!(!names.iter().take(index).any(|other| other == one), "{one}");
        }
        assert!(name("Shop").starts_with("outboxd.shop."));
        assert!(name(&"Ä".repeat(30)).len() <= MAX_NAME);
    }
}
