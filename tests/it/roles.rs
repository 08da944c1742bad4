//! Rights and passwords of the role that the relay works as.

use crate::support::case::without_repeats;
use crate::support::postgres::Server;
use crate::support::{Case, Outboxd, Version, eventually, quote};

on_each_version!(fr_08_replication_right_alone, fr_08_missing_objects_are_spelled_out, fr_10_password_changes);

/// A role of one test; dropped at its end.
pub(crate) struct Role {
    pub(crate) name: String,
    server: Server,
}

impl Role {
    /// One that is made by somebody else.
    pub(crate) fn named(server: &Server, name: &str) -> Self {
        Self { name: name.to_owned(), server: server.clone() }
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        if let Ok(session) = crate::support::Session::try_connect(&self.server.url("postgres")) {
            // its grants go with the test's database, which may still be there
            let _ = session.try_run(&format!("DROP ROLE IF EXISTS \"{}\"", self.name));
        }
    }
}

/// Makes a role that needs no password.
pub(crate) fn role(case: &Case, rights: &str) -> Role {
    let name = format!("r_{}", case.tag);
    case.db.run(&format!("CREATE ROLE \"{name}\" {rights}"));
    Role { name, server: case.db.server.clone() }
}

/// Makes a role that the server asks for its password.
pub(crate) fn scram_role(case: &Case, rights: &str, password: &str) -> Role {
    let role = role(case, &format!("{rights} PASSWORD {}", quote(password)));
    // several tests may make the group at the same time
    let _ = case.db.try_run("CREATE ROLE scram NOLOGIN");
    eventually("member of the group", 5, || case.db.try_run(&format!("GRANT scram TO \"{}\"", role.name)).ok());
    role
}

fn url(case: &Case, role: &Role) -> String {
    format!("postgres://{}@127.0.0.1:{}/{}", role.name, case.db.server.port, case.tag)
}

/// What an administrator makes for a role that may make nothing.
fn make_objects(case: &Case) {
    let name = case.object();
    case.db.run(&format!(
        "CREATE PUBLICATION \"{name}\" FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)"
    ));
    case.db.run(&format!("SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')"));
}

/// Proves that the right to replicate is enough where publication and slot were made beforehand: no right on the
/// table, none to make anything.
fn fr_08_replication_right_alone(version: Version) {
    let case = Case::new(version);
    let role = role(&case, "LOGIN REPLICATION");
    make_objects(&case);
    let relay = Outboxd::start(&case.config().set("source.postgres.url", url(&case, &role)));
    relay.ready();
    case.insert("A", "1", "published");
    assert_eq!(case.consume("A", 1, 20)[0].text(), "published");
    assert_eq!(relay.terminate(), Some(0));
}

/// Proves that such a role, where the publication is missing, is told the statement that an administrator has to run.
fn fr_08_missing_objects_are_spelled_out(version: Version) {
    let case = Case::new(version);
    let role = role(&case, "LOGIN REPLICATION");
    let ended = Outboxd::run_to_end(&case.config().set("source.postgres.url", url(&case, &role)));
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for word in ["CREATE PUBLICATION", &case.object(), "outbox"] {
        assert!(ended.stderr.contains(word), "{word:?} is missing:\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("FOR ALL TABLES"), "{}", ended.stderr);
}

/// Proves that the password is read at each connect: a changed one is taken, a wrong one is a clear state with patient
/// retries, and the right one mends it.
fn fr_10_password_changes(version: Version) {
    let case = Case::new(version);
    let role = scram_role(&case, "LOGIN REPLICATION", "one");
    make_objects(&case);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "one\n").unwrap();
    let config = case
        .config()
        .set("source.postgres.url", url(&case, &role))
        .set("source.postgres.password-file", file.to_str().unwrap());
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);

    let cut = || {
        let pid = case.slot().unwrap().active_pid.expect("not streaming");
        case.db.run(&format!("SELECT pg_terminate_backend({pid})"));
        pid
    };
    std::fs::write(&file, "two\n").unwrap();
    case.db.run(&format!("ALTER ROLE \"{}\" PASSWORD 'two'", role.name));
    let before = cut();
    case.insert("A", "1", "two");
    case.consume("A", 2, 20);
    eventually("another connection", 20, || case.slot()?.active_pid.filter(|pid| *pid != before));

    std::fs::write(&file, "wrong\n").unwrap();
    relay.ready();
    // all its connections, so that a new one is needed for each purpose
    case.db.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{}'", role.name));
    relay.wait_reason("authentication_failed", 20);
    let failures = || {
        let text = format!("password authentication failed for user \"{}\"", role.name);
        case.db.server.log().matches(&text).count()
    };
    let begin = failures();
    let watched = std::time::Instant::now();
    eventually("a few more tries", 20, || (watched.elapsed().as_secs() >= 5).then_some(()));
    let tries = failures() - begin;
    assert!(tries <= 15, "{tries} tries in 5 s");
    std::fs::write(&file, "two").unwrap();
    relay.wait_health("mended", 40, |health| health.status == 200);
    case.insert("A", "1", "three");
    let values = without_repeats(case.values_until("A", "three", 20));
    assert_eq!(values, ["one", "two", "three"]);
}
