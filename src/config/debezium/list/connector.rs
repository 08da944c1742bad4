//! The properties of Debezium's connectors.

use super::Action::{Always, Choice, Flag, Part, Text, Unless};
use super::Verdict::{Ignored, Into, Is, IsBut, Never, Refused, Warned};
use super::{Line, Verdict, line};

pub(super) const URL: &str = "source.*.url";
const DISCARDED: Verdict = Ignored("the router discards what it influences");
pub(super) const TUNING: Verdict = Ignored("it tunes what is not here");
const NO_SIGNALS: Verdict =
    Warned("there are no signals and no incremental snapshots; see outboxd resume --from table");
const NO_SNAPSHOT_SETTING: Verdict =
    Warned("the first read has its own way; see start-where and start-order-by in [outbox]");
const HIDES: Verdict = Never(
    "would hide data, and here every column is published as it is",
    "hide the data where the row is written, then leave the property out",
);
pub(super) const STOPS: &str = "a row that cannot be published stops the relay before it";
const FOREIGN_VALUES: Verdict =
    Never("would change values by foreign code", "leave it out, if the outbox's columns do not depend on it");

/// What all of Debezium's connectors have.
pub(in super::super) const COMMON: &[Line] = &[
    line("topic.prefix", Text("record.legacy-prefix")),
    line("database.server.name", Part("record.legacy-prefix")),
    line("database.hostname", Part(URL)),
    line("database.port", Part(URL)),
    line("database.user", Part(URL)),
    line("database.password", Part("source.*.password")),
    line("table.include.list", Part("outbox.tables")),
    line("table.exclude.list", Part("outbox.tables")),
    line("schema.include.list", Part("outbox.tables")),
    line("schema.exclude.list", Part("outbox.tables")),
    line("column.include.list", Part("outbox.columns")),
    line("column.exclude.list", Part("outbox.columns")),
    line("column.mask.*", Always(HIDES)),
    line("column.truncate.*", Always(HIDES)),
    line("column.propagate.source.type", Always(DISCARDED)),
    line("datatype.propagate.source.type", Always(DISCARDED)),
    line("message.key.columns", Always(DISCARDED)),
    line("tombstones.on.delete", Always(DISCARDED)),
    line("skip.messages.without.change", Always(DISCARDED)),
    line("schema.name.adjustment.mode", Always(DISCARDED)),
    line("field.name.adjustment.mode", Always(DISCARDED)),
    line("include.schema.comments", Always(DISCARDED)),
    line("include.schema.changes", Always(DISCARDED)),
    line("include.query", Always(DISCARDED)),
    line("sourceinfo.struct.maker", Always(DISCARDED)),
    line("topic.naming.strategy", Always(DISCARDED)),
    line("topic.delimiter", Always(DISCARDED)),
    line("topic.cache.size", Always(TUNING)),
    line("topic.heartbeat.*", Always(Ignored("there are no heartbeat records"))),
    line("topic.transaction", Always(Ignored("there are no transaction records"))),
    line("max.batch.size", Always(TUNING)),
    line("max.queue.size", Always(Ignored("memory is bounded by delivery.window-bytes"))),
    line("max.queue.size.in.bytes", Always(Ignored("memory is bounded by delivery.window-bytes"))),
    line("queue.*", Always(TUNING)),
    line("poll.interval.ms", Always(TUNING)),
    line("query.fetch.size", Always(TUNING)),
    line("incremental.snapshot.*", Always(NO_SIGNALS)),
    line("statistics.*", Always(TUNING)),
    line(
        "snapshot.mode",
        Choice(
            "source.*.start",
            &[
                ("initial", Is("table")),
                ("no_data", Is("now")),
                ("never", IsBut("now", "this is the former name of no_data")),
                ("always", ALWAYS),
                ("when_needed", WHEN_NEEDED),
                ("initial_only", INITIAL_ONLY),
                ("configuration_based", NO_CONFIGURED_SNAPSHOT),
                ("custom", NO_CUSTOM_SNAPSHOT),
            ],
        ),
    ),
    line("snapshot.select.statement.overrides*", Part("outbox.start-where")),
    line("snapshot.*", Always(NO_SNAPSHOT_SETTING)),
    line("signal.*", Always(NO_SIGNALS)),
    line("read.only", Always(NO_SIGNALS)),
    line("notification.*", Always(Warned("there are no notifications; see /readyz, the metrics and the log"))),
    line("openlineage.*", Always(Warned("no lineage is emitted"))),
    line("guardrail.*", Always(Warned("only the outbox's tables are read"))),
    line(
        "heartbeat.interval.ms",
        Unless(&["0"], Warned("an idle outbox holds no log back; heartbeat records are not written")),
    ),
    line(
        "heartbeat.action.query",
        Always(Warned("an idle outbox holds no log back, so the query is not needed and not run")),
    ),
    line(
        "provide.transaction.metadata",
        Unless(
            &["false"],
            Refused(
                "there are no transaction records: their topic would fall silent",
                "set it to \"false\", if nobody reads that topic",
                "their topic falls silent",
            ),
        ),
    ),
    line("skipped.operations", Part("source.*")),
    line(
        "event.processing.failure.handling.mode",
        Choice(
            "",
            &[
                ("fail", Ignored(STOPS)),
                ("warn", FAILURES_SKIPPED),
                ("skip", FAILURES_SKIPPED),
                ("ignore", FAILURES_SKIPPED),
            ],
        ),
    ),
    line(
        "event.converting.failure.handling.mode",
        Unless(&["fail"], Warned("a value that cannot be converted is an error, never a NULL")),
    ),
    line("errors.max.retries", Unless(&["-1"], Warned("it is tried again without limit"))),
    line("retriable.restart.connector.wait.ms", Always(Ignored("it is tried again after 0.5 s to 30 s"))),
    line(
        "binary.handling.mode",
        Choice(
            "record.binary-as",
            &[
                ("bytes", Is("raw")),
                ("base64", Is("base64")),
                ("base64-url-safe", Is("base64-url-safe")),
                ("hex", Is("hex")),
            ],
        ),
    ),
    line(
        "decimal.handling.mode",
        Choice("record.decimal-as", &[("precise", Is("precise")), ("double", Is("double")), ("string", Is("string"))]),
    ),
    line(
        "time.precision.mode",
        Choice(
            "record.time-format",
            &[
                ("adaptive", Is("debezium")),
                (
                    "adaptive_time_microseconds",
                    IsBut("debezium", "a column of type time(0) to time(3) is given in milliseconds"),
                ),
                ("connect", OTHER_TIMES),
                ("isostring", OTHER_TIMES),
                ("microseconds", OTHER_TIMES),
                ("nanoseconds", OTHER_TIMES),
            ],
        ),
    ),
    line("hstore.handling.mode", Unless(&["json"], ODD_TYPE)),
    line("interval.handling.mode", Unless(&["numeric"], ODD_TYPE)),
    line("money.fraction.digits", Unless(&["2"], ODD_TYPE)),
    line("include.unknown.datatypes", Unless(&["false"], ODD_TYPE)),
    line("unavailable.value.placeholder", Always(Ignored("an inserted row has all its values"))),
    line("converters", Unless(&[""], FOREIGN_VALUES)),
    line("post.processors", Unless(&[""], FOREIGN_VALUES)),
    line("extended.headers.enabled", Flag("record.context-headers")),
    line("custom.metric.tags", Always(Warned("the metrics have the label name alone"))),
    line("database.query.timeout.ms", Always(Warned("see source.*.connect-timeout and silence-timeout"))),
    line("connection.validation.timeout.ms", Always(Warned("see source.*.connect-timeout and silence-timeout"))),
    line("executor.shutdown.timeout.ms", Always(Warned("see delivery.shutdown-timeout"))),
    line("streaming.delay.ms", Always(Warned("reading begins at once"))),
    line("database.initial.statements", Always(Warned("the session's settings are the relay's"))),
    line("internal.*", Always(Warned("it has no meaning here"))),
];

pub(super) const ALWAYS: Verdict =
    IsBut("table", "the rows that stand in the table are published at the first start only");
pub(super) const WHEN_NEEDED: Verdict =
    IsBut("table", "when the position is gone the relay waits for a person; see outboxd resume --from table");
pub(super) const INITIAL_ONLY: Verdict = Refused(
    "the relay goes on after the first read",
    "set it to \"initial\", and stop the relay when the log says that the first read is done",
    "it reads what stands in the table, and goes on",
);
pub(super) const NO_CONFIGURED_SNAPSHOT: Verdict =
    Never("its own settings are not available", "write \"initial\" or \"no_data\"");
pub(super) const NO_CUSTOM_SNAPSHOT: Verdict =
    Never("foreign code decides what is read", "write \"initial\" or \"no_data\"");
pub(super) const FAILURES_SKIPPED: Verdict = Refused(
    "would drop what is not understood, and nothing is dropped silently",
    "set it to \"fail\"",
    "the relay stops at what it does not understand",
);
const OTHER_TIMES: Verdict = Refused(
    "times in this form are not available",
    "set it to \"adaptive\", if no date or time is a header or a part of the value",
    "dates and times are given as with \"adaptive\"",
);
const ODD_TYPE: Verdict =
    Warned("columns of this type, if they are headers or parts of the value, are given as PostgreSQL writes them");

/// What the PostgreSQL connector has.
pub(in super::super) const POSTGRES: &[Line] = &[
    line("database.dbname", Part(URL)),
    line(
        "plugin.name",
        Choice("", &[("pgoutput", Into("source.postgres")), ("decoderbufs", OTHER_PLUGIN), ("wal2json", OTHER_PLUGIN)]),
    ),
    line("slot.name", Text("source.postgres.slot")),
    line(
        "slot.drop.on.stop",
        Unless(
            &["false"],
            Warned("the slot stays: rows written while the relay is stopped are published when it starts"),
        ),
    ),
    line("slot.failover", Flag("source.postgres.failover-slot")),
    line("slot.max.retries", Always(Ignored("it is tried again without limit"))),
    line("slot.retry.delay.ms", Always(Ignored("it is tried again after 0.5 s to 30 s"))),
    line("slot.stream.params", Unless(&[""], Warned("the plug-in's parameters are the relay's"))),
    line("publication.name", Text("source.postgres.publication")),
    line(
        "publication.autocreate.mode",
        Choice(
            "",
            &[
                (
                    "all_tables",
                    Ignored("one that is there is used; one that is missing is made with the outbox's tables alone"),
                ),
                (
                    "filtered",
                    Ignored("one that is there is used; one that is missing is made with the outbox's tables alone"),
                ),
                ("disabled", Warned("a publication that is missing is made, if the role may")),
                ("no_tables", Warned("one that is missing is made with the outbox's tables")),
            ],
        ),
    ),
    line("publish.via.partition.root", Unless(&["true"], Ignored("the publication says"))),
    line("status.update.interval.ms", Always(Ignored("the position is confirmed every delivery.position-interval"))),
    line(
        "lsn.flush.mode",
        Choice(
            "",
            &[
                ("connector", Ignored("the slot is confirmed when the brokers have acknowledged")),
                ("connector_and_driver", Ignored("the slot is confirmed when the brokers have acknowledged")),
                ("manual", NOT_CONFIRMED),
            ],
        ),
    ),
    line("flush.lsn.source", Unless(&["true"], NOT_CONFIRMED)),
    line("lsn.flush.timeout.*", Always(TUNING)),
    line("xmin.fetch.interval.ms", Always(TUNING)),
    line("schema.refresh.mode", Always(TUNING)),
    line("replica.identity.autoset.values", Always(DISCARDED)),
    line("message.prefix.*", Always(Ignored("messages of pg_logical_emit_message are not published"))),
    line(
        "offset.mismatch.strategy",
        Unless(&["no_validation"], Warned("a slot that is ahead of what was published stops the relay")),
    ),
    line("database.sslmode", Part(URL)),
    line("database.sslrootcert", Part(URL)),
    line("database.sslcert", Part(URL)),
    line("database.sslkey", Part(URL)),
    line(
        "database.sslpassword",
        Unless(
            &[""],
            Never(
                "keys with a passphrase are not available",
                "write the key without one: openssl pkcs8 -in KEY -out PLAIN-KEY; name it as database.sslkey",
            ),
        ),
    ),
    line(
        "database.sslfactory",
        Unless(
            &[""],
            Refused(
                "foreign code makes the connection",
                "leave it out; see database.sslmode, sslrootcert, sslcert and sslkey",
                "the connection is made as database.sslmode says",
            ),
        ),
    ),
    line("database.tcpKeepAlive", Always(Ignored("silence is bounded by source.postgres.silence-timeout"))),
    line("driver.*", Always(Warned("it is a parameter of another driver"))),
];

const OTHER_PLUGIN: Verdict = Never(
    "a slot belongs to its plug-in, and only that of pgoutput can be read",
    "set it to \"pgoutput\" and slot.name to a new name; with snapshot.mode \"initial\" the rows that stand in the table are \
     published first, so that none is left out",
);
const NOT_CONFIRMED: Verdict = Refused(
    "the relay confirms the slot itself",
    "leave it out, and do not move the slot",
    "the slot is confirmed when the brokers have acknowledged",
);
