//! A certificate authority of the tests, by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::must_run;

/// A certificate authority in a folder of its own.
pub(crate) struct Authority {
    dir: PathBuf,
}

/// A certificate and its key, both PEM; the key in PKCS#8.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes one in `dir`.
    #[track_caller]
    pub(crate) fn new(dir: &Path) -> Self {
        Self::with_key(dir, "ec -pkeyopt ec_paramgen_curve:prime256v1")
    }

    /// The same with openssl's words for the kind of key.
    #[track_caller]
    pub(crate) fn with_key(dir: &Path, key: &str) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let authority = Self { dir: dir.to_owned() };
        openssl(&[
            &format!("req -x509 -newkey {key} -nodes -days 30 -subj /CN=outboxd-test-CA"),
            &format!("-keyout {} -out {}", authority.file("ca.key"), authority.file("ca.pem")),
        ]);
        authority
    }

    /// The one that is in `dir` already.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// Its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Issues a certificate for the common name, with openssl's words for the other names: `IP:127.0.0.1`.
    #[track_caller]
    pub(crate) fn issue(&self, common_name: &str, alternative_name: &str) -> Certificate {
        self.issue_with(common_name, alternative_name, "-sha256")
    }

    /// The same with openssl's words about the signature.
    #[track_caller]
    pub(crate) fn issue_with(&self, common_name: &str, alternative_name: &str, signature: &str) -> Certificate {
        let file = |ending: &str| self.file(&format!("{common_name}.{ending}"));
        let extensions = file("ext");
        std::fs::write(&extensions, format!("subjectAltName={alternative_name}\n")).unwrap();
        openssl(&[
            &format!("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={common_name}"),
            &format!("-keyout {} -out {}", file("key"), file("csr")),
        ]);
        openssl(&[
            &format!("x509 -req -in {} -CA {} -CAkey {}", file("csr"), self.file("ca.pem"), self.file("ca.key")),
            &format!("-CAcreateserial -days 30 {signature} -extfile {extensions} -out {}", file("pem")),
        ]);
        Certificate { certificate: file("pem").into(), key: file("key").into() }
    }
}

/// Runs openssl with arguments that have no spaces in them.
#[track_caller]
pub(crate) fn openssl(arguments: &[&str]) {
    let words = arguments.iter().flat_map(|part| part.split_whitespace());
    must_run(Command::new("openssl").args(words));
}
