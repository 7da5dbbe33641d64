//! When a job ends, or may not go on, so do its calls.

use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::Stop;
use serde_json::json;

use crate::kit::{get, grants, run, sandbox, start};
use crate::web::{Reply, Web};

const LOOPBACK: &[&str] = &["127.0.0.0/8"];

fn stalling() -> Web {
    Web::start(|seen| match seen.target.as_str() {
        "/body" => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
        "/quick" => Reply::text("ok"),
        _ => Reply::Stall(Vec::new()),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_call_and_closes_its_connection() {
    let server = stalling();
    let grants = grants(&[&server.url("")], LOOPBACK);
    for (n, path) in ["/", "/body"].into_iter().enumerate() {
        let running = start(&grants, &json!([{"url": server.url(path)}]), 600_000);
        server.wait_for_requests(n + 1);
        running.stop.stop(Stop::Release);
        assert!(matches!(running.end().await.end, RunEnd::Released(_)));
        server.wait_until_left();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_s_time_out_ends_its_calls() {
    let server = stalling();
    let grants = grants(&[&server.url("")], LOOPBACK);
    let ran = start(&grants, &json!([{"url": server.url("/body"), "must": true}]), 300).end().await;
    // The call may see the end of the job's time before the job does.
    let reasons = [Reason::Timeout, Reason::Error];
    assert!(matches!(&ran.end, RunEnd::Failed { reason, .. } if reasons.contains(reason)), "{:?}", ran.end);
    server.wait_until_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_out_of_touch_stops_calls_and_lets_them_be_made_again() {
    let server = stalling();
    let grants = grants(&[&server.url("")], LOOPBACK);
    for (n, path) in ["/", "/body"].into_iter().enumerate() {
        let running = start(&grants, &json!([{"url": server.url(path)}]), 600_000);
        server.wait_for_requests(n + 1);
        sandbox().allow_calls(false);
        let ran = running.end().await;
        assert_eq!(ran.error(), "Connection");
        assert!(ran.log.contains("out of touch"), "{}", ran.log);
        server.wait_until_left();
        assert_eq!(get(&grants, &server.url("/quick")).await.error(), "Connection", "nor are new ones made");
        sandbox().allow_calls(true);
    }
    assert_eq!(get(&grants, &server.url("/quick")).await.got()[0]["body"], "ok");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_open_between_requests() {
    let server = Web::start(|_| Reply::text("ok"));
    let grants = grants(&[&server.url("")], LOOPBACK);
    let asks = json!([{"url": server.url("/")}, {"url": server.url("/")}, {"url": server.url("/")}]);
    assert_eq!(run(&grants, asks).await.got()[2]["status"], 200);
    assert_eq!(server.connections(), 3, "each request has its own");
    server.wait_until_left();
}
