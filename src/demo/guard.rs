//! Ends the server when the demo cannot do it any more, because it was killed.
//!
//! A shell waits for a line that never comes: its input ends with the demo, whatever ended that.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

/// `$1` is the folder. The server's shared memory is freed by the server itself, so it is asked and not killed at first.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r line
if read -r pid < "$1/data/postmaster.pid"; then
    kill -QUIT "$pid"
    tries=0
    while kill -0 "$pid" && [ "$tries" -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
    kill -KILL "$pid"
fi
rm -rf -- "$1"
"#;

/// The shell. Dropping it gives the watch up.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Watches over a folder with the server's data in it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn over(folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT, "outboxd-demo-guard"]).arg(folder);
        // nothing that reaches the demo by its terminal reaches the shell
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
        let child = command.spawn().context("start /bin/sh, which ends the server if the demo is killed")?;
        Ok(Self { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // before its input ends: the server is gone, and its number may be another's
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
