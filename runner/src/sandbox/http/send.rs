//! One request, from the guest's hands to the end of its response: a pipeline of named steps.
//!
//! Allowed, resolved once, checked, connected to the checked address, and to no other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use crate::clock;
use crate::grants::Scheme;

use super::body::{self, Counted, Outgoing};
use super::fault::Fault;
use super::job::{JobCalls, Times};
use super::target::{Host, Target};
use super::{address, answers, tls};

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// A response's head, and what is read ahead of its body, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Header fields of a response.
const FIELDS_MAX: usize = 128;

/// A response whose body is still on its way.
type Answer = Result<Response<WasiBody>, Error>;

/// Sends `request` and gives its response to the guest, which may drop `answered` at any time: that ends everything.
pub(super) async fn send(
    job: Arc<JobCalls>,
    request: Request<Outgoing>,
    options: Option<RequestOptions>,
    mut answered: oneshot::Sender<Answer>,
) {
    let method = request.method().clone();
    let mut target = None;
    let answer = tokio::select! {
        biased;
        () = answered.closed() => return,
        fault = job.client.stopped() => Err(fault),
        answer = answer(&job, request, options, &mut target) => answer,
    };
    match answer {
        Ok(answer) => {
            answer.pass_on(&job, answered, |fault| job.note(&method, target.as_ref(), fault)).await;
        }
        Err(fault) => {
            job.note(&method, target.as_ref(), &fault);
            // The guest may have dropped it meanwhile.
            let _ = answered.send(Err(fault.code));
        }
    }
}

/// A response's head, and where its body comes from.
enum Answered {
    Network { response: Response<Incoming>, between: Duration, connection: Connection },
    Instead(Response<bytes::Bytes>),
}

impl Answered {
    async fn pass_on(self, job: &JobCalls, answered: oneshot::Sender<Answer>, note: impl FnOnce(&Fault)) {
        match self {
            Self::Network { response, between, connection } => {
                let (head, incoming) = response.into_parts();
                // What the guest has not read is the host's memory: it counts as a connection. Where nothing is to be read, nobody may look.
                let turn = (!incoming.is_end_stream()).then(|| Arc::clone(&connection.turn));
                let (pieces, body) = body::received(turn);
                if answered.send(Ok(Response::from_parts(head, body))).is_ok() {
                    pieces.pass_on(job, incoming, between, job.client.stopped(), note).await;
                }
            }
            Self::Instead(response) => {
                let (head, whole) = response.into_parts();
                let (pieces, body) = body::received(None);
                if answered.send(Ok(Response::from_parts(head, body))).is_ok() {
                    pieces.pass_whole(whole).await;
                }
            }
        }
    }
}

async fn answer(
    job: &Arc<JobCalls>,
    request: Request<Outgoing>,
    options: Option<RequestOptions>,
    found: &mut Option<Target>,
) -> Result<Answered, Fault> {
    job.count_request()?;
    let target = Target::of(request.uri()).map_err(|why| Fault::new(Error::HttpRequestUriInvalid, &why))?;
    let target = &*found.insert(target);
    if !target.is_allowed(job.grant()) {
        return Err(job.not_allowed(target));
    }
    let times = job.times(options)?;
    check_framing(&request)?;
    if let Some(answers) = &job.offer.http_answers {
        return answers::answer(&**answers, job, target, request).await.map(Answered::Instead);
    }
    if let Host::Address(address) = target.host {
        // Before any wait: nothing will change it.
        reachable(job, target, &[address])?;
    }
    let turn = job.connection().await?;
    let within = times.connect.min(job.remaining());
    let (stream, tls) = tokio::time::timeout(within, connect(job, target, within))
        .await
        .unwrap_or_else(|_| Err(no_connection(within)))?;
    let request = prepared(job, target, request)?;
    let (response, connection) = match tls {
        Some(config) => {
            let stream = tokio::time::timeout(within, tls::handshake(config, target, stream))
                .await
                .unwrap_or_else(|_| Err(no_connection(within)))?;
            exchange(job, stream, request, times).await?
        }
        None => exchange(job, stream, request, times).await?,
    };
    if !job.count_fields(response.headers()) {
        return Err(job.received_too_much());
    }
    let connection = Connection { _driver: connection, turn: Arc::new(turn) };
    Ok(Answered::Network { response, between: times.between_bytes, connection })
}

/// An open connection of the job: closed when this is dropped. Its turn lasts until the response's body has been dropped or read too.
struct Connection {
    _driver: Driver,
    turn: Arc<OwnedSemaphorePermit>,
}

/// What moves a connection's bytes. It ends with this.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Refuses what two readers could take for two things, and methods that no handler gets.
fn check_framing(request: &Request<Outgoing>) -> Result<(), Fault> {
    if request.method() == Method::TRACE {
        let why = "TRACE asks the server to say what it got, which may hold secrets that are not the guest's to see";
        return Err(Fault::new(Error::HttpRequestMethodInvalid, why));
    }
    if request.method() == Method::CONNECT {
        let why = "CONNECT asks for a tunnel, which no handler gets";
        return Err(Fault::new(Error::HttpRequestMethodInvalid, why));
    }
    let headers = request.headers();
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 || headers.contains_key(TRANSFER_ENCODING) {
        let why = "it says its length twice, or in two ways";
        return Err(Fault::new(Error::HttpProtocolError, why));
    }
    Ok(())
}

/// Those of the addresses that the job may reach.
fn reachable(job: &JobCalls, target: &Target, addresses: &[IpAddr]) -> Result<Vec<SocketAddr>, Fault> {
    let mut refused = None;
    let mut allowed = Vec::new();
    for address in addresses.iter().copied().map(address::plain).take(ADDRESSES_MAX) {
        match address::refused(address, &job.grant().private) {
            None => allowed.push(SocketAddr::new(address, target.port)),
            Some(what) => refused = refused.or(Some((address, what))),
        }
    }
    match refused {
        Some((address, what)) if allowed.is_empty() => Err(private(address, what)),
        None if allowed.is_empty() => Err(Fault::new(Error::DestinationNotFound, "the name has no address")),
        _ => Ok(allowed),
    }
}

fn private(address: IpAddr, what: &str) -> Fault {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Fault::denied(format!(
        "its address {address} is no public one ({what}); an operator may let handlers reach it in hourhand.toml: \
         [ceiling] private = [\"{address}/{bits}\"]"
    ))
}

/// A connection to a checked address, and how to speak TLS on it if that is asked for.
async fn connect(
    job: &JobCalls,
    target: &Target,
    within: Duration,
) -> Result<(TcpStream, Option<Arc<rustls::ClientConfig>>), Fault> {
    let until = clock::monotonic() + within;
    let tls = match target.scheme {
        Scheme::Https => Some(job.client.tls().await?),
        Scheme::Http => None,
    };
    let addresses = match &target.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => job.resolve(name).await.map_err(|error| {
            let code = Error::DnsError { rcode: Some("name not resolved".to_owned()), info_code: None };
            Fault::new(code, &format!("the name does not resolve: {error}"))
        })?,
    };
    let addresses = reachable(job, target, &addresses)?;
    let mut last = no_connection(within);
    for (n, address) in addresses.iter().enumerate() {
        // One that does not answer leaves time for the others.
        let left = until.saturating_duration_since(clock::monotonic()) / (addresses.len() - n) as u32;
        match tokio::time::timeout(left, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Without it, small requests wait for nothing.
                let _ = stream.set_nodelay(true);
                return Ok((stream, tls));
            }
            Ok(Err(error)) => last = Fault::connect(&error),
            Err(_) => last = no_connection(within),
        }
    }
    Err(last)
}

fn no_connection(within: Duration) -> Fault {
    Fault::new(Error::ConnectionTimeout, &format!("no connection within {} ms", within.as_millis()))
}

/// The request as it goes out: in origin form, with our Host, and with the secrets that the host puts in.
fn prepared(job: &JobCalls, target: &Target, request: Request<Outgoing>) -> Result<Request<Outgoing>, Fault> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path();
    let path = if path.starts_with('/') { path } else { "/" };
    let path = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let invalid = |_| Fault::new(Error::HttpRequestUriInvalid, "its path is none");
    head.uri = Uri::builder().path_and_query(path).build().map_err(invalid)?;
    head.version = Version::HTTP_11;
    let host = HeaderValue::try_from(target.host_header())
        .map_err(|_| Fault::new(Error::HttpRequestUriInvalid, "its host is none"))?;
    head.headers.insert(HOST, host);
    head.headers.remove(UPGRADE);
    // Nobody uses the connection again.
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    inject(job, target, &mut head.headers)?;
    Ok(Request::from_parts(head, body))
}

/// Puts in the secrets that are meant for this target, in place of what the guest has put there.
fn inject(job: &JobCalls, target: &Target, headers: &mut HeaderMap) -> Result<(), Fault> {
    for secret in &job.offer.grants.secrets {
        for injection in secret.injections.iter().filter(|injection| target.is(&injection.to)) {
            let value = injection.format.replace("{}", &secret.value.0);
            let header = HeaderName::try_from(injection.header.as_str()).ok();
            let (Some(header), Ok(mut value)) = (header, HeaderValue::try_from(value)) else {
                // Never the value.
                let (name, header) = (&secret.name, &injection.header);
                let why = format!("the secret {name} does not fit into the header {header}");
                return Err(Fault::new(Error::ConfigurationError, &why));
            };
            value.set_sensitive(true);
            headers.insert(header, value);
        }
    }
    Ok(())
}

/// Sends the request over the stream and waits for the response's head.
async fn exchange(
    job: &Arc<JobCalls>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Outgoing>,
    times: Times,
) -> Result<(Response<Incoming>, Driver), Fault> {
    let (head, body) = request.into_parts();
    let (body, sending) = Counted::new(body, Arc::clone(job));
    let handshake = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(FIELDS_MAX)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = handshake.map_err(|error| Fault::exchange(&error))?;
    let driver = Driver(tokio::spawn(async move {
        // What goes wrong is seen by whoever waits for the response.
        let _ = connection.await;
    }));
    let first_byte = times.first_byte.min(job.remaining());
    let response = tokio::select! {
        biased;
        response = sender.send_request(Request::from_parts(head, body)) => response,
        () = sending.stalled(first_byte) => {
            let why = format!("no response within {} ms", first_byte.as_millis());
            return Err(Fault::new(Error::ConnectionReadTimeout, &why));
        }
    };
    match response {
        Ok(response) => Ok((response, driver)),
        Err(_) if sending.too_much() => Err(job.sent_too_much()),
        Err(error) => Err(Fault::exchange(&error)),
    }
}
