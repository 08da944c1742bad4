//! The one list of what becomes of each property, to be read from top to bottom: the first line that fits counts.
//!
//! Names and defaults are those of Debezium 3.6 and Kafka Connect 4. A name that ends with `*` stands for all that begin so.

/// A line of the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The property's name.
    pub name: &'static str,
    /// What becomes of it.
    pub action: Action,
}

/// What becomes of a property.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// An option of ours takes the text as it is.
    Text(&'static str),
    /// An option of ours takes the truth value.
    Flag(&'static str),
    /// It depends on the word; others are refused. The option is empty if no word becomes one of ours.
    Choice(&'static str, &'static [(&'static str, Verdict)]),
    /// These words change nothing; with any other it is as the verdict says.
    Unless(&'static [&'static str], Verdict),
    /// The same whatever the value is.
    Always(Verdict),
    /// It goes into an option together with others, or has rules of its own.
    Part(&'static str),
}

/// What is said about a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// This is our word for it.
    Is(&'static str),
    /// This is our word for it, with a difference.
    IsBut(&'static str, &'static str),
    /// It is there in this part of ours.
    Into(&'static str),
    /// It has no meaning here, and why.
    Ignored(&'static str),
    /// It has no effect here, and what is done instead.
    Warned(&'static str),
    /// It cannot be: why, what to do, and what is done instead with `--allow-unsupported`.
    Refused(&'static str, &'static str, &'static str),
    /// It cannot be, whatever is allowed: why, and what to do.
    Never(&'static str, &'static str),
}

use Action::{Always, Choice, Flag, Part, Text, Unless};
use Verdict::{Ignored, Into, Is, IsBut, Never, Refused, Warned};

const fn line(name: &'static str, action: Action) -> Line {
    Line { name, action }
}

const URL: &str = "source.postgres.url";
const DISCARDED: Verdict = Ignored("the router discards what it influences");
const TUNING: Verdict = Ignored("it tunes what is not here");
const ONE_READER: &str = "there is always one reader, which reads the log";
const NO_SIGNALS: Verdict = Warned("there are no signals and no incremental snapshots; see outboxd resume --from table");
const NO_SNAPSHOT_SETTING: Verdict = Warned("the first read has its own way; see start-where and start-order-by in [outbox]");
const HIDES: Verdict = Never(
    "would hide data, and here every column is published as it is",
    "hide the data where the row is written, then leave the property out",
);
const STOPS: &str = "a row that cannot be published stops the relay before it";
const FOREIGN_VALUES: Verdict =
    Never("would change values by foreign code", "leave it out, if the outbox's columns do not depend on it");

/// Kafka Connect's own properties.
pub(super) const CONNECT: &[Line] = &[
    line("name", Text("name")),
    line(
        "connector.class",
        Choice("", &[
            ("io.debezium.connector.postgresql.PostgresConnector", Into("source.postgres")),
            ("PostgresConnector", Into("source.postgres")),
            ("Postgres", Into("source.postgres")),
            ("io.debezium.connector.mysql.MySqlConnector", Never("a source of type MySQL is not available in this version", "use a PostgreSQL source")),
            ("io.debezium.connector.mariadb.MariaDbConnector", Never("a source of type MariaDB is not available in this version", "use a PostgreSQL source")),
        ]),
    ),
    line("tasks.max", Unless(&["1"], Warned(ONE_READER))),
    line("tasks.max.enforce", Always(Ignored(ONE_READER))),
    line("key.converter*", Part("record.key-format")),
    line("value.converter*", Part("record.value-format")),
    line("header.converter*", Part("record.header-format")),
    line("transforms*", Part("record")),
    line("predicates*", Part("record")),
    line(
        "errors.tolerance",
        Choice("", &[
            ("none", Ignored(STOPS)),
            ("all", Refused(
                "would drop rows that cannot be published, and nothing is dropped silently: delivery.on-row-error = \"skip\" is not \
                 available in this version",
                "set it to \"none\"",
                STOPS,
            )),
        ]),
    ),
    line("errors.*", Always(Ignored("errors are logged and counted, and tried again for as long as it takes"))),
    line("topic.creation.default.partitions", Part("sink.kafka.topic-partitions")),
    line("topic.creation.default.replication.factor", Part("sink.kafka.topic-replication-factor")),
    line("topic.creation.default.*", Part("sink.kafka.topic-config")),
    line("topic.creation.groups", Unless(&[""], Refused(
        "all topics that are made are made alike",
        "leave the groups out and make their topics beforehand",
        "the groups' topics are made like the others",
    ))),
    line("topic.creation.enable", Always(Ignored("see sink.kafka.create-topics"))),
    line("topic.creation.*", Always(Warned("it belongs to topic.creation.groups, and there are no groups"))),
    line("producer.override.*", Part("sink.kafka")),
    line("consumer.override.*", Always(Ignored("a source consumes nothing"))),
    line("admin.override.*", Always(Ignored("topics are made with the producer's settings"))),
    line("exactly.once.support", Choice("", &[
        ("requested", Ignored("at least once; the header id tells repeats")),
        ("required", Refused(
            "exactly once is not available in this version",
            "set it to \"requested\" and have consumers tell repeats by the header id",
            "each record arrives at least once",
        )),
    ])),
    line("transaction.boundary*", Always(Ignored("at least once; the header id tells repeats"))),
    line("offsets.storage.topic", Always(Warned("the position is kept in sink.kafka.positions-topic and in the slot"))),
    line("offset.*", Always(Ignored("the position is kept in sink.kafka.positions-topic and in the slot"))),
    line("config.action.reload", Always(Ignored("files are read when the relay starts"))),
    line("config.providers*", Always(Ignored("the providers env and file are there"))),
];

/// What Debezium Server has beside its source's properties.
pub(super) const SERVER: &[Line] = &[
    line("debezium.sink.type", Unless(&["kafka"], Never("only Kafka is available as a sink", "set it to \"kafka\""))),
    line("debezium.format.*", Part("record")),
    line("debezium.sink.kafka.*", Always(Warned("it has no meaning here"))),
    line("quarkus.log.*", Always(Ignored("see [log]"))),
    line("quarkus.http.*", Always(Warned("see http.listen"))),
];

/// What all of Debezium's connectors have.
pub(super) const COMMON: &[Line] = &[
    line("topic.prefix", Text("record.legacy-prefix")),
    line("database.server.name", Part("record.legacy-prefix")),
    line("database.hostname", Part(URL)),
    line("database.port", Part(URL)),
    line("database.user", Part(URL)),
    line("database.password", Part("source.postgres.password")),
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
        Choice("source.postgres.start", &[
            ("initial", Is("table")),
            ("no_data", Is("now")),
            ("never", IsBut("now", "this is the former name of no_data")),
            ("always", IsBut("table", "the rows that stand in the table are published at the first start only")),
            ("when_needed", IsBut(
                "table",
                "when the position is gone the relay waits for a person; see outboxd resume --from table",
            )),
            ("initial_only", Refused(
                "the relay goes on after the first read",
                "set it to \"initial\", and stop the relay when the log says that the first read is done",
                "it goes on",
            )),
            ("configuration_based", Never("its own settings are not available", "write \"initial\" or \"no_data\"")),
            ("custom", Never("foreign code decides what is read", "write \"initial\" or \"no_data\"")),
        ]),
    ),
    line("snapshot.select.statement.overrides*", Part("outbox.start-where")),
    line("snapshot.*", Always(NO_SNAPSHOT_SETTING)),
    line("signal.*", Always(NO_SIGNALS)),
    line("read.only", Always(NO_SIGNALS)),
    line("notification.*", Always(Warned("there are no notifications; see /readyz, the metrics and the log"))),
    line("openlineage.*", Always(Warned("no lineage is emitted"))),
    line("guardrail.*", Always(Warned("only the outbox's tables are read"))),
    line("heartbeat.interval.ms", Unless(&["0"], Warned("an idle outbox holds no log back; heartbeat records are not written"))),
    line("heartbeat.action.query", Always(Warned("an idle outbox holds no log back, so the query is not needed and not run"))),
    line("provide.transaction.metadata", Unless(&["false"], Refused(
        "there are no transaction records: their topic would fall silent",
        "set it to \"false\", if nobody reads that topic",
        "their topic falls silent",
    ))),
    line("skipped.operations", Part("source.postgres")),
    line(
        "event.processing.failure.handling.mode",
        Choice("", &[
            ("fail", Ignored(STOPS)),
            ("warn", FAILURES_SKIPPED),
            ("skip", FAILURES_SKIPPED),
            ("ignore", FAILURES_SKIPPED),
        ]),
    ),
    line("event.converting.failure.handling.mode", Unless(&["fail"], Warned("a value that cannot be converted is an error, never a NULL"))),
    line("errors.max.retries", Unless(&["-1"], Warned("it is tried again without limit"))),
    line("retriable.restart.connector.wait.ms", Always(Ignored("it is tried again after 0.5 s to 30 s"))),
    line("binary.handling.mode", Choice("record.binary-as", &[
        ("bytes", Is("raw")),
        ("base64", Is("base64")),
        ("base64-url-safe", Is("base64-url-safe")),
        ("hex", Is("hex")),
    ])),
    line("decimal.handling.mode", Choice("record.decimal-as", &[
        ("precise", Is("precise")),
        ("double", Is("double")),
        ("string", Is("string")),
    ])),
    line("time.precision.mode", Choice("record.time-format", &[
        ("adaptive", Is("debezium")),
        ("adaptive_time_microseconds", IsBut("debezium", "a column of type time(0) to time(3) is given in milliseconds")),
        ("connect", OTHER_TIMES),
        ("isostring", OTHER_TIMES),
        ("microseconds", OTHER_TIMES),
        ("nanoseconds", OTHER_TIMES),
    ])),
    line("hstore.handling.mode", Unless(&["json"], ODD_TYPE)),
    line("interval.handling.mode", Unless(&["numeric"], ODD_TYPE)),
    line("money.fraction.digits", Unless(&["2"], ODD_TYPE)),
    line("include.unknown.datatypes", Unless(&["false"], ODD_TYPE)),
    line("unavailable.value.placeholder", Always(Ignored("an inserted row has all its values"))),
    line("converters", Unless(&[""], FOREIGN_VALUES)),
    line("post.processors", Unless(&[""], FOREIGN_VALUES)),
    line("extended.headers.enabled", Flag("record.context-headers")),
    line("custom.metric.tags", Always(Warned("the metrics have the label name alone"))),
    line("database.query.timeout.ms", Always(Warned("see source.postgres.connect-timeout and silence-timeout"))),
    line("connection.validation.timeout.ms", Always(Warned("see source.postgres.connect-timeout and silence-timeout"))),
    line("executor.shutdown.timeout.ms", Always(Warned("see delivery.shutdown-timeout"))),
    line("streaming.delay.ms", Always(Warned("reading begins at once"))),
    line("database.initial.statements", Always(Warned("the session's settings are the relay's"))),
    line("internal.*", Always(Warned("it has no meaning here"))),
];

const FAILURES_SKIPPED: Verdict = Refused(
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
pub(super) const POSTGRES: &[Line] = &[
    line("database.dbname", Part(URL)),
    line(
        "plugin.name",
        Choice("", &[
            ("pgoutput", Into("source.postgres")),
            ("decoderbufs", OTHER_PLUGIN),
            ("wal2json", OTHER_PLUGIN),
        ]),
    ),
    line("slot.name", Text("source.postgres.slot")),
    line("slot.drop.on.stop", Unless(&["false"], Warned("the slot stays: rows written while the relay is stopped are published when it starts"))),
    line("slot.failover", Flag("source.postgres.failover-slot")),
    line("slot.max.retries", Always(Ignored("it is tried again without limit"))),
    line("slot.retry.delay.ms", Always(Ignored("it is tried again after 0.5 s to 30 s"))),
    line("slot.stream.params", Unless(&[""], Warned("the plug-in's parameters are the relay's"))),
    line("publication.name", Text("source.postgres.publication")),
    line(
        "publication.autocreate.mode",
        Choice("", &[
            ("all_tables", Ignored("one that is there is used; one that is missing is made with the outbox's tables alone")),
            ("filtered", Ignored("one that is there is used; one that is missing is made with the outbox's tables alone")),
            ("disabled", Warned("a publication that is missing is made, if the role may")),
            ("no_tables", Warned("one that is missing is made with the outbox's tables")),
        ]),
    ),
    line("publish.via.partition.root", Unless(&["true"], Ignored("the publication says"))),
    line("status.update.interval.ms", Always(Ignored("the position is confirmed every delivery.position-interval"))),
    line("lsn.flush.mode", Choice("", &[
        ("connector", Ignored("the slot is confirmed when the brokers have acknowledged")),
        ("connector_and_driver", Ignored("the slot is confirmed when the brokers have acknowledged")),
        ("manual", NOT_CONFIRMED),
    ])),
    line("flush.lsn.source", Unless(&["true"], NOT_CONFIRMED)),
    line("lsn.flush.timeout.*", Always(TUNING)),
    line("xmin.fetch.interval.ms", Always(TUNING)),
    line("schema.refresh.mode", Always(TUNING)),
    line("replica.identity.autoset.values", Always(DISCARDED)),
    line("message.prefix.*", Always(Ignored("messages of pg_logical_emit_message are not published"))),
    line("offset.mismatch.strategy", Unless(&["no_validation"], Warned("a slot that is ahead of what was published stops the relay"))),
    line("database.sslmode", Part(URL)),
    line("database.sslrootcert", Part(URL)),
    line("database.sslcert", Part(URL)),
    line("database.sslkey", Part(URL)),
    line("database.sslpassword", Unless(&[""], Never(
        "keys with a passphrase are not available",
        "write the key without one: openssl pkcs8 -in KEY -out PLAIN-KEY; name it as database.sslkey",
    ))),
    line("database.sslfactory", Unless(&[""], Refused(
        "foreign code makes the connection",
        "leave it out; see database.sslmode, sslrootcert, sslcert and sslkey",
        "the connection is made as database.sslmode says",
    ))),
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

/// The router's options, below `transforms.NAME.`; those that are not here have no effect in Debezium either.
pub(super) const ROUTER: &[Line] = &[
    line("type", Part("record")),
    line("predicate", Part("record")),
    line("negate", Part("record")),
    line("table.field.event.id", Text("outbox.columns.id")),
    line("table.field.event.key", Text("outbox.columns.key")),
    line("table.field.event.type", Always(Ignored("it has no effect in Debezium either"))),
    line("table.field.event.payload", Text("outbox.columns.payload")),
    line("table.field.event.timestamp", Text("outbox.columns.timestamp")),
    line("table.field.event.schema.version", Always(Ignored("it is seen only with a schema, and none is written"))),
    line("table.fields.additional.placement", Part("record")),
    line("table.field.additional.missing", Choice("record.missing-columns", MISSING)),
    line("table.fields.additional.error.on.missing", Choice("record.missing-columns", &[
        ("true", Is("error")),
        ("false", Is("ignore")),
    ])),
    line("table.op.invalid.behavior", Choice("outbox.on-update", &[
        ("warn", Is("warn")),
        ("error", Is("error")),
        ("fatal", Is("stop")),
    ])),
    line("table.expand.json.payload", Choice("record.expand-json", &[("true", Is("debezium")), ("false", Is("off"))])),
    line("table.json.payload.null.behavior", Choice("record.expand-json-null", &[
        ("ignore", Is("ignore")),
        ("optional_bytes", Is("keep")),
    ])),
    line("table.json.payload.empty.array.behavior", Choice("record.expand-json-empty-array", &[
        ("ignore", Is("ignore")),
        ("optional_string", Is("keep")),
    ])),
    line("route.by.field", Text("outbox.columns.route-by")),
    line("route.topic.regex", Text("record.topic-regex")),
    line("route.topic.replacement", Text("record.topic")),
    line("route.tombstone.on.empty.payload", Flag("record.tombstone-on-empty")),
    line("tracing.span.context.field", Text("outbox.columns.tracing-context")),
    line("tracing.operation.name", Always(Warned("no span is made; the row's own trace context is passed on"))),
    line("tracing.with.context.field.only", Always(Ignored("no span is made; the row's own trace context is passed on"))),
    line("field.name.adjustment.mode", Unless(&["none"], Never(
        "would rename fields of the payload, and Debezium loses their values then",
        "set it to \"none\"",
    ))),
];

const MISSING: &[(&str, Verdict)] = &[("error", Is("error")), ("ignore", Is("ignore"))];

/// Properties that Debezium demands, with what they are.
pub(super) const REQUIRED: &[(&str, &str, &str)] = &[
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", ""),
    ("topic.prefix", "the connector's logical name", "record.legacy-prefix"),
    ("database.hostname", "the database server's name or address", URL),
    ("database.user", "the role to log in as", URL),
    ("database.dbname", "the database's name", URL),
];

/// The line that fits a name.
pub(super) fn find(lists: &[&'static [Line]], name: &str) -> Option<&'static Line> {
    lists.iter().flat_map(|list| list.iter()).find(|line| match line.name.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => line.name == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::options;

    const ALL: &[&[Line]] = &[CONNECT, SERVER, COMMON, POSTGRES, ROUTER];

    /// Every option that a line names is one of ours, and every word one of its words.
    #[test]
    fn the_list_names_options_of_ours() {
        for line in ALL.iter().flat_map(|list| list.iter()) {
            let (option, words): (&str, &[(&str, Verdict)]) = match line.action {
                Text(option) | Flag(option) => (option, &[]),
                Choice(option, words) => (option, words),
                _ => continue,
            };
            let words: Vec<&str> = words
                .iter()
                .filter_map(|(_, verdict)| match verdict {
                    Is(word) | IsBut(word, _) => Some(*word),
                    _ => None,
                })
                .collect();
            assert_eq!(option.is_empty(), words.is_empty() && matches!(line.action, Choice(..)), "{}", line.name);
            if let Some(known) = options::find(option) {
                let kinds: Vec<&str> = known.kind.split(", ").collect();
                let wrong: Vec<&&str> = words.iter().filter(|word| !kinds.contains(word)).collect();
                assert!(wrong.is_empty(), "{}: {wrong:?}", line.name);
            } else {
                assert_eq!(option, "", "{}", line.name);
            }
        }
    }

    /// No line stands behind one that takes its name first.
    #[test]
    fn every_line_can_be_reached() {
        for lists in [&[CONNECT, SERVER, COMMON, POSTGRES][..], &[ROUTER]] {
            for line in lists.iter().flat_map(|list| list.iter()) {
                let name = line.name.replace('*', "x");
                assert!(std::ptr::eq(find(lists, &name).unwrap(), line), "{}", line.name);
            }
        }
    }
}
