//! outboxd: a transactional-outbox relay by log tailing.
pub mod change;
pub mod cli;
pub mod commands;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub mod finding;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod position;
pub mod record;
pub mod relay;
pub mod route;
pub mod sink;
pub mod source;
pub mod state;
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
