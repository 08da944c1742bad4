//! outboxd: a transactional-outbox relay by log tailing.
pub mod change;
pub mod config;
pub mod metrics;
pub mod position;
pub mod record;
pub mod sink;
pub mod source;
pub mod state;
