//! Kafka Connect's properties, Debezium Server's, and the router's options.

use super::Action::{Always, Choice, Flag, Part, Text, Unless};
use super::Verdict::{Ignored, Into, Is, Never, Refused, Warned};
use super::{Line, Verdict, line};

const ONE_READER: &str = "there is always one reader, which reads the log";
const POSITION: &str = "the position is kept in sink.kafka.positions-topic; see outboxd takeover";
const STOPS: &str = "a row that cannot be published stops the relay before it";

/// Kafka Connect's own properties.
pub(in super::super) const CONNECT: &[Line] = &[
    line("name", Text("name")),
    line(
        "connector.class",
        Choice(
            "",
            &[
                ("io.debezium.connector.postgresql.PostgresConnector", Into("source.postgres")),
                ("PostgresConnector", Into("source.postgres")),
                ("Postgres", Into("source.postgres")),
                ("io.debezium.connector.mysql.MySqlConnector", Into("source.mysql")),
                ("MySqlConnector", Into("source.mysql")),
                ("MySql", Into("source.mysql")),
                ("io.debezium.connector.mariadb.MariaDbConnector", Into("source.mariadb")),
                ("MariaDbConnector", Into("source.mariadb")),
                ("MariaDb", Into("source.mariadb")),
            ],
        ),
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
        Choice(
            "",
            &[
                ("none", Ignored(STOPS)),
                (
                    "all",
                    Refused(
                        "would drop rows that cannot be published, and nothing is dropped silently: delivery.on-row-error = \"skip\" is not \
                 available in this version",
                        "set it to \"none\"",
                        STOPS,
                    ),
                ),
            ],
        ),
    ),
    line("errors.*", Always(Ignored("errors are logged and counted, and tried again for as long as it takes"))),
    line("topic.creation.default.partitions", Part("sink.kafka.topic-partitions")),
    line("topic.creation.default.replication.factor", Part("sink.kafka.topic-replication-factor")),
    line("topic.creation.default.*", Part("sink.kafka.topic-config")),
    line(
        "topic.creation.groups",
        Unless(
            &[""],
            Refused(
                "all topics that are made are made alike",
                "leave the groups out and make their topics beforehand",
                "the groups' topics are made like the others",
            ),
        ),
    ),
    line("topic.creation.enable", Always(Ignored("see sink.kafka.create-topics"))),
    line("topic.creation.*", Always(Warned("it belongs to topic.creation.groups, and there are no groups"))),
    line("producer.override.*", Part("sink.kafka")),
    line("consumer.override.*", Always(Ignored("a source consumes nothing"))),
    line("admin.override.*", Always(Ignored("topics are made with the producer's settings"))),
    line(
        "exactly.once.support",
        Choice(
            "",
            &[
                ("requested", Ignored("at least once; the header id tells repeats")),
                (
                    "required",
                    Refused(
                        "exactly once is not available in this version",
                        "set it to \"requested\" and have consumers tell repeats by the header id",
                        "each record arrives at least once",
                    ),
                ),
            ],
        ),
    ),
    line("transaction.boundary*", Always(Ignored("at least once; the header id tells repeats"))),
    line("offsets.storage.topic", Always(Warned(POSITION))),
    line("offset.*", Always(Ignored(POSITION))),
    line("config.action.reload", Always(Ignored("files are read when the relay starts"))),
    line("config.providers*", Always(Ignored("the providers env and file are there"))),
];

/// What Debezium Server has beside its source's properties.
pub(in super::super) const SERVER: &[Line] = &[
    line("debezium.sink.type", Unless(&["kafka"], Never("only Kafka is available as a sink", "set it to \"kafka\""))),
    line("debezium.format.*", Part("record")),
    line("debezium.sink.kafka.*", Always(Warned("it has no meaning here"))),
    line("quarkus.log.*", Always(Ignored("see [log]"))),
    line("quarkus.http.*", Always(Warned("see http.listen"))),
];

/// The router's options, below `transforms.NAME.`; those that are not here have no effect in Debezium either.
pub(in super::super) const ROUTER: &[Line] = &[
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
    line(
        "table.fields.additional.error.on.missing",
        Choice("record.missing-columns", &[("true", Is("error")), ("false", Is("ignore"))]),
    ),
    line(
        "table.op.invalid.behavior",
        Choice("outbox.on-update", &[("warn", Is("warn")), ("error", Is("error")), ("fatal", Is("stop"))]),
    ),
    line("table.expand.json.payload", Choice("record.expand-json", &[("true", Is("debezium")), ("false", Is("off"))])),
    line(
        "table.json.payload.null.behavior",
        Choice("record.expand-json-null", &[("ignore", Is("ignore")), ("optional_bytes", Is("keep"))]),
    ),
    line(
        "table.json.payload.empty.array.behavior",
        Choice("record.expand-json-empty-array", &[("ignore", Is("ignore")), ("optional_string", Is("keep"))]),
    ),
    line("route.by.field", Text("outbox.columns.route-by")),
    line("route.topic.regex", Text("record.topic-regex")),
    line("route.topic.replacement", Text("record.topic")),
    line("route.tombstone.on.empty.payload", Flag("record.tombstone-on-empty")),
    line("tracing.span.context.field", Text("outbox.columns.tracing-context")),
    line("tracing.operation.name", Always(Warned("no span is made; the row's own trace context is passed on"))),
    line(
        "tracing.with.context.field.only",
        Always(Ignored("no span is made; the row's own trace context is passed on")),
    ),
    line(
        "field.name.adjustment.mode",
        Unless(
            &["none"],
            Never("would rename fields of the payload, and Debezium loses their values then", "set it to \"none\""),
        ),
    ),
];

const MISSING: &[(&str, Verdict)] = &[("error", Is("error")), ("ignore", Is("ignore"))];
