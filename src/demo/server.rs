//! A PostgreSQL server of our own, in a folder that goes with it.

use std::fs::{File, Permissions};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::account::Account;
use super::binaries::Binaries;
use super::guard::Guard;
use super::screen::Screen;

/// Longest time for making the data directory, and for starting, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Another program may take the port between our choice and the server's start.
const ATTEMPTS: usize = 3;
/// How often a process is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The running server. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub(super) struct Server {
    process: Process,
    /// Where it listens on the loopback interface.
    pub(super) port: u16,
    /// Password of its superuser, `postgres`.
    pub(super) password: String,
    stop: Command,
    // given up when the server has ended, and before its folder goes
    _guard: Guard,
    // the last one to be dropped
    _folder: TempDir,
}

impl Server {
    /// Makes a data directory and starts a server on it, with the log that a relay needs.
    ///
    /// # Errors
    /// What the programs of PostgreSQL say.
    pub(super) async fn start(given: Option<&Path>, screen: &Screen) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("outboxd-demo-").tempdir().context("make a temporary folder")?;
        let account = Account::for_owner_of(folder.path())?;
        let binaries = Binaries::find(given, account.as_ref(), screen).await?;
        let begun = Instant::now();
        let home = Home { path: folder.path().to_owned(), binaries, account };
        let guard = Guard::over(&home.path)?;
        let password = home.init().await?;
        let (mut process, mut port) = home.serve()?;
        for attempt in 1.. {
            match home.wait(&mut process, port).await {
                Ok(()) => break,
                Err(error) if attempt >= ATTEMPTS => return Err(error),
                Err(_) => (process, port) = home.serve()?,
            }
        }
        let server = Self { process, port, password, stop: home.stop(), _guard: guard, _folder: folder };
        let (version, ready) = (&home.binaries.version, begun.elapsed().as_secs_f64());
        screen.fact("PostgreSQL", &format!("{version} at 127.0.0.1:{port}, ready after {ready:.1} s"));
        let user = home.account.as_ref().map(|account| format!(" as user {}", account.name)).unwrap_or_default();
        let bin = home.binaries.folder.display();
        screen.fact("", &format!("programs of {bin}{user}, data in {}", home.path.display()));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // at once: the data goes too. The server's own way frees its shared memory, which a kill would not
        let _ = self.stop.status();
        self.process.end();
    }
}

/// Where the server lives and as whom.
struct Home {
    path: PathBuf,
    binaries: Binaries,
    account: Option<Account>,
}

impl Home {
    fn command(&self, program: &str) -> Command {
        let mut command = Account::command(self.account.as_ref(), &self.binaries.folder.join(program));
        command.current_dir(&self.path);
        command
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// A file for what a program says.
    fn output(&self, name: &str) -> anyhow::Result<(PathBuf, File)> {
        let path = self.path.join(name);
        let file = File::create(&path).with_context(|| format!("write \"{}\"", path.display()))?;
        Ok((path, file))
    }

    /// Makes the data directory; returns the superuser's password.
    async fn init(&self) -> anyhow::Result<String> {
        let password = random_password()?;
        let file = self.path.join("password");
        let prepare = || -> std::io::Result<()> {
            // the account has to get into it
            std::fs::set_permissions(&self.path, Permissions::from_mode(0o755))?;
            std::fs::create_dir(self.data())?;
            std::fs::set_permissions(self.data(), Permissions::from_mode(0o700))?;
            Account::own(self.account.as_ref(), &self.data())?;
            let written = File::create(&file)?;
            written.set_permissions(Permissions::from_mode(0o600))?;
            Account::own(self.account.as_ref(), &file)?;
            std::fs::write(&file, &password)
        };
        prepare().with_context(|| format!("prepare \"{}\"", self.path.display()))?;
        let (log, output) = self.output("initdb.log")?;
        let mut command = self.command("initdb");
        command.arg("-D").arg(self.data()).arg("--pwfile").arg(&file);
        command.args(["-U", "postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        let mut process = Process::spawn(command, output)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = process.ended()? {
                break status;
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("initdb took longer than {START_TIMEOUT:?}");
            }
            tokio::time::sleep(LOOK).await;
        };
        let _ = std::fs::remove_file(&file);
        if !status.success() {
            bail!("initdb failed:\n{}", tail(&log));
        }
        Ok(password)
    }

    /// Starts the server on a port that is free now.
    fn serve(&self) -> anyhow::Result<(Process, u16)> {
        let port =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|free| free.local_addr()).context("find a port")?.port();
        let (_, output) = self.output("postgres.log")?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-p").arg(port.to_string());
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "wal_level=logical"] {
            command.arg("-c").arg(setting);
        }
        Ok((Process::spawn(command, output)?, port))
    }

    /// Waits until the server says that it is ready.
    async fn wait(&self, process: &mut Process, port: u16) -> anyhow::Result<()> {
        let begun = Instant::now();
        // the last line of the file is "ready" from the moment on when clients may connect
        let file = self.data().join("postmaster.pid");
        loop {
            if process.ended()?.is_some() {
                bail!("PostgreSQL did not start on port {port}:\n{}", tail(&self.path.join("postgres.log")));
            }
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            if text.lines().next_back().is_some_and(|state| state.trim() == "ready") {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("PostgreSQL took longer than {START_TIMEOUT:?} to start");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends the server; the data need not be fit for another start.
    fn stop(&self) -> Command {
        let mut command = self.command("pg_ctl");
        command.arg("stop").arg("-D").arg(self.data()).args(["-m", "immediate", "-w", "-t", "10", "-s"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// A process that ends with its owner.
#[derive(Debug)]
struct Process {
    child: Child,
}

impl Process {
    fn spawn(mut command: Command, output: File) -> anyhow::Result<Self> {
        let program = command.get_program().to_owned();
        let doing = || format!("start {}", program.to_string_lossy());
        let errors = output.try_clone().with_context(doing)?;
        let child = command.stdout(output).stderr(errors).spawn().with_context(doing)?;
        Ok(Self { child })
    }

    fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("ask for a process")
    }

    fn end(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// The last lines of what a program said.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(8)).copied().collect::<Vec<_>>().join("\n")
}

/// Others may have an account on this machine too.
fn random_password() -> anyhow::Result<String> {
    let mut bytes = [0; 12];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).context("read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
