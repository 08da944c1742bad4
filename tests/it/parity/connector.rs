//! A connector's JSON, and a real Kafka Connect to give it to.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::support::postgres::Database;
use crate::support::{Kafka, eventually, free_port, must_run, private_dir, script, variable};

/// The whole JSON of a connector, as one posts it: the common properties, and those of a case.
pub(super) fn connector_json(name: &str, db: &Database, prefix: &str, own: &Map<String, Value>) -> Value {
    let source = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.port": db.server.port.to_string(),
        "database.user": "postgres",
        "database.password": "postgres",
        "database.dbname": db.name,
        "plugin.name": "pgoutput",
        "slot.name": slot_name(name),
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "table.include.list": "public.outbox",
    });
    whole(name, prefix, source, own)
}

/// A connector with what all of them have, over that what its source has, and over that its own; `{prefix}` in a text stands for
/// the prefix.
pub(super) fn whole(name: &str, prefix: &str, source: Value, own: &Map<String, Value>) -> Value {
    let string = "org.apache.kafka.connect.storage.StringConverter";
    let mut config = json!({
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "topic.prefix": prefix,
        "snapshot.mode": "no_data",
        "poll.interval.ms": "20",
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "key.converter": string,
        "value.converter": string,
        "header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "{prefix}.${routedByValue}",
    });
    let properties = config.as_object_mut().unwrap();
    if let Value::Object(source) = source {
        properties.extend(source);
    }
    properties.extend(own.clone());
    for value in properties.values_mut() {
        if let Value::String(text) = value {
            *text = text.replace("{prefix}", prefix);
        }
    }
    json!({ "name": name, "config": config })
}

/// The publication of every connector.
pub(super) const PUBLICATION: &str = "parity";

/// The slot of a connector.
pub(super) fn slot_name(name: &str) -> String {
    format!("parity_{name}")
}

/// Makes the publication, and a slot for each of the connectors, so that none of them can miss a row.
pub(super) fn prepare(db: &Database, table: &str, connectors: &[&str]) {
    db.run(table);
    db.run(&format!("CREATE PUBLICATION {PUBLICATION} FOR TABLE outbox"));
    for name in connectors {
        db.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", slot_name(name)));
    }
}

/// A worker of Kafka Connect, reached by REST.
pub(super) struct Connect {
    url: String,
    /// Of one that belongs to a test.
    dir: Option<PathBuf>,
}

impl Connect {
    /// The one that `tests/run --debezium` starts.
    pub(super) fn shared() -> Self {
        Self { url: variable("OUTBOX_TEST_CONNECT"), dir: None }
    }

    /// Starts one of this test's own, which it may kill; `properties` are further lines of its file.
    pub(super) fn start(kafka: &Kafka, properties: &str) -> Self {
        Self::start_with(kafka, &[("WORKER_PROPS", properties)])
    }

    /// The same with Debezium's MariaDB connector.
    pub(super) fn start_for_mariadb(kafka: &Kafka, properties: &str) -> Self {
        Self::start_with(kafka, &[("WORKER_PROPS", properties), ("CONNECT_FOR", "mariadb")])
    }

    fn start_with(kafka: &Kafka, variables: &[(&str, &str)]) -> Self {
        let (dir, port) = (private_dir("connect"), free_port());
        let mut command = script("connect.sh");
        command.arg("start").arg(&dir).arg(&kafka.bootstrap).env("CONNECT_PORT", port.to_string());
        command.envs(variables.iter().copied());
        must_run(&mut command);
        Self { url: format!("http://127.0.0.1:{port}"), dir: Some(dir) }
    }

    /// SIGKILL.
    pub(super) fn kill9(&self) {
        must_run(script("connect.sh").arg("kill").arg(self.dir.as_ref().expect("a worker of this test's own")));
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "120", "-X", method, "-H", "Content-Type: application/json"]);
        if let Some(body) = body {
            command.arg("-d").arg(body.to_string());
        }
        let answer = must_run(command.arg(format!("{}{path}", self.url)));
        serde_json::from_str(&answer).unwrap_or(Value::Null)
    }

    /// Versions of the worker and of the connector class.
    pub(super) fn versions(&self, class: &str) -> [(String, String); 2] {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let plugins = self.ask("GET", "/connector-plugins", None);
        let found = plugins
            .as_array()
            .unwrap()
            .iter()
            .find(|plugin| plugin["class"].as_str().is_some_and(|found| found.rsplit('.').next() == Some(class)));
        [
            ("Kafka Connect".to_owned(), text(&self.ask("GET", "/", None)["version"])),
            ("Debezium".to_owned(), text(&found.unwrap()["version"])),
        ]
    }

    /// Starts a connector.
    pub(super) fn create(&self, connector: &Value) {
        // while the worker takes in another connector it answers 409
        eventually("the connector is taken", 60, || {
            let answer = self.ask("POST", "/connectors", Some(connector));
            assert!(answer["error_code"].is_null() || answer["error_code"] == 409, "{answer}");
            answer["name"].is_string().then_some(())
        });
    }

    /// Ends a connector and forgets it; its offsets stay.
    pub(super) fn delete(&self, name: &str) {
        eventually("the connector is deleted", 60, || {
            let answer = self.ask("DELETE", &format!("/connectors/{name}"), None);
            (answer.is_null() || answer["error_code"] == 404).then_some(())
        });
    }

    /// Stops a connector in good order; it and its offsets stay.
    pub(super) fn stop(&self, name: &str) {
        self.ask("PUT", &format!("/connectors/{name}/stop"), None);
        eventually("the connector is stopped", 60, || {
            let status = self.ask("GET", &format!("/connectors/{name}/status"), None);
            (status["connector"]["state"] == "STOPPED" && status["tasks"] == json!([])).then_some(())
        });
    }

    /// Forgets the offsets of a connector that is stopped, and starts it.
    pub(super) fn forget_and_resume(&self, name: &str) {
        let answer = self.ask("DELETE", &format!("/connectors/{name}/offsets"), None);
        assert!(answer["error_code"].is_null(), "{answer}");
        self.ask("PUT", &format!("/connectors/{name}/resume"), None);
    }

    /// The innermost cause with which the connector's task failed.
    pub(super) fn failure(&self, name: &str) -> Option<String> {
        let status = self.ask("GET", &format!("/connectors/{name}/status"), None);
        let task = &status["tasks"][0];
        if task["state"] != "FAILED" {
            return None;
        }
        let trace = task["trace"].as_str().unwrap();
        let cause = trace.lines().rfind(|line| line.starts_with("Caused by: ")).or_else(|| trace.lines().next());
        Some(cause.unwrap().trim_start_matches("Caused by: ").to_owned())
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            let _ = script("connect.sh").arg("kill").arg(dir).status();
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
