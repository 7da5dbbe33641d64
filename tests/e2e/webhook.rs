//! `webhook` against a receiver that fails, stalls, redirects to where nobody may go, and recovers: delivered once for each key, signed, and sent
//! nowhere else.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::signing::hmac_sha256;
use crate::harness::waiting::eventually;
use crate::harness::web::{Reply, Seen, Web};

const LONG: Duration = Duration::from_secs(120);
const KEY: &str = "a key that both know";
const EVENTS: usize = 12;

on_both_stores! {
    webhooks_are_delivered_once_and_never_where_they_may_not_go
}

/// A receiver that takes each event once, and makes trouble first: a different kind for each.
#[derive(Default)]
struct Receiver {
    /// How often each key came, and how often it was taken.
    asked: Mutex<BTreeMap<String, (u32, u32)>>,
    recovered: AtomicBool,
}

impl Receiver {
    fn answer(&self, seen: &Seen, elsewhere: &str) -> Reply {
        let key = seen.header("idempotency-key").expect("a key").to_owned();
        let mut asked = self.asked.lock().expect("no thread has panicked");
        let (times, taken) = asked.entry(key.clone()).or_default();
        *times += 1;
        // A receiver that cannot tell a repetition would take an event twice: this one counts.
        if *taken > 0 {
            *taken += 1;
            return Reply::status(200);
        }
        let n: usize = key.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
        if !self.recovered.load(SeqCst) || *times == 1 {
            return match n % 6 {
                0 => Reply::status(500),
                1 => Reply::Close,
                2 => Reply::Stall(Vec::new()),
                3 => Reply::Plain(503, vec![("Retry-After", "1".to_owned())], b"later".to_vec()),
                4 => Reply::redirect(elsewhere),
                _ => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
            };
        }
        *taken += 1;
        Reply::status(202)
    }
}

fn assert_signed(seen: &Seen) {
    let timestamp = seen.header("webhook-timestamp").expect("a timestamp");
    let signed = [timestamp.as_bytes(), b".", &seen.body].concat();
    let mut hex = String::new();
    for byte in hmac_sha256(KEY.as_bytes(), &signed) {
        write!(hex, "{byte:02x}").expect("a text grows");
    }
    assert_eq!(seen.header("webhook-signature"), Some(hex.as_str()));
}

fn webhooks_are_delivered_once_and_never_where_they_may_not_go(on: StoreKind) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["webhook"]);
    // What a redirect would lead to: a service of this machine that nobody is to reach.
    let inside = Web::start(|_| Reply::text("the keys to everything"));
    let receiver = Arc::new(Receiver::default());
    let (answering, elsewhere) = (Arc::clone(&receiver), inside.url("/latest/meta-data/"));
    let server = Web::start(move |seen| answering.answer(seen, &elsewhere));
    let origin = server.url("");
    here.manifest(
        "webhook",
        &format!(
            "[retry]\nattempts = 50\nbase = '300ms'\nmax = '1s'\n\n[allow]\nhttp = ['{origin}']\nsecrets = ['webhook_key']\n\n\
             [allow.http_limits]\ntimeout = '500ms'\n"
        ),
    );
    fs::write(here.dir.path().join("key"), KEY).unwrap();
    fs::write(
        here.dir.path().join("hourhand.toml"),
        format!(
            "[ceiling]\nprivate = ['127.0.0.0/8']\n\n[secrets]\nwebhook_key = {{ file = '{}' }}\n",
            here.dir.path().join("key").display()
        ),
    )
    .unwrap();
    let runner = here.runner(&[]);
    for n in 0..EVENTS {
        let payload = json!({"url": format!("{origin}/hooks"), "event": {"n": n}}).to_string();
        let args = ["enqueue", "webhook", &payload, "--id", &format!("event-{n}"), "--max-attempts", "50"];
        here.ok(&args);
    }
    // All have failed at least twice, each in its own way.
    eventually("every event is refused twice", LONG, || {
        let asked = receiver.asked.lock().expect("no thread has panicked");
        (asked.len() == EVENTS && asked.values().all(|(times, _)| *times >= 2)).then_some(())
    });
    receiver.recovered.store(true, SeqCst);
    here.counts("webhook", "all are delivered", LONG, |q| q["completed"] == EVENTS);

    let asked = receiver.asked.lock().expect("no thread has panicked").clone();
    for n in 0..EVENTS {
        let id = format!("event-{n}");
        assert_eq!(asked[&id].1, 1, "{id} was taken once");
        let job = here.job(&id);
        assert_eq!(job["attempt"], asked[&id].0, "one request an attempt: {job:#}");
        let wanted = if n % 6 == 4 { "denied" } else { "error" };
        let failed: Vec<&Value> =
            job["history"].as_array().unwrap().iter().filter(|event| event["reason"].is_string()).collect();
        assert!(!failed.is_empty() && failed.iter().all(|event| event["reason"] == wanted), "{job:#}");
        if n % 6 == 4 {
            let line = format!("webhook.toml: [allow] http = [\"{origin}\", \"{}\"]", inside.url(""));
            assert!(failed[0]["message"].as_str().unwrap().contains(&line), "{line}: {:#}", failed[0]);
        }
    }
    for seen in server.seen() {
        assert_signed(&seen);
    }
    assert_eq!(inside.connections(), 0, "nobody came where nobody may go");
    let log = runner.log();
    assert!(!log.contains(KEY) && !here.ok(&["job", "logs", "event-4"]).contains(KEY));
}
