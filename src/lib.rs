//! outboxd: a transactional-outbox relay by log tailing.
pub mod change;
pub mod cli;
pub mod config;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod position;
pub mod record;
pub mod sink;
pub mod source;
pub mod state;
