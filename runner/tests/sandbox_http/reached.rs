//! What is allowed comes through, as it was meant.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hourhand::grants::{Injection, SecretGrant, SecretText};
use hourhand::sandbox::{HttpAnswers, Offer};
use parking_lot::Mutex;
use serde_json::json;

use crate::kit::{get, grants, name, origin, run, start_with};
use crate::web::{Reply, Web};

const LOOPBACK: &[&str] = &["127.0.0.0/8"];

#[tokio::test]
async fn a_request_arrives_as_it_was_meant_and_its_response_comes_back() {
    let server = Web::start(|seen| {
        let headers = vec![("X-Answer", "yes".to_owned()), ("Keep-Alive", "timeout=5".to_owned())];
        Reply::Plain(201, headers, seen.body.iter().rev().copied().collect())
    });
    name("api.test", &[&["127.0.0.1"]]);
    let at = format!("http://api.test:{}", server.port());
    let asks = json!([{
        "method": "PATCH",
        "url": format!("{at}/a b/http://other.test/?q=\u{fc}#part"),
        "headers": [["X-One", "1"], ["Content-Type", "text/plain"]],
        "body": "abc",
    }]);
    let ran = run(&grants(&[&at], LOOPBACK), asks).await;
    let got = ran.got();
    assert_eq!((&got[0]["status"], &got[0]["body"]), (&json!(201), &json!("cba")));
    let headers = got[0]["headers"].as_array().unwrap();
    assert!(headers.contains(&json!(["x-answer", "yes"])));
    assert!(
        !headers.iter().any(|pair| pair[0] == "keep-alive"),
        "of the connection, and not the guest's: {headers:?}"
    );
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.body.as_slice()), ("PATCH", &b"abc"[..]));
    assert_eq!(seen.target, "/a%20b/http://other.test/?q=%C3%BC", "in origin form");
    assert_eq!(seen.header("host"), Some(format!("api.test:{}", server.port()).as_str()));
    assert_eq!(seen.header("x-one"), Some("1"));
    assert_eq!(seen.header("content-length"), Some("3"));
    assert_eq!(seen.header("connection"), Some("close"));
    assert_eq!(seen.headers.iter().filter(|(key, _)| key == "host").count(), 1);
    assert_eq!(ran.log, "");
}

#[tokio::test]
async fn methods_bodies_and_sizes() {
    let server = Web::start(|seen| {
        match seen.method.as_str() {
        "HEAD" => Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec()),
        "DELETE" => Reply::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        "PUT" => Reply::text(seen.body.len().to_string()),
        "POST" => Reply::Raw(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n".to_vec(),
        ),
        _ => Reply::Plain(200, Vec::new(), vec![b'y'; 5_000_000]),
    }
    });
    let at = server.url("/");
    let asks = json!([
        {"method": "HEAD", "url": at}, {"method": "DELETE", "url": at}, {"method": "PUT", "url": at, "body_bytes": 2_000_000},
        {"method": "POST", "url": at, "body": ""}, {"url": at}, {"method": "PURGE", "url": at},
    ]);
    let got = run(&grants(&[at.trim_end_matches('/')], LOOPBACK), asks).await.got();
    assert_eq!((&got[0]["status"], &got[0]["bytes"]), (&json!(200), &json!(0)));
    assert_eq!(got[1]["status"], 204);
    assert_eq!(got[2]["body"], "2000000");
    assert_eq!(got[3]["body"], "abc");
    assert_eq!(got[4]["bytes"], 5_000_000);
    assert_eq!(server.seen()[5].method, "PURGE");
}

#[tokio::test]
async fn redirects_are_the_guest_s_to_follow_and_credentials_stay_with_their_target() {
    let last = Web::start(|seen| Reply::text(seen.header("authorization").unwrap_or("none")));
    let to = last.url("/last");
    let first = Web::start(move |seen| match seen.target.as_str() {
        "/loop" => Reply::redirect("/loop"),
        "/see" => Reply::Plain(303, vec![("Location", "/auth".to_owned())], Vec::new()),
        "/auth" => Reply::text(format!("{} {}", seen.method, seen.header("authorization").unwrap_or("none"))),
        _ => Reply::redirect(to.clone()),
    });
    let (a, b) = (first.url(""), last.url(""));
    let ask = |path: &str, redirects: u32| {
        json!({"method": "POST", "url": format!("{a}{path}"), "redirects": redirects, "body": "x",
               "headers": [["Authorization", "Bearer mine"]]})
    };
    let asks = json!([ask("/", 0), ask("/", 1), ask("/see", 1), ask("/loop", 4)]);
    let got = run(&grants(&[&a, &b], LOOPBACK), asks).await.got();
    assert_eq!(got[0]["status"], 307, "not unless it asks");
    assert_eq!(got[1]["body"], "none", "not to somebody else");
    assert_eq!(last.seen()[0].body, b"x", "method and body stay");
    assert_eq!(got[2]["body"], "GET Bearer mine", "to the same target");
    assert_eq!(got[3]["error"], "Response");
    assert_eq!(first.seen().iter().filter(|seen| seen.target == "/loop").count(), 5);
}

#[tokio::test]
async fn a_secret_goes_into_its_header_for_its_target_and_nowhere_else() {
    let other = Web::start(|_| Reply::text("other"));
    let to = other.url("/");
    let server = Web::start(move |seen| match seen.target.as_str() {
        "/away" => Reply::redirect(to.clone()),
        _ => Reply::text("ok"),
    });
    let (a, b) = (server.url(""), other.url(""));
    let mut grants = grants(&[&a, &b], LOOPBACK);
    grants.secrets = vec![SecretGrant {
        name: "api_key".to_owned(),
        value: SecretText("s3cret".to_owned()),
        readable: false,
        injections: vec![Injection {
            to: origin(&a),
            header: "authorization".to_owned(),
            format: "Bearer {}".to_owned(),
        }],
    }];
    let mine = json!([["Authorization", "mine"], ["AUTHORIZATION", "too"]]);
    let asks = json!([
        {"url": format!("{a}/"), "headers": mine}, {"url": format!("{b}/"), "headers": mine},
        {"url": format!("{a}/away"), "redirects": 1},
    ]);
    let ran = run(&grants, asks).await;
    let seen = server.seen();
    let said: Vec<&str> = seen[0]
        .headers
        .iter()
        .filter(|(key, _)| key == "authorization")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(said, ["Bearer s3cret"], "in place of what the guest has put there");
    assert_eq!(seen[1].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(other.seen()[0].header("authorization"), Some("mine"));
    assert_eq!(other.seen()[1].header("authorization"), None, "not along with a redirect");
    assert!(!ran.got().to_string().contains("s3cret") && !ran.log.contains("s3cret"));

    // One that does not fit into a header is named, and not shown.
    grants.secrets[0].value = SecretText("two\nlines".to_owned());
    let ran = get(&grants, &a).await;
    assert_eq!(ran.error(), "Invalid");
    assert!(ran.log.contains("the secret api_key") && !ran.log.contains("lines"), "{}", ran.log);
}

#[test]
fn a_module_that_sends_no_requests_imports_nothing_for_it() {
    const HTTP: &[u8] = b"wasi:http";
    let names = |example: &str| {
        let module = std::fs::read(crate::guests::guest(example)).unwrap();
        module.windows(HTTP.len()).any(|window| window == HTTP)
    };
    assert!(names("fetch") && !names("echo"));
}

/// Answers in place of the network, and keeps what it was asked.
#[derive(Default)]
struct Fixture(Mutex<Vec<String>>);

#[async_trait]
impl HttpAnswers for Fixture {
    async fn answer(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, String> {
        let text = String::from_utf8_lossy(request.body()).into_owned();
        self.0.lock().push(format!("{} {} {text}", request.method(), request.uri()));
        match request.uri().path() {
            "/none" => Err("the fixture has no answer for /none".to_owned()),
            _ => Ok(http::Response::builder()
                .status(203)
                .header("x-from", "fixture")
                .body("hi".into())
                .unwrap()),
        }
    }
}

#[tokio::test]
async fn answers_in_place_of_the_network_are_for_what_is_allowed() {
    let fixture = Arc::new(Fixture::default());
    let answers: Arc<dyn HttpAnswers> = fixture.clone();
    let grants = Arc::new(grants(&["https://api.test"], &[]));
    let offer = Offer { grants, http_answers: Some(answers), ..Offer::default() };
    let asks = json!([
        {"method": "PUT", "url": "https://API.test/x?y", "body": "abc"}, {"url": "https://api.test/none"},
        {"url": "https://other.test/"},
    ]);
    let ran = start_with(offer, &asks, 20_000).end().await;
    let got = ran.got();
    assert_eq!((&got[0]["status"], &got[0]["body"]), (&json!(203), &json!("hi")));
    assert_eq!((&got[1]["error"], &got[2]["error"]), (&json!("Connection"), &json!("Denied")));
    assert!(ran.log.contains("the fixture has no answer for /none"), "{}", ran.log);
    assert_eq!(*fixture.0.lock(), ["PUT https://api.test/x?y abc", "GET https://api.test/none "]);
}
