//! Debezium's bytes: the same rows through a relay that was given a connector's JSON, compared record by record with what
//! Debezium 3.6.1 made of them.
//!
//! ```text
//! tests/data/parity/cases.json ──▶ rows in PostgreSQL ──▶ outboxd  ──▶ records ─┐
//!                                        └─────────────▶ Debezium ──▶ records ─┴▶ equal, but for the listed differences
//! ```
//!
//! The same for MySQL and MariaDB in [`mysql`], with files of its own.
//!
//! [`recorded`] takes Debezium's side from `tests/data/parity/debezium.json`; [`beside_debezium`] and [`takeover`], with a
//! real one, run in `tests/run --debezium`; the former can write that file anew.

mod beside_debezium;
mod cases;
mod connector;
mod mysql;
mod mysql_takeover;
mod recorded;
mod records;
mod takeover;
