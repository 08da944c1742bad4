//! What is refused at the first start: exit code 2, what is wrong by name, and what mends it.

use crate::support::postgres::Database;
use crate::support::{
    Case, Config, Kafka, Outboxd, PrivateServer, Server, Version, base_table, eventually, free_port, must_run,
    private_dir, signal, unique_tag,
};

on_each_version!(
    wrong_url,
    wrong_password,
    database_missing,
    role_without_replication,
    wal_level_too_low,
    table_missing,
    columns_missing,
    publication_lacks_the_table,
    slot_of_another_plugin,
    slot_of_another_database,
    fr_09_pooler,
    unknown_options,
    options_out_of_range,
);

/// Runs a relay that must be refused; returns what it said.
#[track_caller]
fn refused(config: &Config, named: &[&str]) -> String {
    let ended = Outboxd::run_to_end(config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let errors: Vec<_> = ended.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!errors.is_empty(), "no line \"error: …\":\n{}", ended.stderr);
    for name in named {
        assert!(ended.stderr.contains(name), "{name:?} is not named:\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.stderr
}

/// The same for what a server or its objects lack: there is a remedy then.
#[track_caller]
fn refused_with_hint(config: &Config, named: &[&str]) -> String {
    let stderr = refused(config, named);
    assert!(stderr.lines().any(|line| line.starts_with("hint: ")), "no line \"hint: …\":\n{stderr}");
    stderr
}

#[track_caller]
fn assert_nothing_made(case: &Case) {
    let slots = format!("SELECT count(*) FROM pg_replication_slots WHERE database = '{}'", case.tag);
    assert_eq!(case.db.text(&slots).as_deref(), Some("0"), "a slot was left behind");
}

/// Proves that an address that is none is refused, without showing the password in it.
fn wrong_url(version: Version) {
    let case = Case::new(version);
    for url in ["", "mysql://root:geheim@127.0.0.1/x", "postgres://u:geheim@127.0.0.1:notaport/x", "127.0.0.1:5432"] {
        let stderr = refused(&case.config().set("source.postgres.url", url), &["url"]);
        assert!(!stderr.contains("geheim"), "the password is shown:\n{stderr}");
    }
}

/// Proves that a wrong password is said to be one, with the user's name and without the password.
fn wrong_password(version: Version) {
    let case = Case::new(version);
    let role = crate::roles::scram_role(&case, "LOGIN REPLICATION", "right");
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "wrong-geheim\n").unwrap();
    let config =
        case.config().set("source.postgres.url", url).set("source.postgres.password-file", file.to_str().unwrap());
    let stderr = refused_with_hint(&config, &[role.name.as_str(), "password"]);
    assert!(!stderr.contains("wrong-geheim"), "the password is shown:\n{stderr}");
}

/// Proves that a missing database is named.
fn database_missing(version: Version) {
    let case = Case::new(version);
    refused(&case.config().set("source.postgres.url", case.db.server.url("no_such_database")), &["no_such_database"]);
}

/// Proves that a role that may not replicate is named, with the statement that mends it.
fn role_without_replication(version: Version) {
    let case = Case::new(version);
    let role = crate::roles::role(&case, "LOGIN");
    case.db.run(&format!("GRANT SELECT ON outbox TO {}", role.name));
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    refused_with_hint(&case.config().set("source.postgres.url", url), &[role.name.as_str(), "REPLICATION"]);
    assert_nothing_made(&case);
}

/// Proves that a server that does not write a logical log is refused with the setting's name.
fn wal_level_too_low(version: Version) {
    let server = PrivateServer::start(version, "wal_level = replica");
    let case = Case::on(&server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    refused_with_hint(&case.config(), &["wal_level", "logical"]);
}

/// Proves that a missing table is named.
fn table_missing(version: Version) {
    let case = Case::bare(version);
    refused(&case.config(), &["public.outbox"]);
    assert_nothing_made(&case);
    case.db.run(&base_table("outbox"));
    let config = case.config().set("outbox.tables", vec!["public.outbox", "public.first", "public.second"]);
    refused(&config, &["public.first", "public.second"]);
    assert_nothing_made(&case);
}

/// Proves that all missing columns are named at once, and nothing is made.
fn columns_missing(version: Version) {
    let case = Case::bare(version);
    case.db.run("CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, body jsonb)");
    refused_with_hint(&case.config(), &["public.outbox", "aggregatetype", "aggregateid", "payload"]);
    assert_nothing_made(&case);
}

/// Proves that a publication that lacks the table is refused with the statement that mends it.
fn publication_lacks_the_table(version: Version) {
    let case = Case::new(version);
    case.db.run("CREATE TABLE other (id int PRIMARY KEY)");
    case.db.run(&format!("CREATE PUBLICATION \"{}\" FOR TABLE other", case.object()));
    refused_with_hint(&case.config(), &["public.outbox", &case.object(), "ALTER PUBLICATION", "ADD TABLE"]);
    assert_nothing_made(&case);
}

/// Proves that a slot of another plug-in is not used.
fn slot_of_another_plugin(version: Version) {
    let case = Case::new(version);
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'test_decoding')", case.object()));
    refused_with_hint(&case.config(), &[&case.object(), "test_decoding", "pgoutput"]);
    assert!(case.slot().is_some(), "somebody else's slot was dropped");
}

/// Proves that a slot of another database is not used.
fn slot_of_another_database(version: Version) {
    let case = Case::new(version);
    let other = Database::create(&Server::shared(version), &unique_tag(), "");
    other.run(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", case.object()));
    refused_with_hint(&case.config(), &[&case.object(), &other.name]);
}

/// Proves that a pooler in place of the server is recognised.
fn fr_09_pooler(version: Version) {
    let case = Case::new(version);
    let answer = must_run(std::process::Command::new("pgbouncer").arg("--version").env("PATH", search_path()));
    let minor = answer.lines().next().and_then(|line| line.split('.').nth(1)).and_then(|text| text.parse::<u32>().ok());
    if minor.is_some_and(|minor| minor >= 23) {
        eprintln!("this pooler passes replication on: {answer}");
        return;
    }
    let dir = private_dir("pgbouncer");
    let port = free_port();
    let pid_file = dir.join("pid");
    std::fs::write(
        dir.join("pgbouncer.ini"),
        format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\nunix_socket_dir =\npidfile = {}\nlogfile = {}\n",
            case.db.server.port,
            pid_file.display(),
            dir.join("log").display()
        ),
    )
    .unwrap();
    let owned = "d=$1; if [ $(id -u) = 0 ]; then u=postgres; id $u >/dev/null 2>&1 || u=nobody; chown -R $u $d; \
                 exec pgbouncer -q -d -u $u $d/pgbouncer.ini; else exec pgbouncer -q -d $d/pgbouncer.ini; fi";
    must_run(std::process::Command::new("sh").args(["-c", owned, "sh"]).arg(&dir).env("PATH", search_path()));
    let pid: u32 = eventually("pgbouncer runs", 10, || std::fs::read_to_string(&pid_file).ok()?.trim().parse().ok());
    eventually("pgbouncer answers", 10, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let url = format!("postgres://postgres@127.0.0.1:{port}/{}", case.tag);
    let ended = Outboxd::run_to_end(&case.config().set("source.postgres.url", url));
    signal(pid, "TERM");
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("pooler"), "{}", ended.stderr);
}

fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Proves that an option that does not exist is refused by name, wherever it stands.
fn unknown_options(version: Version) {
    let case = Case::new(version);
    for path in
        ["nmae", "source.postgres.slott", "outbox.columns.ky", "sink.kafka.topics", "delivery.window", "http.adress"]
    {
        let name = path.rsplit('.').next().unwrap();
        refused(&case.config().set(path, "x"), &[name]);
    }
    refused(&case.config().set_in("sink.kafka.options", "no.such.option", "1"), &["no.such.option"]);
    // every sink and every source exactly once
    refused(&case.config().without("sink.kafka"), &["sink"]);
    refused(&case.config().without("source.postgres"), &["source"]);
    refused(&case.config().set("sink.stdout.positions-file", "p.json"), &["sink"]);
    refused(&case.config().without("sink.kafka.bootstrap-servers"), &["bootstrap-servers"]);
    assert_nothing_made(&case);
}

/// Proves that a value that cannot work, or would break a promise, is refused by the option's name.
fn options_out_of_range(version: Version) {
    let case = Case::new(version);
    refused(&case.config().set("delivery.window-bytes", 0), &["window-bytes"]);
    refused(&case.config().set("delivery.window-bytes", -1), &["window-bytes"]);
    refused(&case.config().set("delivery.position-interval", "0s"), &["position-interval"]);
    refused(&case.config().set("delivery.shutdown-timeout", "soon"), &["shutdown-timeout"]);
    refused(&case.config().set("source.postgres.silence-timeout", "0s"), &["silence-timeout"]);
    refused(&case.config().set("source.postgres.slot", "Not-A-Slot"), &["slot"]);
    refused(&case.config().set("name", ""), &["name"]);
    refused(&case.config().set("outbox.tables", Vec::<String>::new()), &["tables"]);
    refused(&case.config().set("outbox.columns.id", ""), &["id"]);
    refused(&case.config().set("outbox.start-where", " "), &["start-where"]);
    refused(&case.config().set("outbox.start-order-by", vec![""]), &["start-order-by"]);
    refused(&case.config().set("source.postgres.start", "empty"), &["start"]);
    refused(&case.config().set("on-terminal", "panic"), &["on-terminal"]);
    refused(&case.config().set("sink.kafka.topic-partitions", 0), &["topic-partitions"]);
    for (option, value) in [("acks", "1"), ("enable.idempotence", "false"), ("message.timeout.ms", "1000")] {
        refused(&case.config().set_in("sink.kafka.options", option, value), &[option]);
    }
    assert_nothing_made(&case);
}
