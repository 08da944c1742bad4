//! outboxd: a transactional-outbox relay by log tailing.
//!
//! A service writes a row into its outbox table in the transaction that changes its data. outboxd reads the row from the
//! database's log, makes a record of it, and confirms the log's position only behind the broker's acknowledgement.
//!
//! ```text
//!  server log     source/              route/        relay/                        sink/
//!  WAL ─────▶ Batch of Row items ─▶ Record ─▶ window ─▶ enqueue(record, ordinal) ─▶ broker
//!                  ▲                              │                                   │
//!                  │                              ◀── acknowledgements per ordinal ───┤
//!                  └── confirm(P) ◀── committed(P) ◀── commit(P): position record ◀───┘
//! ```
//!
//! - [`source`]: readers of a server's log. They hand over [`change::Batch`]es and know nothing of records.
//! - [`route`]: one row in, one [`record::Record`] out. A plain function.
//! - [`relay`]: the one loop that owns all state; sessions, back-off, terminal states.
//! - [`sink`]: where records go, and where the position is kept. Sinks and sources never know of each other.
//! - [`state`]: the states and their reason codes, read by log, [`http`], [`metrics`] and exit code alike.
//!
//! The invariant behind everything: a position that is committed or confirmed never passes an unacknowledged record.

pub mod change;
pub mod gtid;
pub mod position;
pub mod record;

pub mod relay;
pub mod route;
pub mod sink;
pub mod source;
pub mod state;

pub mod cli;
pub mod commands;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub mod finding;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod tls;

/// An error with all its causes in one line, separated by colons.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        // some libraries repeat their cause in their own text
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}
