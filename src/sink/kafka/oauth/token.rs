//! What an endpoint or a command gives: a token, and until when it holds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::config::secret::Secret;

/// How long a token is used whose end is not told.
const UNKNOWN_LIFE: Duration = Duration::from_secs(300);

/// A token as it is handed to librdkafka.
#[derive(Clone, Debug)]
pub(super) struct Token {
    /// The token itself.
    pub(super) value: Secret,
    /// Whom it stands for, if it tells; for messages only.
    pub(super) principal: String,
    /// When it ends, in milliseconds since 1970; far away if that is not told.
    pub(super) ends_ms: i64,
    /// How long it held when it came.
    pub(super) life: Duration,
}

/// The answer of an endpoint (RFC 6749, 5.1); commands of the clouds print the same.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<f64>,
}

/// The claims of a JWT that matter here. Whether it is genuine only the broker can tell.
#[derive(Default, Deserialize)]
struct Claims {
    #[serde(default)]
    exp: Option<f64>,
    #[serde(default)]
    sub: Option<String>,
}

impl Token {
    /// Reads the JSON of RFC 6749, or the token alone.
    ///
    /// # Errors
    /// What is wrong with it, to stand behind "gave".
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.starts_with('{') {
            return Self::new(text, None);
        }
        // serde's words may quote what is in it
        let answer: Answer = serde_json::from_str(text).map_err(|_| "JSON without a usable access_token".to_owned())?;
        Self::new(&answer.access_token, answer.expires_in)
    }

    fn new(value: &str, expires_in: Option<f64>) -> Result<Self, String> {
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("what is no token: it is empty, or has other characters than visible ASCII in it".to_owned());
        }
        let claims = claims(value);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // the one counts from now, so that a clock that is wrong here does no harm
        let left = expires_in.or_else(|| claims.exp.map(|end| end - now.as_secs_f64()));
        let life = match left {
            None => UNKNOWN_LIFE,
            Some(left) if left >= 1.0 => Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX),
            Some(left) => {
                let ago = -left.max(-1e9);
                return Err(format!("a token that ended {ago:.0} s ago; is this machine's clock right?"));
            }
        };
        let told = if left.is_some() { life } else { Duration::from_secs(10 * 365 * 86_400) };
        let ends_ms = now.saturating_add(told).as_millis().min(u128::from(u64::MAX >> 12));
        Ok(Self {
            value: Secret::new(value),
            principal: claims
                .sub
                .filter(|sub| !sub.is_empty() && !sub.contains('\0'))
                .unwrap_or_else(|| "token".into()),
            ends_ms: i64::try_from(ends_ms).unwrap_or(i64::MAX),
            life,
        })
    }
}

/// The claims of a JWT; none if it is none.
fn claims(token: &str) -> Claims {
    let mut parts = token.split('.');
    let (Some(_header), Some(claims), Some(_signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Claims::default();
    };
    let json = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).unwrap_or_default();
    serde_json::from_slice(&json).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jwt(claims: &str) -> String {
        format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims))
    }

    fn seconds_from_now(seconds: i64) -> i64 {
        i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap() + seconds
    }

    #[test]
    fn a_bare_jwt_tells_its_end_and_whom_it_stands_for() {
        let text = jwt(&format!(r#"{{"exp":{},"sub":"relay"}}"#, seconds_from_now(100)));
        let token = Token::parse(&format!("{text}\n")).unwrap();
        assert_eq!((token.value.expose(), token.principal.as_str()), (text.as_str(), "relay"));
        assert!((98..=100).contains(&token.life.as_secs()), "{token:?}");
        assert!((token.ends_ms / 1000 - seconds_from_now(100)).abs() <= 1, "{token:?}");
    }

    #[test]
    fn the_life_that_the_endpoint_tells_goes_before_the_tokens() {
        let value = jwt(&format!(r#"{{"exp":{}}}"#, seconds_from_now(-100)));
        let token = Token::parse(&format!(r#"{{"access_token":"{value}","expires_in":60,"x":1}}"#)).unwrap();
        assert_eq!(token.life, Duration::from_secs(60));
        assert_eq!(token.principal, "token");
    }

    #[test]
    fn an_opaque_token_is_used_for_a_while() {
        let token = Token::parse("opaque-1").unwrap();
        assert_eq!(token.life, UNKNOWN_LIFE);
        assert!(token.ends_ms / 1000 > seconds_from_now(86_400 * 365));
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        for text in
            ["", "geheim geheim", "{\"error\":\"geheim\"}", "{\"access_token\":1, \"x\": \"geheim\"}", "{geheim"]
        {
            let error = Token::parse(text).unwrap_err();
            assert!(!error.contains("geheim"), "{error}");
        }
        let old = jwt(&format!(r#"{{"exp":{}}}"#, seconds_from_now(-100)));
        assert!(Token::parse(&old).unwrap_err().contains(" s ago"));
    }
}
