//! The properties of the MySQL and MariaDB connectors where they are not those of all.

use super::Action::{Always, Choice, Part, Unless};
use super::Verdict::{Ignored, Is, IsBut, Never, Refused, Warned};
use super::connector::{
    ALWAYS, FAILURES_SKIPPED, INITIAL_ONLY, NO_CONFIGURED_SNAPSHOT, NO_CUSTOM_SNAPSHOT, STOPS, TUNING, URL, WHEN_NEEDED,
};
use super::{Line, Verdict, line};

const TABLES: &str = "outbox.tables";
const SERVERS: &str = "gtid.source";
const NO_SUCH: Verdict = Warned("Debezium's connectors for MySQL and MariaDB have no such property either");
const JAVAS_DRIVER: Verdict = Ignored("it is about Java's driver");

/// What the MySQL and MariaDB connectors have.
pub(in super::super) const BINLOG: &[Line] = &[
    line("database.server.id", Part("source.*.server-id")),
    line("database.server.id.offset", Always(TUNING)),
    line("database.ssl.*", Part(URL)),
    line("database.include.list", Part(TABLES)),
    line("database.exclude.list", Part(TABLES)),
    line("schema.include.list", Always(NO_SUCH)),
    line("schema.exclude.list", Always(NO_SUCH)),
    line("schema.history.internal*", Part("source.*")),
    line("database.history*", Part("source.*")),
    line("include.schema.changes", Always(Ignored("the topic of schema changes, topic.prefix, falls silent"))),
    line("table.ignore.builtin", Always(Ignored("only the outbox's tables are read"))),
    line("gtid.source.includes", Part(SERVERS)),
    line("gtid.source.excludes", Part(SERVERS)),
    line("gtid.source.filter.dml.events", Part(SERVERS)),
    line("gtid.new.channel.position", Always(Ignored("every transaction behind the position is read"))),
    line(
        "gtid.ignore.on.recovery",
        Unless(&["false"], Warned("the position's GTIDs always count: see outboxd takeover and outboxd resume")),
    ),
    line("connect.timeout.ms", Part("source.*.connect-timeout")),
    line("connect.keep.alive*", Always(Ignored("silence is bounded by source.*.silence-timeout"))),
    line("binlog.net.*", Unless(&["0"], Warned("see source.*.silence-timeout"))),
    line("event.deserialization.failure.handling.mode", Choice("", FAILURES)),
    line("inconsistent.schema.handling.mode", Choice("", FAILURES)),
    line("binlog.buffer.size", Always(TUNING)),
    line("use.nongraceful.disconnect", Always(TUNING)),
    line("min.row.count.to.stream.results", Always(TUNING)),
    line("ddl.parser.*", Always(TUNING)),
    line("enable.time.adjuster", Always(Ignored("the server has turned years of two digits into four"))),
    line("database.protocol", Always(JAVAS_DRIVER)),
    line("database.jdbc.driver", Always(JAVAS_DRIVER)),
    line("database.connectionTimeZone", Always(Warned("moments are in UTC in the log"))),
    line("driver.*", Always(Warned("it is a parameter of another driver"))),
    line("snapshot.locking.mode", Always(Ignored("the first read takes no lock that writers wait for"))),
    line(
        "snapshot.mode",
        Choice(
            "source.*.start",
            &[
                ("initial", Is("table")),
                ("no_data", Is("now")),
                ("schema_only", IsBut("now", "this is the former name of no_data")),
                ("always", ALWAYS),
                ("when_needed", WHEN_NEEDED),
                ("recovery", IsBut("table", NO_HISTORY)),
                ("schema_only_recovery", IsBut("table", NO_HISTORY)),
                ("initial_only", INITIAL_ONLY),
                (
                    "never",
                    Never(
                        "reads the log from its beginning, which Debezium no longer does either",
                        "write \"initial\" or \"no_data\"",
                    ),
                ),
                ("configuration_based", NO_CONFIGURED_SNAPSHOT),
                ("custom", NO_CUSTOM_SNAPSHOT),
            ],
        ),
    ),
    line(
        "time.precision.mode",
        Choice(
            "record.time-format",
            &[
                ("adaptive_time_microseconds", Is("debezium")),
                ("adaptive", IsBut("debezium", "a column of type time is given in microseconds")),
                ("connect", OTHER_TIMES),
                ("isostring", OTHER_TIMES),
                ("microseconds", OTHER_TIMES),
                ("nanoseconds", OTHER_TIMES),
            ],
        ),
    ),
    line(
        "bigint.unsigned.handling.mode",
        Unless(&["long"], Warned("a bigint unsigned that is a header or a part of the value is given as a number")),
    ),
];

const OTHER_TIMES: Verdict = Refused(
    "times in this form are not available",
    "leave it out, if no date or time is a header or a part of the value",
    "dates and times are given as without it",
);
const NO_HISTORY: &str = "there is no history of schemas to recover; without a stored position the table is read";

const FAILURES: &[(&str, Verdict)] =
    &[("fail", Ignored(STOPS)), ("warn", FAILURES_SKIPPED), ("skip", FAILURES_SKIPPED), ("ignore", FAILURES_SKIPPED)];
