//! A secret that a program prints: a password or a token, made anew each time.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::config::secret::Secret;

/// Longest time for the command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest output of the command: a token has a few thousand characters.
const OUTPUT_LIMIT: u64 = 64 << 10;

/// Why there is no secret. The words complete "the command …".
#[derive(Debug, thiserror::Error)]
pub enum SecretCommandError {
    /// There is no such program, or it may not be run.
    #[error("could not be run: {0}")]
    NotStarted(io::Error),
    /// It did not end in time.
    #[error("did not end within {COMMAND_TIMEOUT:?}")]
    TimedOut,
    /// Its output could not be read, or is no text.
    #[error("failed: {0}")]
    Io(io::Error),
    /// It ended with an error.
    #[error("failed: {0}")]
    Failed(ExitStatus),
    /// It printed nothing.
    #[error("printed nothing")]
    Silent,
}

/// Runs the command and gives what it prints, without the line feeds at the end. What it prints to standard error may
/// hold secrets, so it is not shown.
///
/// # Errors
/// It could not be run, failed, or printed nothing.
pub async fn run(program: &str, arguments: &[String]) -> Result<Secret, SecretCommandError> {
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(SecretCommandError::NotStarted)?;
    let output = async {
        let mut text = String::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(OUTPUT_LIMIT).read_to_string(&mut text).await?;
        }
        io::Result::Ok((text, child.wait().await?))
    };
    match tokio::time::timeout(COMMAND_TIMEOUT, output).await {
        Err(_) => Err(SecretCommandError::TimedOut),
        Ok(Err(error)) => Err(SecretCommandError::Io(error)),
        Ok(Ok((_, status))) if !status.success() => Err(SecretCommandError::Failed(status)),
        Ok(Ok((text, _))) => match text.trim_end_matches(['\r', '\n']) {
            "" => Err(SecretCommandError::Silent),
            secret => Ok(Secret::new(secret)),
        },
    }
}
