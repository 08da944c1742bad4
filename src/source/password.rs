//! Passwords from files and commands, anew for each connection: so a changed one is taken without a restart.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::config::secret::Secret;
use crate::source::SourceError;
use crate::state::Reason;

/// Longest time for the command that prints the password.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest output of the command: a token has a few thousand characters.
const OUTPUT_LIMIT: u64 = 64 << 10;

pub(super) fn refuse(message: String, hint: String) -> SourceError {
    SourceError::Configuration { reason: Reason::AuthenticationFailed, message, hint }
}

/// Reads the file that option `option` names.
///
/// # Errors
/// It cannot be read.
pub(super) async fn from_file(path: &Path, option: &str) -> Result<Secret, SourceError> {
    let text = tokio::fs::read_to_string(path).await.map_err(|error| {
        let message = format!("could not read the password from \"{}\": {error}", path.display());
        refuse(message, format!("correct option \"{option}\""))
    })?;
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}

/// Runs the command that option `option` names. What it prints to standard error may hold secrets, so it is not shown.
///
/// # Errors
/// It cannot be run, or has failed.
pub(super) async fn from_command(program: &str, arguments: &[String], option: &str) -> Result<Secret, SourceError> {
    let failed = |message: String| SourceError::Connection {
        reason: Reason::AuthenticationFailed,
        message: format!("the password command \"{program}\" {message}"),
        source: None,
    };
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| {
        let message = format!("could not run the password command \"{program}\": {error}");
        refuse(message, format!("correct option \"{option}\""))
    })?;
    let output = async {
        let mut text = String::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(OUTPUT_LIMIT).read_to_string(&mut text).await?;
        }
        io::Result::Ok((text, child.wait().await?))
    };
    match tokio::time::timeout(COMMAND_TIMEOUT, output).await {
        Err(_) => Err(failed(format!("did not end within {COMMAND_TIMEOUT:?}"))),
        Ok(Err(error)) => Err(failed(format!("failed: {error}"))),
        Ok(Ok((_, status))) if !status.success() => Err(failed(format!("failed: {status}"))),
        Ok(Ok((text, _))) => match text.trim_end_matches(['\r', '\n']) {
            "" => Err(failed("printed nothing".to_owned())),
            password => Ok(Secret::new(password)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_command_gives_its_output_without_the_line_feed() {
        let run = async |script: &str| from_command("sh", &["-c".to_owned(), script.to_owned()], "o").await;
        assert_eq!(run("printf 'a b\\r\\n\\n'").await.unwrap().expose(), "a b");
        for (script, words) in [("echo geheim; exit 3", "exit status: 3"), ("true", "printed nothing")] {
            let error = run(script).await.unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("geheim"), "{error}");
        }
        let error = from_command("/nowhere/command", &[], "o").await.unwrap_err();
        assert!(
            error.to_string().contains("/nowhere/command") && error.hint() == Some("correct option \"o\""),
            "{error}"
        );
    }
}
