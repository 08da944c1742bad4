//! What can be wrong with a login before the server has a word to say about it.

use super::settings::ConnectSettings;
use crate::source::SourceError;
use crate::state::Reason;

fn refuse(message: String, hint: &str) -> SourceError {
    SourceError::Configuration { reason: Reason::AuthenticationFailed, message, hint: hint.to_owned() }
}

/// A password is asked for and there is none.
pub(super) fn password_missing(settings: &ConnectSettings) -> SourceError {
    refuse(
        format!("the server {} asks for a password and none is set", settings.address),
        "set option \"source.postgres.password-file\"",
    )
}

/// The login was not bound to the TLS connection although it has to be.
pub(super) fn not_bound(settings: &ConnectSettings) -> SourceError {
    refuse(
        format!("the login at {} cannot be bound to TLS, which channel_binding=require asks for", settings.address),
        "use sslmode=verify-full or require, scram-sha-256 for this user in pg_hba.conf, and a certificate of the server \
         that is signed with RSA or ECDSA; or change channel_binding in option \"source.postgres.url\"",
    )
}

/// A login method that we do not have, or not in this order.
pub(super) fn unknown_login(settings: &ConnectSettings) -> SourceError {
    refuse(
        format!("the server {} asks for a login method that is not known", settings.address),
        "use scram-sha-256, md5 or password for this user in pg_hba.conf",
    )
}
