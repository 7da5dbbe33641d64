//! What a guest that means harm can make the host keep or do has a bound.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use wasmtime_wasi_http::Error;

use super::client::{Client, LOOKUPS_OF_HANDLER_MAX};
use super::resolve::Resolver;
use super::target::Target;
use super::tests::{Answer, ask_at, calls, calls_of, head, listener, nothing};
use crate::grants::{Origin, Scheme};

/// Answers the next connection like this.
async fn answer(listener: &TcpListener, response: &str) {
    let (mut stream, _) = listener.accept().await.unwrap();
    head(&mut stream).await;
    stream.write_all(response.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn an_unread_response_keeps_its_connection_s_turn_and_an_empty_one_does_not() {
    let (listener, port) = listener().await;
    let calls = calls(port, |grant| grant.connections_max = 1);
    let url = format!("http://127.0.0.1:{port}/");
    let get = || ask_at(&calls, "GET", &url, nothing());
    // Kept, and nothing of it is to be read.
    let empty = get();
    answer(&listener, "HTTP/1.1 204 No Content\r\n\r\n").await;
    let _empty = empty.await.unwrap().unwrap();
    // All of it is there, and nobody has read it.
    let first = get();
    answer(&listener, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab").await;
    let first = first.await.unwrap().unwrap();
    let second = get();
    let waiting = tokio::time::timeout(Duration::from_millis(50), listener.accept());
    assert!(waiting.await.is_err(), "a second connection beside an unread response");
    let mut body = first.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
    assert!(body.frame().await.is_none());
    answer(&listener, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc").await;
    let second = second.await.unwrap().unwrap();
    // Dropped unread.
    let third = get();
    drop(second);
    answer(&listener, "HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(third.await.unwrap().unwrap().status(), 204);
    drop(body);
}

#[tokio::test]
async fn heads_count_as_received() {
    let (listener, port) = listener().await;
    // A name of one byte, a value of three and 64 more are 68.
    let calls = calls(port, |grant| grant.received_bytes_max = 2 * 68);
    let url = format!("http://127.0.0.1:{port}/");
    let mut ends = Vec::new();
    for _ in 0..3 {
        let asked = ask_at(&calls, "GET", &url, nothing());
        answer(&listener, "HTTP/1.1 204 No Content\r\nx: abc\r\n\r\n").await;
        ends.push(asked.await.unwrap().map(|response| response.status().as_u16()));
    }
    assert!(
        matches!(ends[..], [Ok(204), Ok(204), Err(Error::HttpResponseBodySize(Some(136)))]),
        "the third is one too many: {ends:?}"
    );
}

#[tokio::test]
async fn trailers_count_as_received() {
    let (listener, port) = listener().await;
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n";
    let head_bytes = ("transfer-encodingchunked".len() + 64 + "trailerx".len() + 64) as u64;
    for (spare, fits) in [(68, true), (67, false)] {
        let calls = calls(port, |grant| grant.received_bytes_max = head_bytes + spare);
        let asked = ask_at(&calls, "GET", &format!("http://127.0.0.1:{port}/"), nothing());
        answer(&listener, &format!("{head}0\r\nx: abc\r\n\r\n")).await;
        let body = asked.await.unwrap().unwrap().into_body().collect().await;
        match body {
            Ok(body) => assert!(fits && body.trailers().is_some_and(|fields| fields["x"] == "abc")),
            Err(error) => assert!(!fits && matches!(error, Error::HttpResponseBodySize(_)), "{error:?}"),
        }
    }
}

/// Resolves everything to the loopback address; `stuck.test` not before the gate opens.
#[derive(Debug)]
struct Gate {
    open: Semaphore,
    begun: AtomicUsize,
}

#[async_trait]
impl Resolver for Gate {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        if host == "stuck.test" {
            self.begun.fetch_add(1, SeqCst);
            let _open = self.open.acquire().await.map_err(io::Error::other)?;
        }
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

#[tokio::test]
async fn a_handler_whose_names_never_resolve_holds_up_no_other() {
    let (listener, port) = listener().await;
    let gate = Arc::new(Gate { open: Semaphore::new(0), begun: AtomicUsize::new(0) });
    let resolver: Arc<dyn Resolver> = gate.clone();
    let client = Arc::new(Client::new(None, Some(resolver)));
    let origin = |host: &str| Origin { scheme: Scheme::Http, host: host.to_owned(), port };
    let job = |handler: &str, timeout_ms: u64| {
        calls_of(handler, &client, port, |grant| {
            grant.allow = vec![origin("stuck.test"), origin("fine.test")];
            grant.timeout_ms = timeout_ms;
        })
    };
    let (stuck, fine) = (format!("http://stuck.test:{port}/"), format!("http://fine.test:{port}/"));
    // Attempt after attempt, all of them given up: their look-ups are not.
    for _ in 0..3 {
        let job = job("bad", 10);
        let asked: Vec<_> = (0..6).map(|_| ask_at(&job, "GET", &stuck, nothing())).collect();
        for asked in asked {
            let answer: Answer = asked.await.unwrap();
            assert!(matches!(answer, Err(Error::ConnectionTimeout)), "{answer:?}");
        }
    }
    assert_eq!(gate.begun.load(SeqCst), LOOKUPS_OF_HANDLER_MAX, "those without a waiter count");
    let answered = ask_at(&job("good", 10_000), "GET", &fine, nothing());
    answer(&listener, "HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(answered.await.unwrap().unwrap().status(), 204);
    // What has ended no longer counts.
    gate.open.add_permits(1);
    let answered = ask_at(&job("bad", 10_000), "GET", &fine, nothing());
    answer(&listener, "HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(answered.await.unwrap().unwrap().status(), 204);
}

#[tokio::test]
async fn methods_that_no_handler_gets_reach_nobody() {
    let (listener, port) = listener().await;
    let calls = calls(port, |_| {});
    for method in ["TRACE", "CONNECT"] {
        let answer = ask_at(&calls, method, &format!("http://127.0.0.1:{port}/"), nothing()).await.unwrap();
        assert!(matches!(answer, Err(Error::HttpRequestMethodInvalid)), "{method}: {answer:?}");
    }
    drop(listener);
}

#[test]
fn a_denial_names_ten_of_what_is_allowed() {
    let named = |allowed: u16| {
        let calls = calls(1, |grant| {
            let origin = |n| Origin { scheme: Scheme::Http, host: format!("h{n}.test"), port: 80 };
            grant.allow = (1..=allowed).map(origin).collect();
        });
        let target = Target::of(&"https://other.test/".parse().unwrap()).unwrap();
        calls.not_allowed(&target).why
    };
    assert!(
        named(10).ends_with(r#""http://h9.test", "http://h10.test", "https://other.test"]"#),
        "{}",
        named(10)
    );
    assert!(named(11).ends_with(r#""http://h10.test", ..., "https://other.test"]"#), "{}", named(11));
}

#[test]
fn beyond_so_many_requests_under_way_there_are_no_more_and_few_lines() {
    let calls = calls(1, |_| {});
    assert!(calls.refused_unseen(&Method::GET, 255).is_none());
    for _ in 0..20 {
        let refused = calls.refused_unseen(&Method::GET, 256);
        assert!(matches!(refused, Some(Error::ConnectionLimitReached)), "{refused:?}");
    }
    assert_eq!(calls.log().text().matches("256 requests under way").count(), 16);
    assert!(calls.refused_unseen(&Method::GET, 255).is_none(), "there is room again");
}
