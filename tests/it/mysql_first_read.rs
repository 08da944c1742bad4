//! MySQL and MariaDB: what stands in the table at the first start, and two instances of one name.

use std::time::Duration;

use crate::support::case::without_repeats;
use crate::support::mysql::{Kind, MysqlCase, MysqlServer, PrivateMysql};
use crate::support::{Outboxd, eventually, quote};

on_each_binlog![
    what_stands_in_the_table_comes_first,
    conditions_and_order_of_the_first_read,
    values_are_those_of_the_stream,
    a_first_read_under_load_has_no_gap_and_no_repeat,
    a_first_read_that_was_killed_begins_again,
    writers_are_not_blocked,
    a_standby_does_not_come_between_the_first_read_and_the_stream,
    fr_47_a_second_instance_stands_by_and_takes_over,
    names_that_differ_in_case_are_two_instances,
    a_standby_takes_its_leave_of_the_server,
    fr_32_default_server_ids_differ_and_a_collision_is_named,
    logins_and_tls,
];

fn from_table(case: &MysqlCase) -> crate::support::Config {
    case.config().set(&format!("source.{}.start", case.source()), "table")
}

/// First the rows that stand, then those that are committed, without a gap or a repeat.
fn what_stands_in_the_table_comes_first(kind: Kind) {
    let case = MysqlCase::new(kind);
    for number in 0..50 {
        case.insert("A", "k", &number.to_string());
    }
    let relay = Outboxd::start(&from_table(&case));
    relay.ready();
    for number in 50..100 {
        case.insert("A", "k", &number.to_string());
    }
    let mut values = case.values_until("A", "99", 20);
    // their order is that of the table, not of the commits
    let standing = values.drain(..50).map(|value| value.parse::<u32>().unwrap());
    let mut standing: Vec<u32> = standing.collect();
    standing.sort_unstable();
    assert_eq!(standing, (0..50).collect::<Vec<_>>());
    assert_eq!(values, (50..100).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(relay.metric("outbox_snapshot_rows_total"), Some(50.0));
    assert_eq!(relay.terminate(), Some(0));
    let relay = Outboxd::start(&from_table(&case));
    relay.ready();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20).len(), 101, "the table is read once");
}

/// Only the rows that are wanted, in the order that is wanted.
fn conditions_and_order_of_the_first_read(kind: Kind) {
    let case = MysqlCase::new(kind);
    for number in [3, 1, 2, 9] {
        case.session().run(&format!(
            "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ({}, 'k', '{}', '{number}')",
            quote(&case.kind("A")),
            if number == 9 { "done" } else { "pending" }
        ));
    }
    let config = from_table(&case)
        .set("outbox.start-where", "type = 'pending' -- it's")
        .set("outbox.start-order-by", vec!["payload"]);
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 20), ["1", "2", "3", "last"]);
    drop(relay);
    let other = MysqlCase::new(kind);
    let mut relay = Outboxd::start(&from_table(&other).set("outbox.start-where", "nonsense = 1"));
    let ended = relay.end(20);
    assert!(ended.code == Some(2) && ended.stderr.contains("start-where"), "{}", ended.stderr);
}

/// A row that stands in the table becomes the same record as one that is inserted.
fn values_are_those_of_the_stream(kind: Kind) {
    let case = MysqlCase::bare(&MysqlServer::shared(kind));
    let mut session = case.session();
    session.run(
        "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid BIGINT UNSIGNED, \
         payload JSON, dt DATETIME(3), ts TIMESTAMP(6) NULL, da DATE, t TIME(2), b1 BIT(1), b9 BIT(9), vb VARBINARY(9), \
         de DECIMAL(20,5), db DOUBLE, en ENUM('a','é'), st SET('x','y'), yr YEAR, l1 VARCHAR(20) CHARACTER SET latin1, \
         i8 TINYINT, nn INT, fl FLOAT, f2 FLOAT, f3 FLOAT(7,2), d3 DOUBLE(10,3), u8 TINYINT UNSIGNED, u32 INT UNSIGNED, \
         z INT(6) ZEROFILL, z64 BIGINT ZEROFILL, zf FLOAT ZEROFILL, zd DECIMAL(8,2) ZEROFILL, zb DOUBLE ZEROFILL)",
    );
    let headers = ["dt", "ts", "da", "t", "b1", "b9", "vb", "de", "db", "en", "st", "yr", "l1", "i8", "nn"];
    let numbers = ["fl", "f2", "f3", "d3", "u8", "u32", "z", "z64", "zf", "zd", "zb"];
    let headers = [headers.as_slice(), &numbers].concat();
    let insert = |id: &str| {
        format!(
            "INSERT INTO outbox VALUES (x'{id}00', {}, 18446744073709551615, '{{\"b\": [1.50, \"é\"], \"a\": null}}', \
             '2024-01-02 03:04:05.678', '2024-01-02 03:04:05.678901', '1969-12-31', '-12:34:56.78', 1, b'100000001', \
             x'0001ff', -12.34000, 1.5e15, 'é', 'x,y', 2024, 'für 5€', -7, NULL, 16777216, -1.1, 12345.67, 1.5, 255, \
             4294967295, 42, 18446744073709551615, 0.1, 1.5, 2.5)",
            quote(&case.kind("A"))
        )
    };
    session.run("SET time_zone = '+05:00'");
    session.run(&insert("ff0000000000000000000000000001"));
    let config = from_table(&case).set("record.headers", headers).set("outbox.columns.id-format", "uuid");
    let relay = Outboxd::start(&config);
    relay.ready();
    session.run(&insert("ff0000000000000000000000000002"));
    let records = case.consume("A", 2, 20);
    assert_eq!((&records[0].key, &records[0].value), (&records[1].key, &records[1].value));
    assert_eq!(records[0].headers[1..], records[1].headers[1..]);
    assert_eq!(["fl", "f2", "zf", "z"].map(|name| records[0].header_text(name)), ["1.6777216E7", "-1.1", "0.1", "42"]);
    assert_eq!(records[0].header_text("id"), "ff000000-0000-0000-0000-000000000100");
    assert_eq!(records[1].header_text("id"), "ff000000-0000-0000-0000-000000000200");
}

/// Sessions that write all the time while the snapshot is taken.
fn a_first_read_under_load_has_no_gap_and_no_repeat(kind: Kind) {
    let case = &MysqlCase::new(kind);
    const WRITERS: usize = 6;
    let stop = std::sync::atomic::AtomicBool::new(false);
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let write = |writer: usize| {
            let mut session = case.session();
            let mut count = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                session.run(&case.insert_sql("A", &format!("w{writer}"), &format!("{writer}-{count}")));
                count += 1;
            }
            count
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        std::thread::sleep(Duration::from_millis(500));
        let relay = Outboxd::start(&from_table(case));
        relay.ready();
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let counts = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        case.insert("A", "last", "last");
        case.values_until("A", "last", 30);
        counts
    });
    let mut values = case.values_until("A", "last", 30);
    values.sort();
    let written = counts.iter().enumerate();
    let mut wanted: Vec<String> =
        written.flat_map(|(writer, count)| (0..*count).map(move |n| format!("{writer}-{n}"))).collect();
    wanted.push("last".to_owned());
    wanted.sort();
    assert_eq!(values.len(), wanted.len(), "neither fewer nor more");
    assert_eq!(values, wanted);
}

/// What is in the log and cannot be seen yet is not in the snapshot: the stream brings it.
#[test]
fn what_is_being_committed_comes_with_the_stream() {
    // a commit stands for a second between the log and the table
    let server = PrivateMysql::start(Kind::Mysql, &["--binlog-group-commit-sync-delay=1000000"]);
    let case = MysqlCase::on(&server);
    case.insert("A", "k", "stands");
    std::thread::scope(|scope| {
        scope.spawn(|| case.insert("A", "k", "on its way"));
        std::thread::sleep(Duration::from_millis(300));
        let relay = Outboxd::start(&from_table(&case));
        relay.ready();
        case.insert("A", "k", "last");
        assert_eq!(case.values_until("A", "last", 20), ["stands", "on its way", "last"]);
    });
}

/// Until the stream has stored its position, the table is read from its beginning again.
fn a_first_read_that_was_killed_begins_again(kind: Kind) {
    let case = MysqlCase::new(kind);
    let rows: Vec<String> =
        (0..20_000).map(|n| format!("('{}', 'k', '{n} {}')", case.kind("A"), "x".repeat(400))).collect();
    case.session().run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}", rows.join(",")));
    let relay = Outboxd::start(&from_table(&case).set("delivery.window-bytes", 65_536));
    eventually("the first records", 20, || (case.kafka.partitions(&case.topic("A")).is_some()).then_some(()));
    relay.kill9();
    assert_eq!(case.stored_position(), None);
    let _relay = Outboxd::start(&from_table(&case));
    case.insert("A", "k", "last");
    let mut values = without_repeats_fast(case.values_until("A", "last", 40));
    values.sort();
    assert_eq!(values.len(), 20_001);
}

fn without_repeats_fast(values: Vec<String>) -> Vec<String> {
    let set: std::collections::HashSet<String> = values.into_iter().collect();
    set.into_iter().collect()
}

/// The lock is kept from the first read to the stream: the table is read once, whoever waits.
fn a_standby_does_not_come_between_the_first_read_and_the_stream(kind: Kind) {
    let case = MysqlCase::new(kind);
    let rows: Vec<String> =
        (0..3000).map(|n| format!("('{}', 'k', '{n} {}')", case.kind("A"), "x".repeat(400))).collect();
    case.session().run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}", rows.join(",")));
    let topic = case.topic("A");
    let config = from_table(&case).set("sink.kafka.create-topics", false);
    case.kafka.create_topic(&format!("{}.positions", case.tag), 1, &[("cleanup.policy", "compact")]);
    let first = Outboxd::start(&config);
    first.wait_reason("topic_missing", 20);
    let others: Vec<Outboxd> = (0..2).map(|_| Outboxd::start(&config)).collect();
    others.iter().for_each(|other| {
        other.wait_health("standby", 20, |health| health.reason() == "standby");
    });
    case.kafka.create_topic(&topic, 1, &[]);
    first.ready();
    case.insert("A", "k", "last");
    assert_eq!(case.values_until("A", "last", 30).len(), 3001);
    assert!(others.iter().all(|other| other.health().is_some_and(|health| health.reason() == "standby")));
}

/// A first read that waits for a broker holds no lock.
fn writers_are_not_blocked(kind: Kind) {
    let case = MysqlCase::new(kind);
    let rows: Vec<String> =
        (0..5000).map(|n| format!("('{}', 'k', '{n} {}')", case.kind("A"), "x".repeat(400))).collect();
    case.session().run(&format!("INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES {}", rows.join(",")));
    // a topic that is missing and may not be made stops the read in its middle
    let relay =
        Outboxd::start(&from_table(&case).set("sink.kafka.create-topics", false).set("sink.kafka.positions-topic", {
            let topic = format!("{}.positions", case.tag);
            case.kafka.create_topic(&topic, 1, &[("cleanup.policy", "compact")]);
            topic
        }));
    relay.wait_reason("topic_missing", 20);
    let begun = std::time::Instant::now();
    let mut session = case.session();
    session.run(&case.insert_sql("A", "k", "last"));
    session.run("DELETE FROM outbox WHERE payload LIKE '7 %'");
    session.run("FLUSH BINARY LOGS");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    case.kafka.create_topic(&case.topic("A"), 1, &[]);
    assert_eq!(case.values_until("A", "last", 30).len(), 5001);
}

/// The second waits, ready, and publishes soon after the first has gone.
fn fr_47_a_second_instance_stands_by_and_takes_over(kind: Kind) {
    let case = MysqlCase::new(kind);
    let first = case.start();
    let second = Outboxd::start(&case.config());
    let health = second.wait_health("standby", 20, |health| health.reason() == "standby");
    assert_eq!(health.status, 200);
    case.insert("A", "k", "1");
    case.values_until("A", "1", 10);
    first.kill9();
    let begun = std::time::Instant::now();
    case.insert("A", "k", "2");
    assert_eq!(without_repeats(case.values_until("A", "2", 20)), ["1", "2"]);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // one that stands still for longer than the lock lives does not publish when it goes on
    let third = Outboxd::start(&case.config());
    third.wait_health("standby", 20, |health| health.reason() == "standby");
    second.freeze();
    third.wait_health("takes over", 30, |health| health.phase() == "streaming");
    case.insert("A", "k", "3");
    case.values_until("A", "3", 20);
    second.thaw();
    second.wait_health("standby again", 20, |health| health.reason() == "standby");
    case.insert("A", "k", "4");
    assert_eq!(without_repeats(case.values_until("A", "4", 20)), ["1", "2", "3", "4"]);
}

/// MySQL's locks have names without case.
fn names_that_differ_in_case_are_two_instances(kind: Kind) {
    let case = MysqlCase::new(kind);
    let (first, second) = (case.start(), Outboxd::start(&case.config().set("name", case.tag.to_uppercase())));
    second.wait_health("streams", 20, |health| health.phase() == "streaming");
    case.insert("A", "k", "1");
    assert_eq!(case.consume("A", 2, 10).len(), 2, "each publishes");
    let third = Outboxd::start(&case.config().set("name", case.tag.to_uppercase()));
    third.wait_health("standby", 20, |health| health.reason() == "standby");
    assert_eq!(first.health().map(|health| health.status), Some(200));
}

/// The server notes each connection that breaks off.
fn a_standby_takes_its_leave_of_the_server(kind: Kind) {
    let server = PrivateMysql::start(kind, &[]);
    let case = MysqlCase::on(&server);
    let _first = case.start();
    let second = Outboxd::start(&case.config());
    second.wait_health("standby", 20, |health| health.reason() == "standby");
    let mut session = case.session();
    let mut counted = |name: &str| -> u64 {
        let rows = session.rows(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        String::from_utf8(rows[0][1].clone().unwrap()).unwrap().parse().unwrap()
    };
    let (connections, aborted) = (counted("Connections"), counted("Aborted_clients"));
    eventually("it has come again a few times", 30, || (counted("Connections") >= connections + 6).then_some(()));
    assert_eq!(counted("Aborted_clients"), aborted);
}

/// Two instances on one server do not disturb each other, unless they are told to have one number.
fn fr_32_default_server_ids_differ_and_a_collision_is_named(kind: Kind) {
    let (a, b) = (MysqlCase::new(kind), MysqlCase::new(kind));
    let (first, second) = (a.start(), b.start());
    for number in 0..5 {
        a.insert("A", "k", &number.to_string());
        b.insert("A", "k", &number.to_string());
    }
    assert_eq!(a.values_until("A", "4", 10).len() + b.values_until("A", "4", 10).len(), 10);
    let connects = |relay: &Outboxd| relay.stderr().matches("streaming begins").count();
    assert_eq!((connects(&first), connects(&second)), (1, 1));
    drop((first, second));
    let with_id = |case: &MysqlCase| case.config().set(&format!("source.{}.server-id", case.source()), 77);
    let first = Outboxd::start(&with_id(&a));
    first.ready();
    let _second = Outboxd::start(&with_id(&b));
    let health = first.wait_health("the collision", 20, |health| health.reason() == "server_id_in_use");
    assert!(health.status == 503 && health.detail().contains("server_id 77"), "{health:?}");
}

/// Each method of login, with and without TLS.
fn logins_and_tls(kind: Kind) {
    let case = MysqlCase::new(kind);
    let ca = case.server.dir.join("tls/ca.pem");
    let url = |user: &str, query: &str| {
        case.server
            .url(user, &case.tag)
            .replace("127.0.0.1", if query.contains("full") { "localhost" } else { "127.0.0.1" })
            + query
    };
    let option = format!("source.{}.url", case.source());
    let roots = format!("&sslrootcert={}", ca.display());
    let mut works = vec![
        url("cdc", "?sslmode=disable"),
        url("cdc", ""),
        url("cdc", "?sslmode=require"),
        url("cdc_native", "?sslmode=disable"),
        url("cdc_tls", &format!("?sslmode=verify-ca{roots}")),
        url("cdc_tls", &format!("?sslmode=verify-full{roots}")),
        format!("{}://cdc:pw@/{}?socket={}", case.source(), case.tag, case.server.dir.join("sock").display()),
    ];
    if !kind.is_mysql() {
        works.push(url("cdc_ed", "?sslmode=disable"));
        works.push(url("cdc_ed", &format!("?sslmode=verify-full{roots}")));
    }
    for (number, url) in works.iter().enumerate() {
        if kind.is_mysql() {
            // the server forgets whom it has seen: the password goes over the connection
            case.server.session().run("FLUSH PRIVILEGES");
        }
        let relay = Outboxd::start(&case.config().set(&option, url.as_str()));
        relay.ready();
        case.insert("A", "k", &number.to_string());
        case.values_until("A", &number.to_string(), 10);
        assert_eq!(relay.terminate(), Some(0));
    }
    for (url, words) in [
        (url("cdc", "?sslmode=disable").replace(":pw@", ":wrong@"), "refused to log in user \"cdc\""),
        (url("cdc_tls", "?sslmode=disable"), "refused to log in user \"cdc_tls\""),
        (url("cdc", "?sslmode=verify-ca"), "is not trusted"),
        (url("cdc", &format!("?sslmode=verify-full{roots}")).replace("localhost", "127.0.0.1"), "is not trusted"),
        (url("cdc_none", ""), "GRANT REPLICATION SLAVE"),
        (case.server.url("cdc", &case.tag).replace("cdc:", "nobody:"), "refused to log in user \"nobody\""),
    ] {
        let mut relay = Outboxd::start(&case.config().set(&option, url.as_str()));
        let ended = relay.end(20);
        assert_eq!(ended.code, Some(2), "{url}: {}", ended.stderr);
        assert!(ended.stderr.contains(words) && !ended.stderr.contains(":pw@"), "{url}: {}", ended.stderr);
    }
}
