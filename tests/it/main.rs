//! Tests of the built program against real servers: PostgreSQL 15 and 18, MySQL 9.7, MariaDB 10.11 and 11.8, Kafka.
//!
//! `tests/run` starts the servers and sets the addresses; see its `--help`. Each test has a database, topics and an
//! instance name of its own, so they run side by side. A test that has to stop a server brings its own
//! ([`support::postgres::PrivateServer`], [`support::kafka::PrivateKafka`]).
//!
//! Tests named `fr_NN` hold an input that a user of some relay reported, with the right outcome.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "a test may panic"
)]

#[macro_use]
mod support;

mod altered;
mod column_types;
mod commands;
mod commands_check;
mod connecting;
mod crash;
mod debezium;
mod debezium_binlog;
#[cfg(feature = "demo")]
mod demo;
mod failover;
mod first_read;
mod first_read_rows;
mod gaps;
mod kafka;
mod kafka_oauth;
mod kafka_secure;
mod kafka_sink;
mod kills;
mod liveness;
mod mysql_commands;
mod mysql_crash;
mod mysql_first_read;
mod mysql_log;
mod mysql_oracle;
mod mysql_place;
mod mysql_reading;
mod mysql_reports;
mod mysql_stream;
mod mysql_undone;
mod mysql_values;
mod mysql_xa;
mod no_rows;
mod parity;
mod presets;
mod readme;
mod refused;
mod roles;
mod router;
mod shape;
mod shutdown;
mod stdout;
mod stream;
mod takeover;
mod tenants;
mod tls;
