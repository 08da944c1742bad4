//! The account that runs the database server, which refuses to be run by root.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::commands::run::Refusal;

/// In this order of preference.
const NAMES: [&str; 2] = ["postgres", "nobody"];

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// Its name.
    pub(super) name: String,
    /// Its number.
    pub(super) uid: u32,
    /// The number of its group.
    pub(super) gid: u32,
}

impl Account {
    /// The account to change to, where `folder`, which this process has just made, belongs to root.
    ///
    /// # Errors
    /// [`Refusal`] inside if the machine has none of the accounts.
    pub(super) fn for_owner_of(folder: &Path) -> anyhow::Result<Option<Self>> {
        if std::fs::metadata(folder)?.uid() != 0 {
            return Ok(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let found = NAMES.iter().find_map(|name| Self::parse(&users, name));
        found.map(Some).ok_or_else(|| {
            Refusal {
                message: "PostgreSQL does not run as root, and there is no user postgres or nobody".to_owned(),
                hint: "run the demo as another user, or give --postgres-url".to_owned(),
            }
            .into()
        })
    }

    fn parse(users: &str, name: &str) -> Option<Self> {
        users.lines().find_map(|line| {
            let mut fields = line.split(':');
            if fields.next() != Some(name) {
                return None;
            }
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(Self { name: name.to_owned(), uid, gid })
        })
    }

    /// Gives a file or folder to the account.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn own(account: Option<&Self>, path: &Path) -> std::io::Result<()> {
        match account {
            Some(account) => std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid)),
            None => Ok(()),
        }
    }

    /// A command that runs as the account, or as ourselves. Ctrl-C does not reach it: who starts it ends it.
    pub(super) fn command(account: Option<&Self>, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        // what the person has set for psql is not for this server
        let ours = |name: &OsString| name.to_string_lossy().starts_with("PG");
        for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_list_of_users() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nnobody:x:65534:65533:nobody:/:/usr/sbin/nologin\n";
        let nobody = Account { name: "nobody".to_owned(), uid: 65534, gid: 65533 };
        assert_eq!(Account::parse(users, "nobody"), Some(nobody));
        assert_eq!(Account::parse(users, "postgres"), None);
        assert_eq!(Account::parse(users, "broken"), None);
    }
}
