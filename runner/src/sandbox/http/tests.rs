//! Calls of a job without a guest: what a guest with several requests at once would see.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wasmtime_wasi::p2::StreamError;
use wasmtime_wasi_http::p2::body::{HostOutgoingBody, StreamContext};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::body::Outgoing;
use super::client::Client;
use super::job::{JobCalls, Times};
use super::send::send;
use crate::clock;
use crate::grants::{Grants, HttpGrant, Origin, Scheme};
use crate::sandbox::{JobLog, Offer};

pub(super) type Answer = Result<http::Response<WasiBody>, Error>;

pub(super) async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

pub(super) fn calls(port: u16, change: impl FnOnce(&mut HttpGrant)) -> Arc<JobCalls> {
    calls_of("test", &Arc::new(Client::new(None, None)), port, change)
}

/// The calls of a job of this handler, which may send to this port.
pub(super) fn calls_of(
    handler: &str,
    client: &Arc<Client>,
    port: u16,
    change: impl FnOnce(&mut HttpGrant),
) -> Arc<JobCalls> {
    let origin = Origin { scheme: Scheme::Http, host: "127.0.0.1".to_owned(), port };
    let mut http = HttpGrant {
        allow: vec![origin],
        private: vec!["127.0.0.0/8".parse().unwrap()],
        ..HttpGrant::default()
    };
    change(&mut http);
    let offer = Offer { grants: Arc::new(Grants { http, ..Grants::default() }), ..Offer::default() };
    let deadline = clock::monotonic() + Duration::from_secs(60);
    let (client, log) = (Arc::clone(client), Arc::new(JobLog::new(64 << 10)));
    Arc::new(JobCalls::new(client, offer, format!("{handler}.toml"), deadline, log))
}

fn ask(calls: &Arc<JobCalls>, port: u16, body: WasiBody) -> oneshot::Receiver<Answer> {
    ask_at(calls, "POST", &format!("http://127.0.0.1:{port}/"), body)
}

pub(super) fn ask_at(
    calls: &Arc<JobCalls>,
    method: &str,
    url: &str,
    body: WasiBody,
) -> oneshot::Receiver<Answer> {
    let request = Request::builder().method(method).uri(url);
    let request = request.body(Outgoing::new(body, Handle::current())).unwrap();
    let (answered, answer) = oneshot::channel();
    tokio::spawn(send(Arc::clone(calls), request, None, answered));
    answer
}

pub(super) fn nothing() -> WasiBody {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

pub(super) async fn head(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.unwrap());
    }
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_until_another_is_closed() {
    let (listener, port) = listener().await;
    let calls = calls(port, |grant| grant.connections_max = 1);
    let first = ask(&calls, port, nothing());
    let (mut one, _) = listener.accept().await.unwrap();
    let second = ask(&calls, port, nothing());
    head(&mut one).await;
    one.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").await.unwrap();
    let first = first.await.unwrap().unwrap();
    // The first response is there, and its body is not: its connection is still one.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let waiting = tokio::time::timeout(Duration::from_millis(50), listener.accept());
    assert!(waiting.await.is_err(), "a second connection beside the first");
    drop(first);
    let (mut two, _) = listener.accept().await.unwrap();
    head(&mut two).await;
    two.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(second.await.unwrap().unwrap().status(), 204);
}

#[tokio::test]
async fn a_turn_that_never_comes_is_said_when_the_job_s_time_is_up() {
    let (listener, port) = listener().await;
    let deadline = clock::monotonic() + Duration::from_millis(100);
    let base = calls(port, |grant| grant.connections_max = 1);
    let (client, log) = (Arc::clone(&base.client), Arc::new(JobLog::new(1_000)));
    let calls =
        Arc::new(JobCalls::new(client, base.offer.clone(), String::new(), deadline, Arc::clone(&log)));
    let turn = calls.connection().await.ok().expect("free");
    let answer = ask(&calls, port, nothing()).await.unwrap();
    assert!(matches!(answer, Err(Error::ConnectionLimitReached)), "{answer:?}");
    assert!(log.text().contains("1 connections"), "{}", log.text());
    drop((turn, listener));
}

/// A body as a guest writes it.
fn written() -> (HostOutgoingBody, WasiBody) {
    let (host, body) = HostOutgoingBody::new(StreamContext::Request, None, 1, 1_024);
    (host, body.boxed_unsync())
}

/// Writes as a guest does, and sees whether somebody takes it.
async fn write_all(body: &mut HostOutgoingBody, pieces: usize) {
    let mut stream = body.take_output_stream().unwrap();
    for _ in 0..pieces {
        loop {
            match stream.check_write() {
                Ok(0) => stream.ready().await,
                Ok(_) => break,
                Err(StreamError::Closed) => panic!("nobody takes the body any more"),
                Err(error) => panic!("{error}"),
            }
        }
        stream.write(Bytes::from_static(&[b'x'; 1_024])).unwrap();
    }
}

#[tokio::test]
async fn a_body_that_nobody_wants_is_taken_all_the_same() {
    let (listener, port) = listener().await;
    // Denied.
    let (mut host, body) = written();
    let denied = ask(&calls(port, |grant| grant.allow.clear()), port, body).await.unwrap();
    assert!(matches!(denied, Err(Error::HttpRequestDenied)));
    write_all(&mut host, 100).await;
    // Nobody listens there.
    drop(listener);
    let (mut host, body) = written();
    let refused = ask(&calls(port, |_| {}), port, body).await.unwrap();
    assert!(matches!(refused, Err(Error::ConnectionRefused)));
    write_all(&mut host, 100).await;
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_one() {
    let (listener, port) = listener().await;
    let (mut host, body) = written();
    let answer = ask(&calls(port, |_| {}), port, body);
    let (mut stream, _) = listener.accept().await.unwrap();
    head(&mut stream).await;
    stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
    let response = answer.await.unwrap().unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "no");
    write_all(&mut host, 100).await;
}

#[tokio::test]
async fn a_guest_that_loses_interest_closes_the_connection() {
    let (listener, port) = listener().await;
    let answer = ask(&calls(port, |_| {}), port, nothing());
    let (mut stream, _) = listener.accept().await.unwrap();
    head(&mut stream).await;
    drop(answer);
    assert_eq!(stream.read(&mut [0; 10]).await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_written_in_two_ways_is_refused() {
    let (listener, port) = listener().await;
    let calls = calls(port, |_| {});
    for headers in
        [&[("content-length", "1"), ("content-length", "2")][..], &[("transfer-encoding", "chunked")]]
    {
        let mut request = Request::builder().uri(format!("http://127.0.0.1:{port}/"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Outgoing::new(nothing(), Handle::current())).unwrap();
        let (answered, answer) = oneshot::channel();
        send(Arc::clone(&calls), request, None, answered).await;
        assert!(matches!(answer.await.unwrap(), Err(Error::HttpProtocolError)));
    }
    drop(listener);
}

#[test]
fn the_smallest_time_out_counts_and_none_is_nothing() {
    let calls = calls(1, |grant| grant.timeout_ms = 5_000);
    let asked = |ms: Option<u64>| {
        let span = ms.map(Duration::from_millis);
        let options =
            RequestOptions { connect_timeout: span, first_byte_timeout: span, between_bytes_timeout: None };
        calls.times(Some(options)).map_err(|fault| fault.why)
    };
    let five = Duration::from_secs(5);
    let small = Duration::from_secs(1);
    assert_eq!(asked(Some(1_000)), Ok(Times { connect: small, first_byte: small, between_bytes: five }));
    assert_eq!(asked(Some(600_000)), Ok(Times { connect: five, first_byte: five, between_bytes: five }));
    assert_eq!(asked(None), Ok(Times { connect: five, first_byte: five, between_bytes: five }));
    assert!(asked(Some(0)).unwrap_err().contains("time-out of 0"));
}
