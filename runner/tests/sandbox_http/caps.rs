//! Limits that hold against guests and servers alike.

use serde_json::json;

use crate::kit::{get, grants, name, run};
use crate::web::{Reply, Web};

const LOOPBACK: &[&str] = &["127.0.0.0/8"];

#[tokio::test]
async fn so_many_requests_and_no_more() {
    let server = Web::start(|_| Reply::text("ok"));
    let at = server.url("");
    let mut grants = grants(&[&at], LOOPBACK);
    grants.http.requests_max = 2;
    let ran = run(&grants, json!([{"url": at}, {"url": at}, {"url": at}])).await;
    let got = ran.got();
    assert_eq!((&got[1]["status"], &got[2]["error"]), (&json!(200), &json!("Limit")));
    assert!(got[2]["text"].as_str().unwrap().contains("2 requests"), "{got:#}");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn requests_beyond_the_limit_are_told_a_few_times_only() {
    let server = Web::start(|_| Reply::text("ok"));
    let at = server.url("");
    let mut grants = grants(&[&at], LOOPBACK);
    grants.http.requests_max = 2;
    let asks: Vec<_> = (0..42).map(|_| json!({"url": at})).collect();
    let ran = run(&grants, json!(asks)).await;
    let got = ran.got();
    for refused in &got.as_array().unwrap()[2..] {
        assert_eq!(refused["error"], "Limit", "{got:#}");
        assert!(refused["text"].as_str().unwrap().contains("2 requests"), "{got:#}");
    }
    assert_eq!((ran.log.matches("2 requests").count(), server.seen().len()), (16, 2), "{}", ran.log);
}

#[tokio::test]
async fn what_a_request_keeps_of_the_host_s_memory_has_a_length() {
    let server = Web::start(|_| Reply::text("ok"));
    let at = server.url("");
    let grants = grants(&[&at], LOOPBACK);
    let path = |bytes: usize| format!("{at}/{}", "p".repeat(bytes - 1));
    let longest = json!([{"url": at, "method": "A".repeat(64)}, {"url": path(16 << 10)}]);
    let ran = run(&grants, longest).await;
    let got = ran.got();
    assert_eq!((&got[0]["status"], &got[1]["status"]), (&json!(200), &json!(200)), "{got:#}");
    let seen = server.seen();
    assert_eq!((seen[0].method.len(), seen[1].target.len()), (64, 16 << 10));
    for ask in [
        json!({"url": at, "method": "A".repeat(65)}),
        json!({"url": at, "method": "A".repeat(100 << 10)}),
        json!({"url": format!("http://{}/", "a".repeat(513))}),
        json!({"url": format!("http://{}/", "a".repeat(100 << 10))}),
        json!({"url": path((16 << 10) + 1)}),
    ] {
        let ran = run(&grants, json!([ask])).await;
        assert_eq!(ran.error(), "Invalid", "{}", ran.log);
        // Refused where it is set: nothing was sent that the log would tell of.
        assert!(!ran.log.contains("http:"), "{}", ran.log);
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn so_many_bytes_sent_by_all_requests_together() {
    let server = Web::start(|_| Reply::text("ok"));
    let at = server.url("");
    let mut grants = grants(&[&at], LOOPBACK);
    grants.http.sent_bytes_max = 100_000;
    let ask = |bytes: usize| json!({"method": "POST", "url": at, "body_bytes": bytes});
    let ran = run(&grants, json!([ask(60_000), ask(60_000)])).await;
    assert_eq!((&ran.got()[0]["status"], &ran.got()[1]["error"]), (&json!(200), &json!("Limit")));
    assert!(ran.log.contains("100000 bytes"), "{}", ran.log);
    let whole: usize = server.seen().iter().map(|seen| seen.body.len()).sum();
    assert!(whole <= 100_000, "{whole}");
}

#[tokio::test]
async fn so_many_bytes_received_and_an_endless_body_ends() {
    let server = Web::start(|seen| match seen.target.as_str() {
        "/endless" => Reply::Endless(vec![b'z'; 10_000]),
        "/chunks" => Reply::Endless(b"1\r\nz\r\n".repeat(1_000)),
        _ => Reply::Plain(200, Vec::new(), vec![b'z'; 60_000]),
    });
    let at = server.url("");
    let mut grants = grants(&[&at], LOOPBACK);
    grants.http.received_bytes_max = 100_000;
    for (first, second) in [("/endless", "/"), ("/", "/"), ("/chunks", "/")] {
        let asks = json!([{"url": format!("{at}{first}")}, {"url": format!("{at}{second}")}]);
        let ran = run(&grants, asks).await;
        let got = ran.got();
        assert_eq!(got[1]["error"], "Limit", "{got:#}");
        assert!(ran.log.contains("100000 bytes"), "{}", ran.log);
    }
    server.wait_until_left();
}

#[tokio::test]
async fn a_head_that_is_too_large_or_no_http_is_no_response() {
    let server = Web::start(|seen| match seen.target.as_str() {
        "/large" => Reply::Raw(format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(200_000)).into_bytes()),
        "/many" => Reply::Raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(1_000)).into_bytes()),
        "/ssh" => Reply::Raw(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        "/two" => {
            Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd".to_vec())
        }
        "/short" => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
        "/cut" => Reply::Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab".to_vec()),
        _ => Reply::Close,
    });
    let at = server.url("");
    let grants = grants(&[&at], LOOPBACK);
    for (path, error) in [
        ("/large", "Response"),
        ("/many", "Response"),
        ("/ssh", "Response"),
        ("/two", "Response"),
        ("/short", "Response"),
        ("/cut", "Response"),
        ("/close", "Connection"),
    ] {
        let ran = get(&grants, &format!("{at}{path}")).await;
        assert_eq!(ran.error(), error, "{path}: {}", ran.log);
    }
}

#[tokio::test]
async fn servers_that_are_silent_at_any_step_are_given_up() {
    let deaf = Web::deaf();
    let server = Web::start(|seen| match seen.target.as_str() {
        "/head" => Reply::Stall(b"HTTP/1.1 200 OK\r\nX-A: ".to_vec()),
        "/body" => Reply::Stall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc".to_vec()),
        _ => Reply::Stall(Vec::new()),
    });
    let (a, b, tls) = (server.url(""), deaf.url(""), format!("https://127.0.0.1:{}", deaf.port()));
    let mut grants = grants(&[&a, &b, &tls], LOOPBACK);
    let urls =
        [format!("{a}/"), format!("{a}/head"), format!("{a}/body"), format!("{b}/"), format!("{tls}/")];
    // The guest's own time-out, and the grant's.
    for url in &urls {
        let ran = run(&grants, json!([{"url": url, "timeout_ms": 150}])).await;
        assert_eq!(ran.error(), "TimedOut", "{url}: {}", ran.log);
    }
    grants.http.timeout_ms = 150;
    for url in &urls {
        let ran =
            run(&grants, json!([{"url": url, "method": "POST", "body": "x", "timeout_ms": 600_000}])).await;
        assert_eq!(ran.error(), "TimedOut", "{url}: {}", ran.log);
        assert!(ran.log.contains("150 ms"), "{}", ran.log);
    }
    // A server that takes no more of a body.
    let asks = json!([{"url": b, "method": "POST", "body_bytes": 15_000_000}]);
    assert_eq!(run(&grants, asks).await.error(), "TimedOut");
    deaf.wait_until_left();
    server.wait_until_left();
}

#[tokio::test]
async fn no_time_at_all_is_refused_and_nobody_is_at_the_other_end() {
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let at = format!("http://127.0.0.1:{closed}");
    name("empty.test", &[&[]]);
    let grants = grants(&[&at, "http://nowhere.test", "http://empty.test"], LOOPBACK);
    let ran = run(&grants, json!([{"url": at, "timeout_ms": 0}])).await;
    assert_eq!(ran.error(), "Invalid", "{}", ran.log);
    assert_eq!(get(&grants, &at).await.error(), "Connection");
    let unknown = get(&grants, "http://nowhere.test/").await;
    assert_eq!(unknown.error(), "Connection");
    assert!(unknown.log.contains("does not resolve"), "{}", unknown.log);
    assert_eq!(get(&grants, "http://empty.test/").await.error(), "Connection");
}

#[tokio::test]
async fn a_server_that_answers_before_it_has_read_all_is_heard() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let (left, done) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = [0; 1];
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut read).unwrap();
            head.push(read[0]);
        }
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\n\r\ntoo much").unwrap();
        // Reads no more, and stays.
        let _ = done.recv();
    });
    let asks = json!([{"url": at, "method": "POST", "body_bytes": 15_000_000}]);
    let ran = run(&grants(&[&at], LOOPBACK), asks).await;
    assert_eq!(
        (&ran.got()[0]["status"], &ran.got()[0]["body"]),
        (&json!(413), &json!("too much")),
        "{}",
        ran.log
    );
    drop(left);
}
