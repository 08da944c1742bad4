//! `outboxd takeover`: the offset of a Debezium connector, and what is left out because of it.

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::json;

use crate::support::tool::{Said, type_in};
use crate::support::{Case, Outboxd, Version, eventually, free_port, lsn};

on_each_version!(
    leaves_out_what_was_published_whole,
    a_transaction_that_was_cut_is_published_again,
    goes_on_behind_a_connector_that_took_its_place,
    says_why_there_is_nothing_to_leave_out,
);

/// A case with the slot and publication of a connector, and the connector's files.
struct Connector {
    case: Case,
    dir: tempfile::TempDir,
    port: u16,
}

impl Connector {
    fn new(version: Version) -> Self {
        let case = Case::new(version);
        case.db.run("CREATE PUBLICATION dbz_publication FOR TABLE outbox");
        let connector = Self { case, dir: tempfile::tempdir().unwrap(), port: free_port() };
        connector.make_slot(&connector.slot());
        connector.make_slot(&connector.peek_slot());
        let config = json!({
            "name": connector.case.tag,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": connector.case.db.server.port.to_string(),
            "database.user": "postgres",
            "database.dbname": connector.case.db.name,
            "topic.prefix": "shop",
            "plugin.name": "pgoutput",
            "slot.name": connector.slot(),
            "table.include.list": "public.outbox",
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        });
        let worker = format!(
            "bootstrap.servers={}\noffset.storage.topic={}\n\
             key.converter=org.apache.kafka.connect.storage.StringConverter\n\
             value.converter=org.apache.kafka.connect.storage.StringConverter\n",
            connector.case.kafka.bootstrap,
            connector.offsets_topic()
        );
        std::fs::write(connector.file("connector.json"), config.to_string()).unwrap();
        std::fs::write(connector.file("worker.properties"), worker).unwrap();
        connector
    }

    fn slot(&self) -> String {
        format!("dbz_{}", self.case.tag)
    }

    /// A slot that stays, to look at the log with.
    fn peek_slot(&self) -> String {
        format!("peek_{}", self.case.tag)
    }

    fn make_slot(&self, name: &str) {
        self.case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
    }

    fn offsets_topic(&self) -> String {
        format!("{}.offsets", self.case.tag)
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Positions of the messages of this kind in the log, as the server sends them: those of commits are their ends.
    fn messages(&self, kind: char) -> Vec<u64> {
        let sql = format!(
            "SELECT lsn FROM pg_logical_slot_peek_binary_changes('{}', NULL, NULL, 'proto_version', '1', \
             'publication_names', 'dbz_publication') WHERE chr(get_byte(data, 0)) = '{kind}'",
            self.peek_slot()
        );
        self.case.db.rows(&sql).iter().map(|row| lsn(row[0].as_deref().unwrap())).collect()
    }

    /// Writes offsets of two connectors as Connect does, this one's last.
    #[track_caller]
    fn store_offset(&self, offset: &serde_json::Value) {
        let topic = self.offsets_topic();
        if self.case.kafka.partitions(&topic).is_none() {
            self.case.kafka.create_topic(&topic, 5, &[("cleanup.policy", "compact")]);
        }
        let mut config = ClientConfig::new();
        let producer: BaseProducer = config.set("bootstrap.servers", &self.case.kafka.bootstrap).create().unwrap();
        for (name, prefix, value) in [
            (self.case.tag.as_str(), "shop", json!({"lsn_commit": 1, "lsn": 1})),
            (self.case.tag.as_str(), "other", json!({"lsn_commit": u64::MAX >> 1})),
            ("other", "shop", json!({"lsn_commit": u64::MAX >> 1})),
            (self.case.tag.as_str(), "shop", offset.clone()),
        ] {
            let (key, value) = (json!([name, {"server": prefix}]).to_string(), value.to_string());
            producer.send(BaseRecord::to(&topic).key(&key).payload(&value)).unwrap();
        }
        producer.flush(std::time::Duration::from_secs(10)).unwrap();
    }

    /// Runs `outboxd takeover`, which must end with this code.
    #[track_caller]
    fn takeover(&self, flags: &[&str], code: i32) -> Said {
        let (config, worker) = (self.file("connector.json"), self.file("worker.properties"));
        let listen = format!("127.0.0.1:{}", self.port);
        let mut words = vec!["takeover", "--config", &config, "--worker-config", &worker, "--http-listen", &listen];
        words.extend(flags);
        let said = type_in(&words);
        assert_eq!(said.code, Some(code), "{}{}", said.stdout, said.stderr);
        said
    }

    #[track_caller]
    fn start(&self) -> Outboxd {
        let text = |name: &str| std::fs::read_to_string(self.file(name)).unwrap();
        let (connector, worker) = (text("connector.json"), text("worker.properties"));
        let files = [("connector.json", connector.as_str()), ("worker.properties", worker.as_str())];
        let listen = format!("127.0.0.1:{}", self.port);
        Outboxd::start_files(&files, &["--worker-config", "worker.properties", "--http-listen", &listen], self.port)
    }

    /// What stands in the topic when `last` has arrived.
    #[track_caller]
    fn published(&self, last: &str) -> Vec<String> {
        self.case.values_until("A", last, 20)
    }

    fn confirmed(&self) -> u64 {
        self.case.db.slot(&self.slot()).unwrap().confirmed.unwrap()
    }
}

/// Proves that the transactions up to lsn_commit are left out, and none behind it; that nothing is done unless a person
/// agrees; and that other connectors' offsets in the topic do not count.
fn leaves_out_what_was_published_whole(version: Version) {
    let connector = Connector::new(version);
    for payload in ["first", "second", "third"] {
        connector.case.insert("A", "1", payload);
    }
    let ends = connector.messages('C');
    connector.store_offset(&json!({"lsn_commit": ends[1], "lsn": ends[1] + 8, "lsn_proc": ends[1] + 8, "ts_usec": 1}));
    let begin = connector.confirmed();
    let said = connector.takeover(&[], 2);
    assert!(said.finds("nobody can be asked"), "{}", said.stderr);
    assert_eq!(connector.confirmed(), begin, "nothing is done without an answer");
    let said = connector.takeover(&["--yes"], 0);
    assert!(said.stdout.contains("stored position: nothing"), "{}", said.stdout);
    assert_eq!(connector.confirmed(), ends[1]);
    let _relay = connector.start();
    assert_eq!(connector.published("third"), ["third"]);
}

/// Proves that a position inside a transaction, which Debezium stores for a message of pg_logical_emit_message, leaves
/// nothing of that transaction out.
fn a_transaction_that_was_cut_is_published_again(version: Version) {
    let connector = Connector::new(version);
    connector.case.insert("A", "1", "first");
    let both =
        format!("{}{}", connector.case.insert_sql("A", "1", "cut-1"), connector.case.insert_sql("A", "1", "cut-2"));
    connector.case.db.run(&both);
    let rows = connector.messages('I');
    assert_eq!(rows.len(), 3);
    connector.store_offset(&json!({"lsn_commit": rows[2], "lsn": rows[2]}));
    connector.takeover(&["--yes"], 0);
    let _relay = connector.start();
    assert_eq!(connector.published("cut-2"), ["cut-1", "cut-2"]);
}

/// Proves the way back: after the relay a connector read the slot, and its offset accounts for what the relay has not
/// published; without the offset that is a gap, and stays one.
fn goes_on_behind_a_connector_that_took_its_place(version: Version) {
    let connector = Connector::new(version);
    let relay = connector.start();
    relay.ready();
    connector.case.insert("A", "1", "by the relay");
    connector.published("by the relay");
    assert_eq!(relay.terminate(), Some(0));
    connector.store_offset(&json!({"lsn_commit": 1}));
    let said = connector.takeover(&["--yes"], 0);
    assert!(said.stdout.contains("goes on by itself"), "{}", said.stdout);
    // the connector reads, and confirms what it has published
    connector.case.insert("A", "1", "by the connector");
    let end = *connector.messages('C').last().unwrap();
    let advance = |to: u64| {
        let (slot, to) = (connector.slot(), format!("{:X}/{:X}", to >> 32, to & 0xFFFF_FFFF));
        connector.case.db.run(&format!("SELECT pg_replication_slot_advance('{slot}', '{to}')"));
    };
    advance(end);
    connector.case.insert("A", "1", "after it");
    let said = connector.takeover(&["--yes"], 1);
    assert!(said.finds("does not account for it"), "{}", said.stderr);
    connector.store_offset(&json!({"lsn_commit": end, "lsn": end}));
    let relay = connector.start();
    relay.wait_reason("slot_moved_ahead", 20);
    relay.terminate();
    connector.takeover(&["--yes"], 0);
    let relay = connector.start();
    relay.ready();
    assert_eq!(connector.published("after it"), ["by the relay", "after it"]);
}

/// Proves that the answer of the REST interface is read too, and that what says nothing about published transactions
/// leaves nothing out: no offset, one from the middle of a snapshot, one behind the slot, one ahead of the log.
fn says_why_there_is_nothing_to_leave_out(version: Version) {
    let connector = Connector::new(version);
    connector.case.insert("A", "1", "first");
    let end = connector.messages('C')[0];
    let begin = connector.confirmed();
    let said = connector.takeover(&["--yes"], 2);
    assert!(said.finds("does not exist"), "{}", said.stderr);
    let file = connector.file("offsets.json");
    let answer = |offset: serde_json::Value| {
        let answer = json!({"offsets": [{"partition": {"server": "shop"}, "offset": offset}]});
        std::fs::write(&file, answer.to_string()).unwrap();
    };
    for (offset, words) in [
        (json!(null), "there is no offset to go by"),
        (json!({"lsn": end}), "names no transaction that was published whole"),
        (json!({"lsn_commit": end, "snapshot": "INITIAL"}), "while it was reading the table"),
        (json!({"lsn_commit": begin}), "the slot stands where the offset is"),
    ] {
        answer(offset);
        let said = connector.takeover(&["--yes", "--offsets", &file], 0);
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    answer(json!({"lsn_commit": end + (1 << 40)}));
    let said = connector.takeover(&["--yes", "--offsets", &file], 1);
    assert!(said.finds("is behind the end of the server's log"), "{}", said.stderr);
    std::fs::write(&file, "{}").unwrap();
    let said = connector.takeover(&["--yes", "--offsets", &file], 2);
    assert!(said.finds("it has no list \"offsets\""), "{}", said.stderr);
    assert_eq!(connector.confirmed(), begin);
    let relay = connector.start();
    assert_eq!(connector.published("first"), ["first"]);
    eventually("the slot moves", 10, || (connector.confirmed() >= end).then_some(()));
    let said = connector.takeover(&["--yes", "--offsets", &file], 1);
    assert!(said.finds("slot") && !said.stderr.is_empty(), "{}", said.stderr);
    drop(relay);
}
