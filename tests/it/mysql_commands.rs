//! The operator's commands on MySQL and MariaDB.

use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, PrivateMysql};
use crate::support::tool::Tool;
use crate::support::{Outboxd, eventually};

on_each_binlog![
    check_finds_nothing_where_all_is_well,
    check_names_everything_that_is_wrong,
    check_tells_all_beside_a_position_that_will_not_do,
    a_replica_that_keeps_what_it_gets_out_of_its_log,
    tables_without_rows_of_their_own,
    setup_prints_what_an_administrator_runs,
    setup_makes_what_the_relay_needs,
    a_new_account_needs_a_password,
    status_with_and_without_a_relay,
    resume_after_the_log_was_reset,
    resume_from_table_and_at_a_position,
    what_is_not_there_is_refused_by_name,
];

fn check_finds_nothing_where_all_is_well(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--sync-binlog=1"]);
    let case = MysqlCase::on(&server);
    let said = Tool::new(&case.config()).ends(&["check"], 0);
    assert!(
        said.stdout.contains("binary log: ends at") && said.stdout.contains("nothing found that is wrong"),
        "{said:?}"
    );
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    let said = Tool::new(&case.config()).ends(&["check"], 0);
    assert!(said.stdout.contains("an instance holds lock"), "{said:?}");
    assert_eq!(relay.terminate(), Some(0));
}

fn check_names_everything_that_is_wrong(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--binlog-row-image=MINIMAL", "--sync-binlog=0"]);
    let case = MysqlCase::bare(&server);
    case.session().run(
        "CREATE TABLE outbox (id INT PRIMARY KEY, aggregatetype VARCHAR(50), aggregateid GEOMETRY, \
         payload POINT)",
    );
    let config = case.config().set("outbox.tables", vec![format!("{}.outbox", case.tag), format!("{}.none", case.tag)]);
    let said = Tool::new(&config.set("record.headers", vec!["absent"])).ends(&["check"], 2);
    for words in [
        "binlog_row_image is MINIMAL",
        "column \"aggregateid\"",
        "column \"payload\"",
        "has no column \"absent\"",
        ".none\" does not exist",
        "sync_binlog is 0",
    ] {
        assert!(said.finds(words), "{words}: {said:?}");
    }
    let hint = said.hint("error", "binlog_row_image is MINIMAL");
    let statement = hint.split(';').next().unwrap();
    server.session().run(statement);
    let said = Tool::new(&config_of(&case)).run(&["check"]);
    assert!(!said.finds("binlog_row_image"), "{said:?}");
}

/// A position that the server cannot serve hides nothing else.
fn check_tells_all_beside_a_position_that_will_not_do(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--sync-binlog=0"]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    eventually("a position", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    let mut session = case.session();
    session.run(if kind.is_mysql() { "RESET BINARY LOGS AND GTIDS" } else { "RESET MASTER" });
    session.run("SET GLOBAL binlog_row_image = MINIMAL");
    let said = Tool::new(&case.config()).ends(&["check"], 2);
    for words in ["its binary log was reset", "binlog_row_image is MINIMAL", "sync_binlog is 0"] {
        assert!(said.finds(words), "{words}: {said:?}");
    }
    assert!(said.stdout.contains("server: ") && said.stdout.contains("generation"), "{said:?}");
}

/// What another server sends would never be published.
fn a_replica_that_keeps_what_it_gets_out_of_its_log(kind: Kind) {
    let option = if kind.is_mysql() { "--log-replica-updates=OFF" } else { "--log-slave-updates=OFF" };
    let name = option.trim_start_matches("--").trim_end_matches("=OFF").replace('-', "_");
    let server = PrivateMysql::start(kind, &[option, "--sync-binlog=1"]);
    let case = MysqlCase::on(&server);
    let tool = Tool::new(&case.config());
    let mut session = case.session();
    let said = tool.ends(&["check"], 0);
    assert!(!said.finds(&name), "it is no replica: {said:?}");
    if kind.is_mysql() {
        session.run("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.9', SOURCE_PORT = 1 FOR CHANNEL 'c'");
    } else {
        session.run("CHANGE MASTER 'c' TO MASTER_HOST = '127.0.0.9', MASTER_PORT = 1, MASTER_USER = 'u'");
        session.run("SET GLOBAL gtid_slave_pos = '7-8-9'");
        let said = tool.ends(&["check"], 0);
        assert!(said.finds(&format!("{name} is OFF: if the server is a replica")), "it may not be seen: {said:?}");
        assert!(said.hint("warning", &name).contains("REPLICA MONITOR"), "{said:?}");
        session.run("GRANT REPLICA MONITOR ON *.* TO cdc@'127.0.0.1'");
        session.run("GRANT REPLICA MONITOR ON *.* TO cdc@'localhost'");
    }
    let said = tool.ends(&["check"], 2);
    assert!(said.finds(&format!("{name} is OFF, and it is a replica (of \"127.0.0.9\")")), "{said:?}");
    let ended = Outboxd::start(&case.config()).end(20);
    assert!(ended.code == Some(2) && ended.stderr.contains("it is a replica"), "{}", ended.stderr);
}

/// A view has no rows in the log, and a table with old versions has too many.
fn tables_without_rows_of_their_own(kind: Kind) {
    let case = MysqlCase::bare(&crate::support::mysql::MysqlServer::shared(kind));
    let mut session = case.session();
    let columns = "(id INT PRIMARY KEY, aggregatetype VARCHAR(50), aggregateid VARCHAR(50), payload TEXT)";
    session.run(&format!("CREATE TABLE base {columns}"));
    session.run("CREATE VIEW outbox AS SELECT * FROM base");
    let said = Tool::new(&case.config()).ends(&["check"], 2);
    assert!(said.finds("is a view"), "{said:?}");
    if kind.is_mysql() {
        return;
    }
    session.run("DROP VIEW outbox");
    session.run(&format!("CREATE TABLE outbox {columns} WITH SYSTEM VERSIONING"));
    let said = Tool::new(&case.config()).ends(&["check"], 2);
    assert!(said.finds("keeps old versions of its rows"), "{said:?}");
    let ended = Outboxd::start(&case.config()).end(20);
    assert!(ended.code == Some(2) && ended.stderr.contains("old versions"), "{}", ended.stderr);
}

fn config_of(case: &MysqlCase) -> crate::support::Config {
    case.config()
}

/// The statements make an account with which the relay runs.
fn setup_prints_what_an_administrator_runs(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let option = format!("source.{}.url", case.source());
    let url = server.url("cdc", &case.tag).replace("cdc:", "newcomer:");
    let config = case.config().set(&option, url);
    let tool = Tool::new(&config);
    let said = tool.ends(&["setup", "--print"], 0);
    let mut session = server.session();
    for line in said.stdout.lines().filter(|line| !line.starts_with("--") && !line.is_empty()) {
        session.run(line.replace('…', "pw").trim_end_matches(';'));
    }
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
}

/// An administrator's login makes the account with the password that is configured; the second time it is all there.
fn setup_makes_what_the_relay_needs(kind: Kind) {
    let server = PrivateMysql::start(kind, &["--binlog-row-metadata=MINIMAL"]);
    let case = MysqlCase::on(&server);
    let option = format!("source.{}.url", case.source());
    let config = case.config().set(&option, server.url("cdc", &case.tag).replace("cdc:pw", "newcomer:secret7"));
    let tool = Tool::new(&config);
    let admin = server.url("tester", &case.tag);
    let said = tool.ends(&["setup", "--admin-url", &admin], 0);
    for words in ["made:   user \"newcomer\" exists", "may read the binary log", "made:   binlog_row_metadata is FULL"]
    {
        assert!(said.stdout.contains(words), "{words}: {said:?}");
    }
    assert!(said.stdout.contains("there:  binlog_row_image is FULL") && !said.stdout.contains("secret7"), "{said:?}");
    let said = tool.ends(&["setup", "--admin-url", &admin], 0);
    assert!(!said.stdout.contains("made:"), "{said:?}");
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    // the account itself may make nothing, and all that it would need is there
    let said = tool.ends(&["setup"], 2);
    assert!(said.finds("GRANT REPLICATION SLAVE") && said.finds("may not make everything"), "{said:?}");
}

fn a_new_account_needs_a_password(kind: Kind) {
    let case = MysqlCase::new(kind);
    let option = format!("source.{}.url", case.source());
    let config = case.config().set(&option, case.server.url("cdc", &case.tag).replace("cdc:pw", "nobody_yet"));
    let said = Tool::new(&config).ends(&["setup", "--admin-url", &case.server.url("tester", &case.tag)], 2);
    assert!(said.finds("user \"nobody_yet\" would have no password"), "{said:?}");
    assert!(said.hint("error", "would have no password").contains("password-file"), "{said:?}");
}

fn status_with_and_without_a_relay(kind: Kind) {
    let case = MysqlCase::new(kind);
    let tool = Tool::new(&case.config());
    let said = tool.ends(&["status"], 1);
    assert!(said.stdout.contains("not_running") && said.stdout.contains("none is stored"), "{said:?}");
    let relay = case.start();
    eventually("a position", 10, || case.stored_position());
    // the relay's listener is another's port, so the server tells
    let said = tool.ends(&["status", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((&json["phase"], &json["said_by"]), (&"streaming".into(), &"server".into()), "{json}");
    assert!(json["position"].as_str().unwrap().contains("@bin.0"), "{json}");
    assert_eq!(relay.terminate(), Some(0));
}

fn resume_after_the_log_was_reset(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let relay = case.start();
    for number in 0..5 {
        case.insert("A", "k", &number.to_string());
    }
    case.values_until("A", "4", 10);
    assert_eq!(relay.terminate(), Some(0));
    case.session().run(if kind.is_mysql() { "RESET BINARY LOGS AND GTIDS" } else { "RESET MASTER" });
    let tool = Tool::new(&case.config());
    let said = tool.ends(&["status"], 3);
    assert!(said.stdout.contains("server_behind"), "{said:?}");
    case.insert("A", "k", "in the gap");
    let said = tool.ends(&["resume", "--from", "now"], 2);
    assert!(said.finds("--yes"), "{said:?}");
    let said = tool.ends(&["resume", "--from", "now", "--yes"], 0);
    assert!(said.stdout.contains("events may be missing") && said.stdout.contains("wrote position"), "{said:?}");
    let relay = case.start();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 10), ["0", "1", "2", "3", "4", "last"]);
    let said = tool.ends(&["resume", "--from", "now", "--yes"], 1);
    assert!(said.finds("holds lock"), "{said:?}");
    drop(relay);
}

fn resume_from_table_and_at_a_position(kind: Kind) {
    let case = MysqlCase::new(kind);
    let relay = case.start();
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    let before = eventually("a position behind the row", 10, || {
        let stored = case.stored_position()?;
        std::thread::sleep(std::time::Duration::from_millis(500));
        (case.stored_position()? == stored).then_some(stored)
    });
    case.insert("A", "k", "2");
    case.values_until("A", "2", 10);
    assert_eq!(relay.terminate(), Some(0));
    let tool = Tool::new(&case.config());
    // the lock goes with its connection
    eventually("the lock is free", 20, || (tool.run(&["status"]).code == Some(1)).then_some(()));
    tool.ends(&["resume", "--from", &before, "--yes"], 0);
    let said = tool.ends(&["resume", "--from", "16/B374D848", "--yes"], 2);
    assert!(said.finds("is no position of a binary log"), "{said:?}");
    let relay = case.start();
    case.insert("A", "k", "3");
    assert_eq!(case.values_until("A", "3", 10), ["1", "2", "2", "3"]);
    assert_eq!(relay.terminate(), Some(0));
    assert_eq!(tool.run(&["resume", "--from", "table", "--yes"]).code, Some(2), "start is now");
    let config = case.config().set(&format!("source.{}.start", case.source()), "table");
    let tool = Tool::new(&config);
    eventually("the lock is free", 20, || (tool.run(&["status"]).code == Some(1)).then_some(()));
    tool.ends(&["resume", "--from", "table", "--yes"], 0);
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "k", "4");
    let values = case.values_until("A", "4", 10);
    assert_eq!(values.len(), 4 + 3 + 1, "{values:?}");
    assert_eq!(without_repeats(values), ["1", "2", "3", "4"]);
}

fn what_is_not_there_is_refused_by_name(kind: Kind) {
    let case = MysqlCase::new(kind);
    let said = Tool::new(&case.config()).ends(&["drop-slot", "--yes"], 2);
    assert!(said.finds(&format!("not available for [source.{}]", case.source())), "{said:?}");
    // the table of the configuration names the other kind of server
    let other = if kind.is_mysql() { "mariadb" } else { "mysql" };
    let config = case
        .config()
        .without(&format!("source.{}", case.source()))
        .set(&format!("source.{other}.url"), format!("mysql://cdc:pw@127.0.0.1:{}/{}", case.server.port, case.tag));
    let said = Tool::new(&config).ends(&["check"], 2);
    assert!(said.finds(&format!("the server 127.0.0.1:{} is", case.server.port)), "{said:?}");
}
