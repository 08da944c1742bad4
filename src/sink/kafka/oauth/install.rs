//! Hands a token to one of librdkafka's clients.
//!
//! rdkafka offers this only from a callback, and calls that callback for producers and consumers only: its client for
//! the questions about topics has none. So this is the program's one call across the language's border.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use rdkafka::bindings::rd_kafka_oauthbearer_set_token;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaRespErr;

use super::token::Token;

/// Room for librdkafka's words.
const WORDS: usize = 512;

/// Gives the client the token that it logs in with from now on.
///
/// # Errors
/// librdkafka's words.
#[expect(unsafe_code, reason = "rdkafka does not wrap this call")]
pub(super) fn install<C: ClientContext>(
    client: &Client<C>,
    token: &Token,
    extensions: &[(String, String)],
) -> Result<(), String> {
    let text = |text: &str| CString::new(text).map_err(|_| "there is a zero byte in the token".to_owned());
    let (value, principal) = (text(token.value.expose())?, text(&token.principal)?);
    let pairs = extensions.iter().flat_map(|(name, value)| [name, value]);
    let pairs = pairs.map(|part| text(part)).collect::<Result<Vec<_>, _>>()?;
    let mut pointers: Vec<*const c_char> = pairs.iter().map(|part| part.as_ptr()).collect();
    let mut words: [c_char; WORDS] = [0; WORDS];
    // SAFETY: the client outlives the call and with it the handle. All texts end with a zero byte, outlive the call and
    // are copied by it. `pointers` and `words` have the sizes that are told.
    let code = unsafe {
        rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            value.as_ptr(),
            token.ends_ms,
            principal.as_ptr(),
            if pointers.is_empty() { ptr::null_mut() } else { pointers.as_mut_ptr() },
            pointers.len(),
            words.as_mut_ptr(),
            words.len(),
        )
    };
    if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    let bytes: Vec<u8> = words.iter().map(|byte| byte.to_ne_bytes()[0]).collect();
    let words = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Err(words.to_string_lossy().into_owned())
}
