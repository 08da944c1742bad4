//! The configuration of Debezium's MySQL and MariaDB connectors, taken as it is, and `outboxd takeover` with their offsets.

use std::path::Path;

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::{Value, json};

use crate::support::mysql::{Kind, MysqlCase};
use crate::support::tool::{Said, type_in};
use crate::support::{Outboxd, Rec, free_port};

on_each_binlog![
    the_ready_files_run,
    goes_on_exactly_at_the_offset,
    an_offset_without_gtids,
    goes_on_behind_a_connector_that_took_its_place,
    says_why_there_is_nothing_to_go_on_from,
];

/// A case with the ready connector of its kind of server, and the files around it.
struct Connector {
    case: MysqlCase,
    dir: tempfile::TempDir,
    port: u16,
}

impl Connector {
    #[track_caller]
    fn new(kind: Kind, changes: Value) -> Self {
        let connector = Self { case: MysqlCase::new(kind), dir: tempfile::tempdir().unwrap(), port: free_port() };
        let case = &connector.case;
        let ready =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("connectors/debezium/{}-outbox.json", case.source()));
        let mut json: Value = serde_json::from_str(&std::fs::read_to_string(ready).unwrap()).unwrap();
        json["name"] = case.tag.as_str().into();
        let own = json!({
            "database.hostname": "127.0.0.1",
            "database.port": case.server.port.to_string(),
            "database.user": "cdc",
            "database.password": "${file:secrets.properties:password}",
            "database.server.id": (3_000_000_000_u32 + u32::from(connector.port)).to_string(),
            "database.include.list": case.tag,
            "table.include.list": format!("{}\\.outbox", case.tag),
            "producer.override.bootstrap.servers": case.kafka.bootstrap,
            "topic.creation.default.replication.factor": "1",
        });
        let config = json["config"].as_object_mut().unwrap();
        config.extend(own.as_object().unwrap().clone());
        config.extend(changes.as_object().unwrap().clone());
        std::fs::write(connector.file("connector.json"), json.to_string()).unwrap();
        std::fs::write(connector.file("secrets.properties"), "password=pw\n").unwrap();
        let worker = format!("offset.storage.topic={}\n", connector.offsets_topic());
        std::fs::write(connector.file("worker.properties"), worker).unwrap();
        connector
    }

    fn offsets_topic(&self) -> String {
        format!("{}.offsets", self.case.tag)
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn listen(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    #[track_caller]
    fn start(&self) -> Outboxd {
        let names = ["connector.json", "secrets.properties", "worker.properties"];
        let texts = names.map(|name| std::fs::read_to_string(self.file(name)).unwrap());
        let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
        let listen = self.listen();
        Outboxd::start_files(&files, &["--worker-config", "worker.properties", "--http-listen", &listen], self.port)
    }

    /// Runs `outboxd takeover`, which must end with this code. The password's file stands where the command is typed.
    #[track_caller]
    fn takeover(&self, flags: &[&str], code: i32) -> Said {
        let (config, worker, listen) = (self.file("connector.json"), self.file("worker.properties"), self.listen());
        let json = std::fs::read_to_string(&config).unwrap().replace("${file:secrets.properties:password}", "pw");
        std::fs::write(&config, json).unwrap();
        let mut words = vec!["takeover", "--config", &config, "--worker-config", &worker, "--http-listen", &listen];
        words.extend(flags);
        let said = type_in(&words);
        assert_eq!(said.code, Some(code), "{}{}", said.stdout, said.stderr);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        said
    }

    /// Whether a position is stored. A connector's stands in the topic that is the default.
    fn has_position(&self) -> bool {
        const TOPIC: &str = "outboxd.positions";
        let kafka = &self.case.kafka;
        let is_ours = |record: &Rec| record.key.as_deref() == Some(self.case.tag.as_bytes());
        kafka.partitions(TOPIC).is_some() && kafka.read_all(TOPIC).iter().any(is_ours)
    }

    /// Where the log ends: file, offset, GTIDs.
    fn place(&self) -> Place {
        let mut session = self.case.session();
        let is_mysql = self.case.server.kind.is_mysql();
        let row = session.rows(if is_mysql { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" }).remove(0);
        let text = |index: usize| String::from_utf8(row[index].clone().unwrap()).unwrap();
        let (file, offset) = (text(0), text(1).parse().unwrap());
        let gtids = if is_mysql {
            text(4).replace('\n', "")
        } else {
            session.value(&format!("SELECT BINLOG_GTID_POS('{file}', {offset})"))
        };
        Place { file, offset, gtids }
    }

    /// Writes offsets of two connectors as Connect does, this one's last.
    #[track_caller]
    fn store_offset(&self, offset: &Value) {
        let topic = self.offsets_topic();
        if self.case.kafka.partitions(&topic).is_none() {
            self.case.kafka.create_topic(&topic, 5, &[("cleanup.policy", "compact")]);
        }
        let mut config = ClientConfig::new();
        let producer: BaseProducer = config.set("bootstrap.servers", &self.case.kafka.bootstrap).create().unwrap();
        let far = json!({"file": "bin.999999", "pos": 4});
        for (name, prefix, value) in [
            (self.case.tag.as_str(), "shop", &far),
            (self.case.tag.as_str(), "other", &far),
            ("other", "shop", &far),
            (self.case.tag.as_str(), "shop", offset),
        ] {
            let (key, value) = (json!([name, {"server": prefix}]).to_string(), value.to_string());
            producer.send(BaseRecord::to(&topic).key(&key).payload(&value)).unwrap();
        }
        producer.flush(std::time::Duration::from_secs(10)).unwrap();
    }
}

struct Place {
    file: String,
    offset: u64,
    gtids: String,
}

impl Place {
    /// As 3.6.1 writes it when it has done a part of the transaction behind it.
    fn json(&self) -> Value {
        json!({"transaction_id": null, "ts_sec": 1_767_323_045, "file": self.file, "pos": self.offset, "gtids": self.gtids,
               "row": 1, "event": 2, "server_id": 1})
    }
}

/// Proves that the connectors in `connectors/debezium` run as they are: the rows that stand in the table first, then what
/// is committed; with Debezium's headers, JSON without blanks where it comes from MySQL's log, TIME in microseconds.
fn the_ready_files_run(kind: Kind) {
    let placement =
        json!({"transforms.outbox.table.fields.additional.placement": "type:header:eventType,js:header,t:header"});
    let connector = Connector::new(kind, placement);
    let case = &connector.case;
    let mut session = case.session();
    session.run("ALTER TABLE outbox ADD js JSON, ADD t TIME(3)");
    let row = |key: &str| {
        format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, js, t) VALUES ('{}', '{key}', 'T', 'p', \
             '{{\"bb\":  1.50, \"a\": [1, 2]}}', '-01:02:03.004')",
            case.kind("A")
        )
    };
    session.run(&row("1"));
    let relay = connector.start();
    relay.ready();
    assert_eq!(case.consume("A", 1, 20).len(), 1);
    session.run(&row("2"));
    let records = case.consume("A", 2, 20);
    let context = "__debezium.context.";
    for (record, is_streamed) in records.iter().zip([false, true]) {
        let header = |name: &str| Rec::header_text(record, name);
        assert_eq!(header(&format!("{context}connectorLogicalName")), "shop");
        assert_eq!(header(&format!("{context}connectorName")), case.source());
        assert_eq!((header("eventType"), header("t")), ("T".to_owned(), "-3723004000".to_owned()));
        let document = match (kind.is_mysql(), is_streamed) {
            (true, true) => "{\"a\":[1,2],\"bb\":1.5}",
            (true, false) => "{\"a\": [1, 2], \"bb\": 1.5}",
            // there it is a text
            (false, _) => "{\"bb\":  1.50, \"a\": [1, 2]}",
        };
        assert_eq!(header("js"), document);
    }
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that the relay goes on at the offset: what was before it is left out, the transaction of which a part was done
/// is published whole; that nothing is done unless a person agrees; and that other connectors' offsets do not count. The
/// rows are deleted at once, so that the table has none of them.
fn goes_on_exactly_at_the_offset(kind: Kind) {
    let connector = Connector::new(kind, json!({}));
    let case = &connector.case;
    let mut session = case.session();
    let mut write = |payloads: &[&str]| {
        session.run("BEGIN");
        payloads.iter().for_each(|payload| session.run(&case.insert_sql("A", "1", payload)));
        session.run("DELETE FROM outbox");
        session.run("COMMIT");
    };
    write(&["first"]);
    let place = connector.place();
    write(&["second-1", "second-2"]);
    connector.store_offset(&place.json());
    write(&["third"]);
    let said = connector.takeover(&[], 2);
    assert!(said.finds("nobody can be asked"), "{}", said.stderr);
    assert!(!connector.has_position(), "nothing is done without an answer");
    let said = connector.takeover(&["--yes"], 0);
    let shown =
        format!("published whole up to {}@{}:{}, and 2 events and 1 rows", place.gtids, place.file, place.offset);
    assert!(said.stdout.contains(&shown), "{}", said.stdout);
    assert!(said.stdout.contains("stored position: nothing"), "{}", said.stdout);
    let relay = connector.start();
    assert_eq!(case.values_until("A", "third", 20), ["second-1", "second-2", "third"]);
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that MariaDB turns file and position into GTIDs, and that a place which it does not have, or an offset of MySQL
/// from before it had GTIDs, is said.
fn an_offset_without_gtids(kind: Kind) {
    let connector = Connector::new(kind, json!({}));
    let case = &connector.case;
    case.insert("A", "1", "first");
    let place = connector.place();
    case.insert("A", "1", "second");
    connector.store_offset(&json!({"file": place.file, "pos": place.offset, "ts_sec": 1}));
    if kind.is_mysql() {
        let said = connector.takeover(&["--yes"], 1);
        assert!(said.finds("the connector's offset has no GTIDs"), "{}", said.stderr);
        return;
    }
    connector.takeover(&["--yes"], 0);
    let _relay = connector.start();
    assert_eq!(case.values_until("A", "second", 20), ["second"]);
    let other = Connector::new(kind, json!({}));
    other.store_offset(&json!({"file": "bin.999999", "pos": 4711}));
    let said = other.takeover(&["--yes"], 1);
    assert!(said.finds("the server's log has no place bin.999999:4711"), "{}", said.stderr);
}

/// Proves the way back: what a connector published after the relay is not published again, an offset from before the relay
/// does not count, and one that knows other transactions is a person's to judge.
fn goes_on_behind_a_connector_that_took_its_place(kind: Kind) {
    let connector = Connector::new(kind, json!({}));
    let case = &connector.case;
    let before = connector.place();
    let relay = connector.start();
    relay.ready();
    case.insert("A", "1", "by the relay");
    case.values_until("A", "by the relay", 20);
    assert_eq!(relay.terminate(), Some(0));
    connector.store_offset(&before.json());
    let said = connector.takeover(&["--yes"], 0);
    assert!(said.stdout.contains("no longer counts: the relay goes on by itself"), "{}", said.stdout);
    case.insert("A", "1", "by the connector");
    connector.store_offset(&connector.place().json());
    case.insert("A", "1", "after it");
    connector.takeover(&["--yes"], 0);
    let relay = connector.start();
    assert_eq!(case.values_until("A", "after it", 20), ["by the relay", "after it"]);
    let said = connector.takeover(&["--yes"], 1);
    assert!(said.finds("an instance"), "{}", said.stderr);
    assert_eq!(relay.terminate(), Some(0));
    let foreign = if kind.is_mysql() { "4e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" } else { "77-1-1" };
    connector.store_offset(&json!({"file": "x.000001", "pos": 4, "gtids": foreign}));
    let said = connector.takeover(&["--yes"], 1);
    assert!(said.finds("lacks transactions that the relay has published"), "{}", said.stderr);
}

/// Proves that what says nothing about the log changes nothing: no offset, one from the middle of a snapshot, one of
/// another server, one that is none.
fn says_why_there_is_nothing_to_go_on_from(kind: Kind) {
    let connector = Connector::new(kind, json!({}));
    let file = connector.file("offsets.json");
    let answer = |offset: Value| {
        let answer = json!({"offsets": [{"partition": {"server": "shop"}, "offset": offset}]});
        std::fs::write(&file, answer.to_string()).unwrap();
    };
    let place = connector.place();
    let mut reading = place.json();
    reading["snapshot"] = json!("INITIAL");
    for (offset, words) in [
        (json!(null), "there is nothing to take over: the relay would begin for the first time"),
        (reading, "the connector stopped while it was reading the tables"),
    ] {
        answer(offset);
        let said = connector.takeover(&["--yes", "--offsets", &file], 1);
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    let foreign = if kind.is_mysql() { "4e11fa47-71ca-11e1-9e33-c80aa9429562:1-5" } else { "0-1-999999999" };
    answer(json!({"file": place.file, "pos": place.offset, "gtids": foreign}));
    let said = connector.takeover(&["--yes", "--offsets", &file], 1);
    assert!(said.finds(&format!("does not have transactions {foreign}")), "{}", said.stderr);
    answer(json!({"lsn": 1, "lsn_commit": 1}));
    let said = connector.takeover(&["--yes", "--offsets", &file], 2);
    assert!(said.finds("is not understood: it has no \"file\""), "{}", said.stderr);
    assert!(!connector.has_position());
}
