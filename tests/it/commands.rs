//! `setup`, `status`, `resume` and `drop-slot`: what they do, what they refuse, and that their words can be typed.

use crate::roles::Role;
use crate::support::outboxd::Outboxd;
use crate::support::tool::{Said, Tool, type_in};
use crate::support::{Case, Config, Version, eventually, lsn};

on_each_version!(
    setup_makes_everything_and_may_be_run_twice,
    setup_prints_what_psql_runs,
    setup_without_rights_prints_them,
    status_follows_the_relay,
    status_without_a_relay,
    resume_after_the_slot_was_dropped,
    resume_after_the_slot_was_moved,
    resume_at_a_position_loses_nothing_behind_it,
    resume_after_the_publication_was_made_again,
    resume_after_the_table_was_made_again,
    resume_refuses,
    resume_from_table_reads_it_again,
    drop_slot_gives_up_the_instance,
    with_standard_output,
);

/// A role that a command makes; dropped at the test's end.
fn role_to_come(case: &Case) -> (Role, Config) {
    let name = format!("r_{}", case.tag);
    let url = format!("postgres://{name}@127.0.0.1:{}/{}", case.db.server.port, case.tag);
    (Role::named(&case.db.server, &name), case.config().set("source.postgres.url", url))
}

/// Proves that an administrator's setup makes role, rights and publication so that the relay runs, and that a second
/// one finds all there.
fn setup_makes_everything_and_may_be_run_twice(version: Version) {
    let case = Case::new(version);
    let (role, config) = role_to_come(&case);
    let tool = Tool::new(&config);
    let admin = case.db.url();
    let said = tool.ends(&["setup", "--admin-url", &admin], 0);
    assert!(said.stdout.contains(&format!("made:   role \"{}\" exists", role.name)), "{}", said.stdout);
    assert!(said.stdout.contains(&format!("made:   publication \"{}\"", case.object())), "{}", said.stdout);
    assert!(said.stdout.contains("\\password"), "{}", said.stdout);
    let said = tool.ends(&["setup", "--admin-url", &admin], 0);
    assert!(!said.stdout.contains("made: "), "{}", said.stdout);
    tool.ends(&["check"], 0);
    publishes(&case, &Outboxd::start(&config), "one");
}

/// Proves that the printed script does the same, runs twice, and works with names that need quotes.
fn setup_prints_what_psql_runs(version: Version) {
    let case = Case::bare(version);
    case.db.run(
        "CREATE SCHEMA \"Odd $outboxd$ 'schema'\"; CREATE TABLE \"Odd $outboxd$ 'schema'\".\"out\"\"box\" \
         (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text, payload text)",
    );
    let (_role, config) = role_to_come(&case);
    let config = config
        .set("outbox.tables", vec!["\"Odd $outboxd$ 'schema'\".\"out\"\"box\""])
        .set("source.postgres.publication", "it's \"odd\"");
    let tool = Tool::new(&config);
    let script = tool.ends(&["setup", "--print"], 0).stdout;
    case.db.run(&script);
    case.db.run(&script);
    tool.ends(&["check"], 0);
    let relay = Outboxd::start(&config);
    relay.ready();
}

/// Proves that somebody who may not make it all is told what an administrator has to run, and that this is enough.
fn setup_without_rights_prints_them(version: Version) {
    let case = Case::new(version);
    let role = crate::roles::role(&case, "LOGIN");
    let url = format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag);
    let tool = Tool::new(&case.config().set("source.postgres.url", url));
    let said = tool.ends(&["setup"], 2);
    for statement in said.stderr.lines().filter_map(|line| line.strip_prefix("    ")) {
        case.db.run(statement);
    }
    tool.ends(&["setup"], 0);
    tool.ends(&["check"], 0);
}

#[track_caller]
fn publishes(case: &Case, relay: &Outboxd, payload: &str) {
    relay.ready();
    case.insert("A", "1", payload);
    case.values_until("A", payload, 20);
}

#[track_caller]
fn status(tool: &Tool, code: i32) -> serde_json::Value {
    let said = tool.ends(&["status", "--json"], code);
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stdout))
}

/// Proves that `status` says what `/readyz` says while the relay answers, and that the exit code follows.
fn status_follows_the_relay(version: Version) {
    let case = Case::new(version);
    let port = crate::support::free_port();
    let config = case.config().set("http.listen", format!("127.0.0.1:{port}"));
    let tool = Tool::new(&config);
    let relay = Outboxd::start_text(&config.text(), port);
    publishes(&case, &relay, "one");
    let json = status(&tool, 0);
    assert_eq!((&json["phase"], &json["said_by"]), (&"streaming".into(), &"relay".into()), "{json}");
    assert!(json["lag_bytes"].is_u64() && json["generation"] == 1 && json["slot"]["active_pid"].is_u64(), "{json}");
    let text = tool.ends(&["status"], 0).stdout;
    assert!(text.contains("streaming") && text.contains(&case.object()), "{text}");

    case.db.run(&format!("DROP PUBLICATION \"{}\"", case.object()));
    let health = relay.wait_terminal(&["publication_missing"], 15);
    let json = status(&tool, 3);
    assert_eq!(json["reason"], "publication_missing");
    for key in ["detail", "hint", "gap", "since"] {
        assert_eq!(json[key], health.json[key], "{key}");
    }
    // another instance's listener is not taken for ours
    let other = Tool::new(&config.clone().set("name", format!("{}_other", case.tag)));
    assert_eq!(status(&other, 1)["reason"], "not_running");
}

/// Proves that without a relay the servers are asked: not running, terminal, held by another instance, unreachable.
fn status_without_a_relay(version: Version) {
    let case = Case::new(version);
    let config = case.config().set("http.listen", format!("127.0.0.1:{}", crate::support::free_port()));
    let tool = Tool::new(&config);
    assert_eq!(status(&tool, 1)["reason"], "not_running");
    let relay = case.start();
    publishes(&case, &relay, "one");
    let json = status(&tool, 0);
    assert_eq!((&json["phase"], &json["said_by"]), (&"streaming".into(), &"server".into()), "{json}");
    assert_eq!(relay.terminate(), Some(0));
    assert_eq!(status(&tool, 1)["reason"], "not_running");
    case.db.run(&format!("SELECT pg_drop_replication_slot('{}')", case.object()));
    let json = status(&tool, 3);
    assert_eq!(json["reason"], "slot_missing", "{json}");
    assert!(json["gap"]["from"].is_string(), "{json}");
    let away = Tool::new(&config.set("source.postgres.url", format!("postgres://postgres@127.0.0.1:{}/x", 9)));
    assert_eq!(status(&away, 1)["reason"], "source_unreachable");
}

/// Publishes an event, lets a mishap happen, waits for the terminal state, and types what its hint says; then the relay
/// publishes again.
#[track_caller]
fn leave(version: Version, reasons: &[&str], happen: impl FnOnce(&Case)) -> (Case, Said) {
    let case = Case::new(version);
    let relay = case.start();
    publishes(&case, &relay, "one");
    eventually("a position is stored", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    happen(&case);
    let relay = Outboxd::start(&case.config());
    let health = relay.wait_terminal(reasons, 15);
    let hint = health.json["hint"].as_str().unwrap().to_owned();
    let (_, command) = hint.split_once("run outboxd ").unwrap_or_else(|| panic!("no command: {hint}"));
    let command = command.split(", and start").next().unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    // it asks, and here is nobody to answer
    let said = type_in(&words);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.hint("error: ", "nobody can be asked").contains("--yes"), "{said:?}");
    assert!(said.stdout.contains("events may be missing: "), "{}", said.stdout);
    let before = generation(&case);
    let said = type_in(&[&words[..], &["--yes"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(generation(&case) > before, "{said:?}");
    // the process that waits in its terminal state is told of
    assert!(said.stdout.contains("start it again"), "{}", said.stdout);
    relay.kill9();
    let relay = Outboxd::start(&case.config());
    publishes(&case, &relay, "after");
    assert_eq!(relay.terminate(), Some(0));
    (case, said)
}

fn generation(case: &Case) -> u64 {
    let records = case.kafka.read_all(&case.positions_topic());
    let newest: serde_json::Value = serde_json::from_slice(records.last().unwrap().value.as_deref().unwrap()).unwrap();
    newest["generation"].as_u64().unwrap()
}

/// Proves that the instance goes on after its slot was dropped, with what is committed from then on.
fn resume_after_the_slot_was_dropped(version: Version) {
    let (case, said) = leave(version, &["slot_missing"], |case| {
        case.db.run(&format!("SELECT pg_drop_replication_slot('{}')", case.object()));
        case.insert("A", "1", "lost");
    });
    assert!(said.stdout.contains("does not exist") && said.stdout.contains("made slot"), "{}", said.stdout);
    assert_eq!(case.values_until("A", "after", 20), ["one", "after"]);
}

/// Proves the same after somebody moved the slot.
fn resume_after_the_slot_was_moved(version: Version) {
    let (case, said) = leave(version, &["slot_moved_ahead"], |case| {
        case.insert("A", "1", "lost");
        case.db.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", case.object()));
    });
    assert!(said.stdout.contains("dropped slot"), "{}", said.stdout);
    assert_eq!(case.values_until("A", "after", 20), ["one", "after"]);
}

/// Proves that what the slot can still bring is not given up: `--from POSITION` goes on where the slot stands.
fn resume_at_a_position_loses_nothing_behind_it(version: Version) {
    let case = Case::new(version);
    let relay = case.start();
    publishes(&case, &relay, "one");
    eventually("a position is stored", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    case.insert("A", "1", "lost");
    case.db.run(&format!("SELECT pg_replication_slot_advance('{}', pg_current_wal_lsn())", case.object()));
    case.insert("A", "1", "kept");
    let tool = Tool::new(&case.config());
    let position = case
        .db
        .text(&format!("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{}'", case.object()));
    let said = tool.ends(&["resume", "--yes", "--from", &position.unwrap()], 0);
    assert!(!said.stdout.contains("dropped slot"), "{}", said.stdout);
    let relay = Outboxd::start(&case.config());
    publishes(&case, &relay, "after");
    assert_eq!(relay.terminate(), Some(0));
    assert_eq!(case.values_until("A", "after", 20), ["one", "kept", "after"]);

    // and behind a position ahead of the slot nothing is published twice or left out
    case.insert("A", "1", "skipped");
    let position = case.db.log_end();
    case.insert("A", "1", "behind");
    let text = format!("{:X}/{:X}", position >> 32, position & 0xFFFF_FFFF);
    let said = tool.ends(&["resume", "--yes", "--from", &text], 0);
    assert!(said.stdout.contains("moved slot"), "{}", said.stdout);
    let relay = Outboxd::start(&case.config());
    publishes(&case, &relay, "last");
    assert_eq!(case.values_until("A", "last", 20), ["one", "kept", "after", "behind", "last"]);
}

/// Proves that the instance goes on after its publication was made again.
fn resume_after_the_publication_was_made_again(version: Version) {
    leave(version, &["publication_remade"], |case| {
        let name = case.object();
        case.db.run(&format!("DROP PUBLICATION \"{name}\""));
        case.db.run(&format!("CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert')"));
    });
    // one that was dropped only is made by the command
    let (_, said) = leave(version, &["publication_missing"], |case| {
        case.db.run(&format!("DROP PUBLICATION \"{}\"", case.object()));
    });
    assert!(said.stdout.contains("made publication"), "{}", said.stdout);
}

/// Proves that the instance goes on after its table was made again.
fn resume_after_the_table_was_made_again(version: Version) {
    leave(version, &["table_remade"], |case| {
        case.db.run(&format!(
            "DROP TABLE outbox; {} ALTER PUBLICATION \"{}\" ADD TABLE outbox",
            crate::support::base_table("outbox"),
            case.object()
        ));
    });
}

/// Proves what `resume` refuses: a running instance, positions that the slot cannot serve, what is no position.
fn resume_refuses(version: Version) {
    let case = Case::new(version);
    let port = crate::support::free_port();
    let config = case.config().set("http.listen", format!("127.0.0.1:{port}"));
    let tool = Tool::new(&config);
    let relay = Outboxd::start_text(&config.text(), port);
    publishes(&case, &relay, "one");
    eventually("a position is stored", 10, || case.stored_position());
    let said = tool.ends(&["resume", "--from", "now", "--yes"], 1);
    assert!(said.hint("error: ", "is held by process").contains("stop the relay"), "{}", said.stderr);
    // a standby that answers here is an instance too, although it does not hold the slot
    let standby_port = crate::support::free_port();
    let standby_config = config.clone().set("http.listen", format!("127.0.0.1:{standby_port}"));
    let standby = Outboxd::start_text(&standby_config.text(), standby_port);
    standby.wait_health("standby", 20, |health| health.phase() == "standby");
    tool.ends(&["drop-slot", "--yes"], 1);
    drop(standby);
    assert_eq!(relay.terminate(), Some(0));

    let slot_before = case.confirmed();
    let said = tool.ends(&["resume", "--from", "0/10", "--yes"], 2);
    assert!(said.finds("what is before that is gone"), "{}", said.stderr);
    let said = tool.ends(&["resume", "--from", "FFFF/0", "--yes"], 2);
    assert!(said.finds("log ends at"), "{}", said.stderr);
    tool.ends(&["resume", "--from", "yesterday"], 2);
    assert_eq!(case.confirmed(), slot_before, "the slot was touched");
    let relay = Outboxd::start(&case.config());
    publishes(&case, &relay, "two");
}

/// Proves that `resume --from table` begins again with the rows that stand in the table.
fn resume_from_table_reads_it_again(version: Version) {
    let case = Case::new(version);
    let tool = Tool::new(&case.config());
    let relay = case.start();
    publishes(&case, &relay, "one");
    eventually("a position is stored", 10, || case.stored_position());
    assert_eq!(relay.terminate(), Some(0));
    let now = Tool::new(&case.config().set("source.postgres.start", "now"));
    let said = now.ends(&["resume", "--from", "table", "--yes"], 2);
    assert!(said.finds("source.postgres.start"), "{}", said.stderr);
    assert!(case.slot().is_some(), "the slot was touched");
    tool.ends(&["resume", "--from", "table"], 2);
    assert!(case.slot().is_some(), "nobody agreed");
    let said = tool.ends(&["resume", "--from", "table", "--yes"], 0);
    for words in ["dropped slot", "removed the stored position"] {
        assert!(said.stdout.contains(words), "{words:?}:\n{}", said.stdout);
    }
    let relay = case.start();
    publishes(&case, &relay, "two");
    assert_eq!(case.values_until("A", "two", 20), ["one", "one", "two"]);
}

/// Proves that an instance is given up whole, not while it is active, and that a start afterwards is a first one.
fn drop_slot_gives_up_the_instance(version: Version) {
    let case = Case::new(version);
    let tool = Tool::new(&case.config());
    assert!(tool.ends(&["drop-slot"], 0).stdout.contains("nothing to do"));
    let relay = case.start();
    publishes(&case, &relay, "one");
    eventually("a position is stored", 10, || case.stored_position());
    let said = tool.ends(&["drop-slot", "--yes"], 1);
    assert!(said.finds("is held by process"), "{}", said.stderr);
    assert_eq!(relay.terminate(), Some(0));
    tool.ends(&["drop-slot"], 2);
    assert!(case.slot().is_some(), "nobody agreed");
    let said = tool.ends(&["drop-slot", "--yes"], 0);
    for words in ["before the end of the log", "dropped slot", "removed the position", "DROP PUBLICATION"] {
        assert!(said.stdout.contains(words), "{words:?}:\n{}", said.stdout);
    }
    assert!(case.slot().is_none());
    assert_eq!(case.kafka.read_all(&case.positions_topic()).last().unwrap().value, None, "no tombstone");
    case.db.run("TRUNCATE outbox");
    let relay = case.start();
    publishes(&case, &relay, "two");
    assert_eq!(generation(&case), 1);
}

/// Proves that the commands work where the position is kept in a file.
fn with_standard_output(version: Version) {
    let case = Case::new(version);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("position.json");
    let config = case.config().without("sink.kafka").set("sink.stdout.positions-file", file.to_str().unwrap());
    let tool = Tool::new(&config);
    let relay = Outboxd::start(&config);
    relay.ready();
    eventually("a position is stored", 10, || file.exists().then_some(()));
    assert_eq!(relay.terminate(), Some(0));
    assert!(tool.ends(&["check"], 0).stdout.contains("position.json"));
    case.db.run(&format!("SELECT pg_drop_replication_slot('{}')", case.object()));
    tool.ends(&["status"], 3);
    tool.ends(&["resume", "--from", "now", "--yes"], 0);
    let stored: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(lsn(stored["position"].as_str().unwrap()), case.confirmed());
    tool.ends(&["status"], 1);
    tool.ends(&["drop-slot", "--yes"], 0);
    assert!(!file.exists());
}
