//! HTTP requests of handlers on the real binary: whom TLS trusts, what the environment may not change, and what an outage stops.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;
use crate::harness::web::{Reply, Web};

const SOON: Duration = Duration::from_secs(60);

on_both_stores! {
    a_runner_that_is_out_of_touch_stops_its_jobs_calls
}

/// A deployment whose `fetch` may go to these origins, on the loopback address.
fn fetching(store: &str, origins: &[&str], more: &str) -> Hourhand {
    let here = Hourhand::new(store, &["fetch"]);
    here.manifest("fetch", &format!("[retry]\nbase = '100ms'\n\n[allow]\nhttp = {}\n{more}", json!(origins)));
    fs::write(here.dir.path().join("hourhand.toml"), "[ceiling]\nprivate = ['127.0.0.0/8', '::1/128']\n")
        .unwrap();
    here
}

/// What became of one request.
#[track_caller]
fn fetched(here: &Hourhand, id: &str, asks: &Value) -> Value {
    here.ok(&["enqueue", "fetch", &asks.to_string(), "--id", id, "--wait"]);
    let job = here.job(id);
    serde_json::from_str(job["result"].as_str().unwrap()).unwrap()
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(dir)
        .output()
        .expect("openssl is installed");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and certificates of it for localhost and for another name.
fn certificates(dir: &Path) {
    openssl(dir, "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority");
    for (name, subject) in
        [("right", "DNS:localhost,IP:127.0.0.1"), ("wrong", "DNS:other.example,IP:127.0.0.2")]
    {
        fs::write(dir.join("names"), format!("subjectAltName={subject}\n")).expect("a file");
        openssl(
            dir,
            &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost"),
        );
        openssl(
            dir,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.pem -days 2 -extfile names"
            ),
        );
    }
}

#[test]
fn a_server_must_prove_its_name_to_an_authority_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let at = |name: &str| dir.path().join(name);
    let right = Web::start_tls(&at("right.pem"), &at("right.key"), |seen| {
        Reply::text(format!("{} {}", seen.target, seen.header("host").unwrap_or_default()))
    });
    let wrong = Web::start_tls(&at("wrong.pem"), &at("wrong.key"), |_| Reply::text("trusted"));
    let plain = Web::start(|_| Reply::text("not TLS at all"));
    let origins: Vec<String> = [
        format!("https://localhost:{}", right.port()),
        format!("https://127.0.0.1:{}", right.port()),
        format!("https://localhost:{}", wrong.port()),
        format!("https://127.0.0.1:{}", wrong.port()),
        format!("https://127.0.0.1:{}", plain.port()),
    ]
    .to_vec();
    let allowed: Vec<&str> = origins.iter().map(String::as_str).collect();
    let store = StoreKind::Sqlite.start();
    let here = fetching(&store.url(), &allowed, "");
    let asks: Vec<Value> = origins.iter().map(|origin| json!({"url": format!("{origin}/x")})).collect();

    let runner = here.runner_with(&[], &[("SSL_CERT_FILE", &at("ca.pem").display().to_string())]);
    let got = fetched(&here, "trusting", &json!(asks));
    assert_eq!(got[0]["body"], format!("/x localhost:{}", right.port()));
    assert_eq!(got[1]["body"], format!("/x 127.0.0.1:{}", right.port()));
    for n in [2, 3, 4] {
        assert_eq!(got[n]["error"], "Connection", "{n}: {got:#}");
    }
    assert!(got[2]["text"].as_str().unwrap().contains("certificate"), "{got:#}");
    let log = here.ok(&["job", "logs", "trusting"]);
    assert!(log.contains("TLS: ") && log.contains("not valid for name"), "{log}");
    drop(runner);

    // An authority that nobody here trusts.
    openssl(
        dir.path(),
        "req -x509 -newkey rsa:2048 -nodes -keyout x.key -out other.pem -days 2 -subj /CN=stranger",
    );
    let runner = here.runner_with(&[], &[("SSL_CERT_FILE", &at("other.pem").display().to_string())]);
    let got = fetched(&here, "wary", &json!([asks[0]]));
    assert_eq!(got[0]["error"], "Connection");
    drop(runner);
    assert!(wrong.seen().is_empty(), "no request was sent to whom nobody trusts");
}

#[test]
fn proxies_of_the_environment_are_not_asked() {
    let proxy = Web::start(|_| Reply::text("the proxy"));
    let server = Web::start(|_| Reply::text("the server"));
    let store = StoreKind::Sqlite.start();
    let here = fetching(&store.url(), &[&server.url("")], "");
    let through = proxy.url("");
    let variables: Vec<(&str, &str)> =
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
            .map(|name| (name, through.as_str()))
            .to_vec();
    let _runner = here.runner_with(&[], &variables);
    let got = fetched(&here, "direct", &json!([{"url": server.url("/")}]));
    assert_eq!(got[0]["body"], "the server");
    assert_eq!(proxy.connections(), 0);
}

fn a_runner_that_is_out_of_touch_stops_its_jobs_calls(on: StoreKind) {
    let mut store = on.start_lasting();
    let server = Web::start(|seen| match seen.target.as_str() {
        "/wait" => Reply::Stall(Vec::new()),
        _ => Reply::text("ok"),
    });
    let here = fetching(&store.url(), &[&server.url("")], "[allow.http_limits]\ntimeout = '10m'\n");
    let runner = here.runner(&["--lease", "1s"]);
    // The first request waits until it is cut off; the attempt then ends, and the next one finds a store again.
    let asks = json!([{"url": server.url("/wait"), "must": true}]).to_string();
    here.ok(&["enqueue", "fetch", &asks, "--id", "cut", "--timeout", "10m", "--max-attempts", "1"]);
    server.wait_for_requests(1);
    store.take_away();
    server.wait_until_left();
    eventually("the runner says why", SOON, || runner.log().contains("out of touch").then_some(()));
    store.bring_back();
    let job = here.job_in("cut", "dead", SOON);
    assert_eq!(job["error"]["reason"], "error", "{job:#}");
    assert!(job["error"]["message"].as_str().unwrap().contains("out of reach"), "{job:#}");
    // And once it is back, calls are made again, be it at the second attempt.
    let got = fetched(&here, "again", &json!([{"url": server.url("/"), "must": true}]));
    assert_eq!(got[0]["body"], "ok");
}
