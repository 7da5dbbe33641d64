//! From a request to the response that counts: the first one, or where redirects lead.

use super::{HttpError, Response, Sent};
use crate::host;

/// Fields that are for one target alone.
const PRIVATE: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];
/// Fields that tell of a body.
const OF_BODY: &str = "content-";

pub(super) fn send(mut sent: Sent, redirects_max: u32) -> Result<Response, HttpError> {
    let mut redirects = 0;
    loop {
        let response = host::http(&sent)?;
        let is_redirect = matches!(response.status(), 301 | 302 | 303 | 307 | 308);
        let location = response.header("location").filter(|_| is_redirect && redirects_max > 0);
        let Some(location) = location else { return Ok(response) };
        if redirects == redirects_max {
            let text = format!("{} {}: more than {redirects_max} redirects", sent.method, sent.url.origin());
            return Err(HttpError::Response(text));
        }
        redirects += 1;
        follow(&mut sent, response.status(), location)?;
    }
}

/// Makes `sent` the request that a redirect asks for.
fn follow(sent: &mut Sent, status: u16, location: &str) -> Result<(), HttpError> {
    let to = sent.url.join(location)?;
    if !to.is_same_origin(&sent.url) {
        sent.headers.retain(|(name, _)| !PRIVATE.iter().any(|private| name.eq_ignore_ascii_case(private)));
    }
    sent.url = to;
    let becomes_get = match status {
        303 => sent.method != "HEAD",
        301 | 302 => sent.method == "POST",
        _ => false,
    };
    if becomes_get {
        sent.method = "GET".to_owned();
        sent.body = None;
        sent.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with(OF_BODY));
    }
    Ok(())
}
