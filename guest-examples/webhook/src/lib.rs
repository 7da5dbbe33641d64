//! `webhook`: tells somebody else's server of an event, signed, until it has taken it.
//!
//! ```json
//! {"url": "https://shop.example.com/hooks", "event": {"order": 17, "state": "paid"}}
//! ```
//!
//! The receiver can tell who has sent it: `Webhook-Signature` is the HMAC-SHA256, in hex digits, of the timestamp in
//! `Webhook-Timestamp`, a dot, and the body's bytes, under the secret `webhook_key` that both know. And it can tell a repetition from a
//! new event: `Idempotency-Key` is the job's id, the same in each attempt.

use std::time::SystemTime;

use hmac::{Hmac, Mac};
use hourhand_sdk::prelude::*;
use serde_json::value::RawValue;
use sha2::Sha256;

/// Where an event is to go. Its JSON is sent as it came, byte for byte.
#[derive(Deserialize)]
struct Delivery {
    url: String,
    event: Box<RawValue>,
}

/// What became of it.
#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Delivered {
    status: u16,
    attempt: u32,
}

/// Receivers that are down for a day get their events all the same: 12 attempts are about 20 hours.
#[handler(timeout = "30s", max_attempts = 12, backoff = "exp(15s, 4h)")]
fn webhook(ctx: &Context, delivery: Delivery) -> Result<Delivered, Failure> {
    let key = ctx.secret("webhook_key")?;
    let body = delivery.event.get();
    let timestamp = ctx.now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs().to_string();
    let response = ctx
        .http()
        .post(&delivery.url)
        .header("content-type", "application/json")
        .header("idempotency-key", ctx.id())
        .header("webhook-timestamp", &timestamp)
        .header("webhook-signature", signature(&key, &timestamp, body)?)
        .body(body)
        .timeout(seconds(10))
        .follow_redirects(3)
        .send()?;
    match response.status() {
        // The receiver says that it wants no more.
        410 => Err(Failure::permanent("the receiver is gone (410)")),
        429 | 503 if response.retry_after().is_some() => {
            let wait = response.retry_after().unwrap_or_default();
            Err(Failure::retry(format_args!("the receiver asks to wait ({})", response.status())).after(wait))
        }
        200..=299 => Ok(Delivered { status: response.status(), attempt: ctx.attempt() }),
        _ => {
            response.error_for_status()?;
            Err(Failure::retry("the receiver has answered with a redirect that leads nowhere"))
        }
    }
}

/// What proves to the receiver that the body is ours, and when it was sent.
fn signature(key: &str, timestamp: &str, body: &str) -> Result<String, Failure> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes())?;
    for part in [timestamp, ".", body] {
        mac.update(part.as_bytes());
    }
    Ok(mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"url": "https://shop.example.com/hooks", "event": {"order": 17,  "paid": true}}"#;

    fn host() -> TestHost {
        let now = SystemTime::UNIX_EPOCH + seconds(1_800_000_000);
        TestHost::new().id("job-1").attempt(2).now(now).secret("webhook_key", "hush")
    }

    #[test]
    fn the_event_goes_out_as_it_came_with_a_signature_and_the_job_s_id() {
        let run = host().http(|_| Answer::new(202)).run::<webhook>(EVENT);
        assert_eq!(run.result::<Delivered>(), Delivered { status: 202, attempt: 2 });
        let [request] = &run.requests[..] else { panic!("one request: {:?}", run.requests) };
        assert_eq!(
            (request.method.as_str(), request.url.as_str()),
            ("POST", "https://shop.example.com/hooks")
        );
        assert_eq!(request.body, br#"{"order": 17,  "paid": true}"#);
        assert_eq!(request.header("Idempotency-Key"), Some("job-1"));
        assert_eq!(request.header("Webhook-Timestamp"), Some("1800000000"));
        // As `printf '1800000000.{"order": 17,  "paid": true}' | openssl dgst -sha256 -hmac hush` says.
        assert_eq!(
            request.header("Webhook-Signature"),
            Some("870625e32a153a19089408e16297714d2d367077ff182f446b67e5b0df7faefa")
        );
    }

    #[test]
    fn what_the_receiver_says_decides_what_becomes_of_the_job() {
        let ends = |status: u16, retry_after: Option<&'static str>| {
            let host = host().http(move |_| match retry_after {
                Some(value) => Answer::new(status).header("Retry-After", value).body("busy"),
                None => Answer::new(status).body("busy"),
            });
            host.run::<webhook>(EVENT).outcome
        };
        assert!(matches!(ends(410, None), Outcome::Failed(Failure::Permanent(_))));
        assert!(matches!(
            ends(429, Some("90")),
            Outcome::Failed(Failure::Retry { after: Some(wait), .. }) if wait == seconds(90)
        ));
        assert!(matches!(
            ends(503, Some("Fri, 15 Jan 2027 08:01:00 GMT")),
            Outcome::Failed(Failure::Retry { after: Some(wait), .. }) if wait == seconds(60)
        ));
        for status in [400, 404, 500, 503] {
            let Outcome::Failed(Failure::Retry { message, after: None }) = ends(status, None) else {
                panic!("{status} is no plain retry")
            };
            assert!(message.contains(&status.to_string()) && message.contains("busy"), "{message}");
        }
        assert!(matches!(ends(304, None), Outcome::Failed(Failure::Retry { .. })));
    }

    #[test]
    fn a_redirect_keeps_the_event_and_without_the_key_nothing_is_sent() {
        let moved = host().http(|request| match request.url.as_str() {
            "https://new.example.com/in" => Answer::new(200),
            _ => Answer::new(308).header("Location", "https://new.example.com/in"),
        });
        let run = moved.run::<webhook>(EVENT);
        assert_eq!(run.requests.len(), 2);
        assert_eq!(
            (&run.requests[1].method, &run.requests[1].body),
            (&"POST".to_owned(), &run.requests[0].body)
        );
        let run = TestHost::new().http(|_| Answer::new(200)).run::<webhook>(EVENT);
        assert!(matches!(run.outcome, Outcome::Failed(_)) && run.requests.is_empty());
    }
}
