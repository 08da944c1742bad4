//! Login by a token, SASL OAUTHBEARER: gets it, hands it to the clients, and renews it before it ends.
//!
//! ```text
//!  endpoint or command ──▶ Login ──install──▶ producer, the client that asks, the consumer of positions
//!                            ▲ keep_fresh: after three quarters of its life, then again and again
//! ```
//!
//! While no new one is to be had, the old one stays with the clients: connections that stand go on, and a broker that
//! no longer takes it says so, which ends the session. The next session begins with a new token or says why it has none.

mod endpoint;
mod install;
mod token;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rdkafka::client::{Client, ClientContext};
use rdkafka::producer::{Producer, ThreadedProducer};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::admin::Admin;
use super::context::Context;
use super::failure::restart;
use crate::config::OauthConfig;
use crate::secret_command;
use crate::sink::SinkError;
use crate::state::Reason;
use token::Token;

/// Pauses between tries to renew a token, from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Longest time after which a token is renewed, however long it holds.
const LONGEST_USE: Duration = Duration::from_secs(86_400);

/// A token in use.
struct Present {
    token: Token,
    came: Instant,
}

/// Where tokens come from, and the one at hand.
pub(super) struct Login {
    config: OauthConfig,
    extensions: Vec<(String, String)>,
    present: Mutex<Option<Present>>,
}

/// The clients of a session, which may end at any time.
pub(super) struct Clients {
    /// The one that sends.
    pub(super) producer: Weak<ThreadedProducer<Context>>,
    /// The one that asks.
    pub(super) admin: Weak<Admin>,
}

impl Login {
    /// The login that is configured, if it is one by token.
    pub(super) fn new(config: &OauthConfig) -> Option<Arc<Self>> {
        let extensions = config.extensions.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        config.is_set().then(|| Arc::new(Self { config: config.clone(), extensions, present: Mutex::default() }))
    }

    fn present(&self) -> MutexGuard<'_, Option<Present>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that there is a token with half of its life before it.
    ///
    /// # Errors
    /// [`SinkError::Restart`]: the next try may get one.
    pub(super) async fn prepare(&self) -> Result<(), SinkError> {
        let is_good = self.present().as_ref().is_some_and(|present| present.came.elapsed() < present.token.life / 2);
        if is_good {
            return Ok(());
        }
        self.renew().await.map_err(|message| restart(Reason::AuthenticationFailed, message, false))
    }

    /// Forgets the token: a broker did not take it.
    pub(super) fn forget(&self) {
        *self.present() = None;
    }

    /// Gives a client the present token.
    ///
    /// # Errors
    /// librdkafka does not take it.
    pub(super) fn install<C: ClientContext>(&self, client: &Client<C>) -> Result<(), SinkError> {
        let present = self.present();
        let Some(Present { token, .. }) = present.as_ref() else { return Ok(()) };
        install::install(client, token, &self.extensions)
            .map_err(|words| restart(Reason::AuthenticationFailed, format!("the token cannot be used: {words}"), false))
    }

    async fn renew(&self) -> Result<(), String> {
        let token = match (&self.config.token_endpoint, self.config.token_command.split_first()) {
            (Some(url), _) => endpoint::ask(url, &self.config).await?,
            (None, Some((program, arguments))) => {
                let printed = secret_command::run(program, arguments).await;
                let printed = printed.map_err(|error| format!("the token command \"{program}\" {error}"))?;
                Token::parse(printed.expose()).map_err(|why| format!("the token command \"{program}\" gave {why}"))?
            }
            (None, None) => return Err("there is neither a token endpoint nor a token command".to_owned()),
        };
        debug!(principal = token.principal, holds = ?token.life, "got a token for the brokers");
        *self.present() = Some(Present { token, came: Instant::now() });
        Ok(())
    }

    /// When the present token should be renewed.
    fn due(&self) -> Instant {
        let present = self.present();
        let due = present.as_ref().map(|present| present.came + (present.token.life.min(LONGEST_USE) / 4) * 3);
        due.unwrap_or_else(Instant::now)
    }

    /// Renews the token ahead of its end, for as long as the clients are there.
    pub(super) async fn keep_fresh(self: Arc<Self>, clients: Clients) {
        let mut pause = PAUSES.0;
        loop {
            tokio::time::sleep_until(self.due()).await;
            match self.renew().await {
                Ok(()) => {
                    pause = PAUSES.0;
                    if let Err(error) = self.hand_over(&clients) {
                        warn!(%error, "could not use the new token");
                    }
                }
                Err(error) => {
                    let left = self.left();
                    warn!(error, present_one_holds = ?left, "could not get a new token for the brokers");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    fn hand_over(&self, clients: &Clients) -> Result<(), SinkError> {
        if let Some(producer) = clients.producer.upgrade() {
            self.install(producer.client())?;
        }
        if let Some(admin) = clients.admin.upgrade() {
            self.install(admin.inner())?;
        }
        Ok(())
    }

    /// How long the present token holds, in whole seconds.
    fn left(&self) -> Duration {
        let present = self.present();
        let left = present.as_ref().map(|present| present.token.life.saturating_sub(present.came.elapsed()));
        Duration::from_secs(left.unwrap_or_default().as_secs())
    }
}
