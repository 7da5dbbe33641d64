//! Requests through `wasi:http`, in a module.

use std::time::Duration;

use super::bindings::wasi::clocks::monotonic_clock;
use super::bindings::wasi::http::outgoing_handler;
use super::bindings::wasi::http::types::{
    self, ErrorCode, Fields, FutureIncomingResponse, HeaderError, IncomingResponse, Method, OutgoingBody,
    OutgoingRequest, RequestOptions, Scheme,
};
use super::bindings::wasi::io::poll::{self, Pollable};
use super::bindings::wasi::io::streams::StreamError;
use super::{HttpError, Response, Sent};

/// What is read of a body at once, in bytes.
const READ_BYTES: u64 = 64 << 10;

/// Sends one request, and waits for all of its response.
pub(crate) fn exchange(sent: &Sent) -> Result<Response, HttpError> {
    let said = |what: &str| format!("{} {}: {what}", sent.method, sent.url.origin());
    answered(sent).map_err(|fault| match fault {
        Fault::Code(code) => named(&code, &said),
        Fault::Invalid(what) => HttpError::Invalid(said(&what)),
        Fault::TimedOut(within) => {
            HttpError::TimedOut(said(&format!("not done within {} ms", within.as_millis())))
        }
        Fault::Broken(what) => HttpError::Connection(said(&what)),
    })
}

/// What went wrong, before it is said what was asked.
enum Fault {
    Code(ErrorCode),
    Invalid(String),
    TimedOut(Duration),
    Broken(String),
}

impl From<ErrorCode> for Fault {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

/// When the request must be done.
struct Timer(Option<(Pollable, Duration)>);

impl Timer {
    fn new(timeout: Option<Duration>) -> Self {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(timeout.map(|span| (monotonic_clock::subscribe_duration(nanos(span)), span)))
    }

    /// Waits for one of these, or for the end of the time.
    fn wait(&self, pollables: &[&Pollable]) -> Result<(), Fault> {
        let Some((end, span)) = &self.0 else {
            poll::poll(pollables);
            return Ok(());
        };
        let ready = poll::poll(&[pollables, &[end]].concat());
        // What is there counts, however late it is.
        if ready.iter().any(|n| (*n as usize) < pollables.len()) {
            Ok(())
        } else {
            Err(Fault::TimedOut(*span))
        }
    }
}

fn answered(sent: &Sent) -> Result<Response, Fault> {
    let timer = Timer::new(sent.timeout);
    let (request, body) = request(sent)?;
    let response = outgoing_handler::handle(request, options(sent)?)?;
    // Kept to the end where it is not written to its end: to drop it would break off the request.
    let _unfinished = match (body, &sent.body) {
        (Some(body), Some(bytes)) => write(body, bytes, &response, &timer)?,
        _ => None,
    };
    let pollable = response.subscribe();
    timer.wait(&[&pollable])?;
    drop(pollable);
    match response.get() {
        Some(Ok(response)) => read(sent, &response?, &timer),
        _ => Err(Fault::Broken("no response".to_owned())),
    }
}

fn request(sent: &Sent) -> Result<(OutgoingRequest, Option<OutgoingBody>), Fault> {
    let fields = Fields::new();
    let add = |name: &str, value: &str| {
        fields.append(name, value.as_bytes()).map_err(|error| match error {
            HeaderError::Forbidden => Fault::Invalid(format!("the header {name} is the runner's to say")),
            _ => Fault::Invalid(format!("{name:?} and its value are no header field")),
        })
    };
    for (name, value) in &sent.headers {
        add(name, value)?;
    }
    if let Some(body) = &sent.body {
        fields.delete("content-length").map_err(|_| invalid("its length"))?;
        fields
            .append("content-length", body.len().to_string().as_bytes())
            .map_err(|_| invalid("its length"))?;
    }
    let request = OutgoingRequest::new(fields);
    request.set_method(&method(&sent.method)).map_err(|()| invalid("its method"))?;
    let scheme = if sent.url.https { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).map_err(|()| invalid("its scheme"))?;
    request.set_authority(Some(&sent.url.authority)).map_err(|()| invalid("its host and port"))?;
    request
        .set_path_with_query(Some(&sent.url.path_and_query))
        .map_err(|()| invalid("its path and query"))?;
    let body = match &sent.body {
        Some(_) => Some(request.body().map_err(|()| invalid("its body"))?),
        None => None,
    };
    Ok((request, body))
}

fn invalid(what: &str) -> Fault {
    Fault::Invalid(format!("{what} cannot be sent"))
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    }
}

/// The time-out, as one for each step too: then the runner knows of it.
fn options(sent: &Sent) -> Result<Option<RequestOptions>, Fault> {
    let Some(timeout) = sent.timeout else { return Ok(None) };
    let nanos = Some(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    let options = RequestOptions::new();
    options.set_connect_timeout(nanos).map_err(|()| invalid("its time-out"))?;
    options.set_first_byte_timeout(nanos).map_err(|()| invalid("its time-out"))?;
    options.set_between_bytes_timeout(nanos).map_err(|()| invalid("its time-out"))?;
    Ok(Some(options))
}

/// Writes all of the body, or as much as is wanted before the answer comes: then the body is given back, unfinished.
fn write(
    body: OutgoingBody,
    mut bytes: &[u8],
    response: &FutureIncomingResponse,
    timer: &Timer,
) -> Result<Option<OutgoingBody>, Fault> {
    let stream = body.write().map_err(|()| invalid("its body"))?;
    let (writable, answered) = (stream.subscribe(), response.subscribe());
    while !bytes.is_empty() && !answered.ready() {
        // Nobody reads any more: the answer says why.
        let Ok(room) = stream.check_write() else { break };
        if room == 0 {
            timer.wait(&[&writable, &answered])?;
            continue;
        }
        let (now, rest) = bytes.split_at(bytes.len().min(room as usize));
        if stream.write(now).is_err() {
            break;
        }
        bytes = rest;
    }
    drop((writable, answered, stream));
    if !bytes.is_empty() {
        return Ok(Some(body));
    }
    OutgoingBody::finish(body, None)?;
    Ok(None)
}

fn read(sent: &Sent, response: &IncomingResponse, timer: &Timer) -> Result<Response, Fault> {
    let headers = response.headers().entries().into_iter();
    let headers = headers.map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned())).collect();
    let incoming = response.consume().map_err(|()| Fault::Broken("no body".to_owned()))?;
    let stream = incoming.stream().map_err(|()| Fault::Broken("no body".to_owned()))?;
    let readable = stream.subscribe();
    let mut body = Vec::new();
    loop {
        match stream.read(READ_BYTES) {
            Ok(piece) if piece.is_empty() => timer.wait(&[&readable])?,
            Ok(piece) => body.extend_from_slice(&piece),
            Err(StreamError::Closed) => break,
            Err(error) => return Err(broken(error)),
        }
    }
    Ok(Response::new(sent, response.status(), headers, body))
}

fn broken(error: StreamError) -> Fault {
    match error {
        StreamError::LastOperationFailed(error) => match types::http_error_code(&error) {
            Some(code) => Fault::Code(code),
            None => Fault::Broken(error.to_debug_string()),
        },
        StreamError::Closed => Fault::Broken("the connection was closed".to_owned()),
    }
}

/// An error code in words.
fn named(code: &ErrorCode, said: &dyn Fn(&str) -> String) -> HttpError {
    match code {
        ErrorCode::HttpRequestDenied => {
            HttpError::Denied(said("denied: the job's log says what its manifest lacks"))
        }
        ErrorCode::InternalError(Some(why)) => HttpError::Limit(said(why)),
        ErrorCode::ConnectionLimitReached => HttpError::Limit(said("no connection was free in time")),
        ErrorCode::HttpRequestBodySize(_) => HttpError::Limit(said("too many bytes sent")),
        ErrorCode::HttpResponseBodySize(_) => HttpError::Limit(said("too many bytes received")),
        ErrorCode::ConnectionTimeout => HttpError::TimedOut(said("no connection in time")),
        ErrorCode::DnsTimeout => HttpError::TimedOut(said("the name was not resolved in time")),
        ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => HttpError::TimedOut(said("the server does not answer in time")),
        ErrorCode::DnsError(_) | ErrorCode::DestinationNotFound => {
            HttpError::Connection(said("the name does not resolve"))
        }
        ErrorCode::DestinationUnavailable | ErrorCode::DestinationIpUnroutable => {
            HttpError::Connection(said("out of reach"))
        }
        ErrorCode::ConnectionRefused => HttpError::Connection(said("connection refused")),
        ErrorCode::ConnectionTerminated => HttpError::Connection(said("the connection broke")),
        ErrorCode::TlsCertificateError => {
            HttpError::Connection(said("its certificate is not one to be trusted for this name"))
        }
        ErrorCode::HttpRequestUriInvalid => HttpError::Invalid(said("the URL is not valid")),
        ErrorCode::HttpRequestMethodInvalid => HttpError::Invalid(said("the method is not allowed")),
        ErrorCode::ConfigurationError => {
            HttpError::Invalid(said("it cannot be sent as it is: the job's log says why"))
        }
        ErrorCode::HttpResponseIncomplete => HttpError::Response(said("the response ends in the middle")),
        ErrorCode::HttpResponseHeaderSectionSize(_) => {
            HttpError::Response(said("the response's header fields are too many"))
        }
        ErrorCode::HttpProtocolError => HttpError::Response(said("what came is no HTTP")),
        other => HttpError::Connection(said(&format!("{other:?}"))),
    }
}
