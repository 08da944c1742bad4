//! Ways to a PostgreSQL server: login methods, where the password comes from, certificates, sockets, several hosts.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::case::without_repeats;
use crate::support::certificates::{Authority, Certificate, openssl};
use crate::support::{Case, Config, Kafka, Outboxd, PrivateServer, Server, Version, base_table, free_port, quote};

on_each_version!(
    login_methods,
    tls_that_the_server_does_not_have,
    passwords_from_command_and_passfile,
    client_certificate,
    channel_binding,
    unix_socket,
    hosts_are_tried_in_order,
    follows_the_primary,
);

/// A server that asks the members of some groups for what their group is called after.
fn server(version: Version) -> PrivateServer {
    let server = PrivateServer::start(version, "ssl_ca_file = '../tls/ca.pem'\nunix_socket_directories = '..'");
    server
        .session("postgres")
        .run("CREATE ROLE g_md5; CREATE ROLE g_password; CREATE ROLE g_scram; CREATE ROLE g_cert");
    server.prepend_hba(
        "hostssl all +g_cert 127.0.0.1/32 cert\n\
         host all +g_cert 127.0.0.1/32 reject\n\
         host all +g_md5 127.0.0.1/32 md5\n\
         host all +g_password 127.0.0.1/32 password\n\
         host all +g_scram 127.0.0.1/32 scram-sha-256\n\
         local all +g_scram scram-sha-256\n\
         local all all trust",
    );
    server
}

fn case(server: &Server) -> Case {
    let case = Case::on(server, &Kafka::shared());
    case.db.run(&base_table("outbox"));
    case
}

/// Makes a role of a group, with its name derived from the test's.
fn role(case: &Case, group: &str, password: &str) -> String {
    let name = format!("{group}_{}", case.tag);
    let stored = if group == "g_md5" { "md5" } else { "scram-sha-256" };
    case.db.run(&format!(
        "SET password_encryption = '{stored}'; CREATE ROLE \"{name}\" LOGIN SUPERUSER PASSWORD {} IN ROLE {group}",
        quote(password)
    ));
    name
}

/// The configuration with a URL of this user and these parameters.
fn url(case: &Case, user: &str, parameters: &str) -> Config {
    let (port, database) = (case.db.server.port, &case.tag);
    case.config().set("source.postgres.url", format!("postgres://{user}@127.0.0.1:{port}/{database}{parameters}"))
}

/// Publishes an event; for the relay's sessions `seen` holds, a condition on pg_stat_activity and pg_stat_ssl.
#[track_caller]
fn works(case: &Case, config: &Config, seen: &str) {
    let relay = Outboxd::start(config);
    relay.ready();
    let before = case.kafka.read_all(&case.topic("A")).len();
    case.insert("A", "1", "arrived");
    case.consume("A", before + 1, 20);
    let sessions = case.db.rows(&format!(
        "SELECT {seen} FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) WHERE application_name = {}",
        quote(&case.object())
    ));
    assert!(sessions.len() >= 2, "one for SQL, one for the stream: {sessions:?}");
    assert!(sessions.iter().all(|row| row[0].as_deref() == Some("t")), "{seen}: {sessions:?}");
    assert_eq!(relay.terminate(), Some(0));
}

/// The relay ends with code 2, and says these words.
#[track_caller]
fn refused(config: &Config, words: &[&str]) {
    let ended = Outboxd::run_to_end(config);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for words in words {
        assert!(ended.stderr.contains(words), "{words:?} is missing:\n{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("geheim"), "a password is shown:\n{}", ended.stderr);
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file with this content, with the permissions that libpq asks for.
fn file(dir: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Proves that each login method works for both connections with the right password, from a file of Windows too, and is
/// refused clearly with a wrong one and with none.
fn login_methods(version: Version) {
    let server = server(version);
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (file(&dir, "right", "geheim pässword\r\n"), file(&dir, "wrong", "geheim\n"));
    for group in ["g_md5", "g_password", "g_scram"] {
        let case = case(&server);
        let user = role(&case, group, "geheim pässword");
        let bare = url(&case, &user, "?sslmode=disable");
        works(&case, &bare.clone().set("source.postgres.password-file", text(&right)), "NOT ssl");
        let failed = format!("password authentication failed for user \"{user}\"");
        refused(&bare.clone().set("source.postgres.password-file", text(&wrong)), &[&failed, "password-file"]);
        refused(&bare, &["asks for a password and none is set", "password-file"]);
    }
}

/// Proves that `require` is refused by a server without TLS, and that `prefer` goes on without.
fn tls_that_the_server_does_not_have(version: Version) {
    let server = PrivateServer::start(version, "ssl = off");
    let case = case(&server);
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(&url(&case, "postgres", &format!("?sslmode={mode}")), &["does not offer TLS", "sslmode"]);
    }
    works(&case, &url(&case, "postgres", "?sslmode=prefer"), "NOT ssl");
    refused(
        &url(&case, "postgres", "?channel_binding=require"),
        &["cannot be bound to TLS", "channel_binding=require"],
    );
}

/// Proves that a command prints the password anew at each connect, and that a password file of libpq is read where
/// nothing else is given.
fn passwords_from_command_and_passfile(version: Version) {
    let server = server(version);
    let case = case(&server);
    let user = role(&case, "g_scram", "geheim-1");
    let dir = tempfile::tempdir().unwrap();
    let token = file(&dir, "token", "geheim-1\n");
    let bare = url(&case, &user, "");
    let command = |script: String| bare.clone().set("source.postgres.password-command", vec!["sh", "-c", &script]);
    let config = command(format!("echo called >> {}/calls; cat {}", dir.path().display(), token.display()));
    let relay = Outboxd::start(&config);
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    let calls = || std::fs::read_to_string(dir.path().join("calls")).unwrap().lines().count();
    let before = calls();
    case.db.run(&format!("ALTER ROLE \"{user}\" PASSWORD 'geheim-2'"));
    std::fs::write(&token, "geheim-2").unwrap();
    case.db.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = {}", quote(&user)));
    case.insert("A", "1", "two");
    assert_eq!(without_repeats(case.values_until("A", "two", 30)), ["one", "two"]);
    assert!(calls() > before, "the command was not run again");
    relay.wait_health("streaming", 20, |health| health.status == 200);
    assert!(!relay.stderr().contains("geheim"), "a password is in the log");
    assert_eq!(relay.terminate(), Some(0));

    refused(
        &command("true".to_owned()).set("source.postgres.password-file", text(&token)),
        &["password-command", "password-file"],
    );
    let relay = Outboxd::start(&command("echo geheim; exit 7".to_owned()));
    let health = relay.wait_reason("authentication_failed", 20);
    assert!(health.detail().contains("exit status: 7") && !health.detail().contains("geheim"), "{health:?}");
    drop(relay);
    let begun = std::time::Instant::now();
    let relay = Outboxd::start(&command("sleep 60".to_owned()));
    let health = relay.wait_reason("authentication_failed", 20);
    assert!(health.detail().contains("10s") && begun.elapsed() >= Duration::from_secs(10), "{health:?}");
    drop(relay);

    let line = format!("127.0.0.1:{}:{}:{user}:geheim-2\n", server.port, case.tag);
    let passfile = file(&dir, "pgpass", &format!("# first\nother:*:*:*:geheim\n{line}"));
    let with_passfile = url(&case, &user, &format!("?passfile={}", passfile.display()));
    works(&case, &with_passfile, "ssl");
    std::fs::set_permissions(&passfile, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(&with_passfile, &["pgpass", "0600"]);
}

/// Proves that a certificate takes the place of a password, with its key in either form, and that a wrong one, a missing
/// one and a protected key are said clearly.
fn client_certificate(version: Version) {
    let server = server(version);
    let case = case(&server);
    let user = role(&case, "g_cert", "unused");
    let with = |certificate: &Certificate| {
        let (certificate, key) = (certificate.certificate.display(), certificate.key.display());
        url(&case, &user, &format!("?sslmode=require&sslcert={certificate}&sslkey={key}"))
    };
    let authority = Authority::at(&server.dir.join("tls"));
    let right = authority.issue(&user, "DNS:client");
    let seen = format!("ssl AND client_dn LIKE '%{}%'", &user[..20]);
    works(&case, &with(&right), &seen);
    // as by the commands of PostgreSQL's manual: X.509 version 1, and here the key in its older form
    let tls = server.dir.join("tls");
    let (key, request, certificate) = (tls.join("old.key"), tls.join("old.csr"), tls.join("old.pem"));
    openssl(&["genrsa -traditional -out", text(&key), "2048"]);
    openssl(&["req -new -key", text(&key), &format!("-subj /CN={user} -out"), text(&request)]);
    openssl(&[
        &format!("x509 -req -days 30 -in {} -out {}", request.display(), certificate.display()),
        &format!("-CA {0}/ca.pem -CAkey {0}/ca.key -CAcreateserial", tls.display()),
    ]);
    assert!(std::fs::read_to_string(&key).unwrap().contains("BEGIN RSA PRIVATE KEY"));
    works(&case, &with(&Certificate { certificate, key: key.clone() }), &seen);
    // as Java's driver takes it
    let key = tls.join("key.pk8");
    openssl(&[&format!("pkcs8 -topk8 -nocrypt -outform DER -in {} -out {}", right.key.display(), key.display())]);
    works(&case, &with(&Certificate { certificate: right.certificate.clone(), key }), &seen);

    refused(&url(&case, &user, "?sslmode=require"), &["certificate"]);
    let foreign = Authority::new(&crate::support::private_dir("foreign-ca")).issue(&user, "DNS:client");
    refused(&with(&foreign), &["refused our certificate", "sslcert"]);
    let crossed = Certificate { certificate: right.certificate.clone(), key: foreign.key.clone() };
    refused(&with(&crossed), &["it is not the key of", text(&right.certificate)]);
    let other = authority.issue("somebody-else", "DNS:client");
    refused(&with(&other), &["authentication failed for user"]);
    let dir = tempfile::tempdir().unwrap();
    let protected = dir.path().join("protected.key");
    openssl(&[&format!("pkcs8 -topk8 -in {} -out {} -passout pass:geheim", right.key.display(), protected.display())]);
    refused(
        &with(&Certificate { certificate: right.certificate.clone(), key: protected.clone() }),
        &[text(&protected), "passphrase"],
    );
    refused(&url(&case, &user, "?sslpassword=geheim"), &["sslpassword"]);
}

/// Proves that a login is bound to TLS whatever the hash of the certificate's signature, also where it has to be; and
/// that a certificate without such a hash is good enough unless it has to be.
fn channel_binding(version: Version) {
    let server = server(version);
    let case = case(&server);
    let user = role(&case, "g_scram", "geheim");
    let unbound = role(&case, "g_password", "geheim");
    let plain = format!("{user}:geheim");
    let require = "?sslmode=require&channel_binding=require";
    let install = |certificate: &Certificate| {
        std::fs::copy(&certificate.certificate, server.dir.join("tls/server.pem")).unwrap();
        std::fs::write(server.dir.join("tls/server.key"), std::fs::read(&certificate.key).unwrap()).unwrap();
        server.reload();
    };
    std::fs::write(server.dir.join("tls/new.ext"), "subjectAltName=DNS:localhost\n").unwrap();
    // one of X.509 version 1, as by the commands of PostgreSQL's manual
    let tls = server.dir.join("tls");
    openssl(&[
        &format!("x509 -req -days 30 -in {0}/server.csr -out {0}/old.pem", tls.display()),
        &format!("-CA {0}/ca.pem -CAkey {0}/ca.key -CAcreateserial", tls.display()),
    ]);
    install(&Certificate { certificate: tls.join("old.pem"), key: tls.join("server.key") });
    works(&case, &url(&case, &plain, require), "ssl");
    works(&case, &url(&case, &plain, ""), "ssl");
    let verified = format!("?sslmode=verify-ca&sslrootcert={}/ca.pem", tls.display());
    refused(&url(&case, &plain, &verified), &["is not trusted", "version 1", "subjectAltName"]);
    openssl(&[
        &format!("x509 -req -days 30 -in {0}/server.csr -out {0}/new.pem -sha256", tls.display()),
        &format!("-CA {0}/ca.pem -CAkey {0}/ca.key -CAcreateserial -extfile {0}/new.ext", tls.display()),
    ]);
    install(&Certificate { certificate: tls.join("new.pem"), key: tls.join("server.key") });
    // RSA with SHA-256
    works(&case, &url(&case, &plain, require), "ssl");
    works(&case, &url(&case, &plain, "?sslmode=require&channel_binding=disable"), "ssl");
    let not_bound = ["cannot be bound to TLS", "channel_binding=require"];
    refused(&url(&case, &plain, "?sslmode=disable&channel_binding=require"), &not_bound);
    refused(&url(&case, &format!("{unbound}:geheim"), require), &not_bound);
    refused(&url(&case, "postgres", require), &not_bound);

    let dir = crate::support::private_dir("binding-ca");
    let rsa = Authority::with_key(&dir.join("rsa"), "rsa:2048");
    let ecdsa = Authority::new(&dir.join("ecdsa"));
    for (authority, signature) in [(&rsa, "-sha512"), (&rsa, "-sha1"), (&ecdsa, "-sha384")] {
        install(&authority.issue_with("server", "DNS:localhost", signature));
        works(&case, &url(&case, &plain, require), "ssl");
    }
    let ed25519 = Authority::with_key(&dir.join("ed25519"), "ed25519");
    install(&ed25519.issue_with("server", "DNS:localhost", ""));
    works(&case, &url(&case, &plain, "?sslmode=require"), "ssl");
    refused(&url(&case, &plain, require), &not_bound);
}

/// Proves that a Unix socket is reached by either way of writing it, without TLS whatever is asked for, as with libpq.
fn unix_socket(version: Version) {
    let server = server(version);
    let case = case(&server);
    let user = role(&case, "g_scram", "geheim");
    let folder = text(&server.dir).to_owned();
    let encoded = folder.replace('/', "%2F");
    let (port, database) = (server.port, &case.tag);
    for url in [
        format!("postgres://{user}:geheim@{encoded}:{port}/{database}"),
        format!("postgres://{user}:geheim@/{database}?host={folder}&port={port}&sslmode=verify-full"),
    ] {
        let config = case.config().set("source.postgres.url", url);
        works(&case, &config, "client_addr IS NULL AND NOT ssl");
    }
    let nowhere = format!("postgres://{user}@/{database}?host={folder}/nowhere");
    let relay = Outboxd::start(&case.config().set("source.postgres.url", nowhere));
    let health = relay.wait_reason("source_unreachable", 20);
    assert!(health.detail().contains("nowhere/.s.PGSQL.5432"), "the socket is not named: {health:?}");
}

/// Proves that hosts are tried in their order, that a standby among them is passed over, and that both connections go to
/// the same server.
fn hosts_are_tried_in_order(version: Version) {
    let standby = PrivateServer::start(version, "");
    let case = case(&Server::shared(version));
    standby.session("postgres").run(&format!("CREATE DATABASE \"{}\"", case.tag));
    assert!(standby.stop(Duration::from_secs(60)).is_some());
    standby.start_as_standby();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}", free_port(), standby.port, case.db.server.port);
    let url = |attributes: &str| {
        let url = format!("postgres://postgres@{hosts}/{}{attributes}", case.tag);
        case.config().set("source.postgres.url", url)
    };
    let database = &case.tag;
    for attributes in ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"] {
        works(&case, &url(attributes), "datname = current_database()");
    }
    // every server has its say
    let nobody = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{database}", free_port(), standby.port);
    let relay = Outboxd::start(&case.config().set("source.postgres.url", nobody));
    let health = relay.wait_reason("source_unreachable", 20);
    assert!(health.detail().contains("Connection refused"), "{health:?}");
    assert!(health.detail().contains(&format!("{} is not the kind", standby.port)), "{health:?}");
    drop(relay);
    let only = format!("postgres://postgres@127.0.0.1:{}/{database}?target_session_attrs=standby", case.db.server.port);
    let relay = Outboxd::start(&case.config().set("source.postgres.url", only));
    let health = relay.wait_reason("source_unreachable", 20);
    assert!(health.detail().contains("it is no standby"), "{health:?}");
}

/// Proves that the relay follows the primary to another host of its URL, although the former one is back as a standby
/// with the same slot, and that nothing is lost on the way.
fn follows_the_primary(version: Version) {
    let (old, new) = (PrivateServer::start(version, ""), PrivateServer::start(version, ""));
    let case = case(&old);
    let url = format!("postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{}", old.port, new.port, case.tag);
    let relay = Outboxd::start(&case.config().set("source.postgres.url", url));
    relay.ready();
    case.insert("A", "1", "one");
    case.consume("A", 1, 20);
    assert!(old.stop(Duration::from_secs(60)).is_some());
    assert!(new.stop(Duration::from_secs(60)).is_some());
    new.take_data_of(&old);
    old.start_as_standby();
    let passed_over = format!("{} is not the kind of server that is asked for: it is a standby", old.port);
    relay.wait_health("passed over", 30, |health| health.detail().contains(&passed_over));
    new.start_promoted();
    new.session(&case.tag).run(&case.insert_sql("A", "1", "two"));
    relay.wait_health("streaming again", 40, |health| health.status == 200);
    assert_eq!(without_repeats(case.values_until("A", "two", 30)), ["one", "two"]);
    let slot = format!("SELECT active FROM pg_replication_slots WHERE slot_name = {}", quote(&case.object()));
    assert_eq!(new.session("postgres").text(&slot).as_deref(), Some("t"));
    assert_eq!(relay.terminate(), Some(0));
}
