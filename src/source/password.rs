//! Passwords from files and commands, anew for each connection: so a changed one is taken without a restart.

use std::path::Path;

use crate::config::secret::Secret;
use crate::secret_command::{self, SecretCommandError};
use crate::source::SourceError;
use crate::state::Reason;

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
    secret_command::run(program, arguments).await.map_err(|error| {
        let message = format!("the password command \"{program}\" {error}");
        match error {
            SecretCommandError::NotStarted(_) => refuse(message, format!("correct option \"{option}\"")),
            _ => SourceError::Connection { reason: Reason::AuthenticationFailed, message, source: None },
        }
    })
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
