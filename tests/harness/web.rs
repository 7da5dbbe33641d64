//! A small HTTP server of a test's own, on a free port of the loopback address: answers as the test says, badly too, and keeps
//! what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    /// What stands in the request line: the path with the query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Seen {
    /// The first field of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does with a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Status, header fields, body.
    Plain(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// These bytes as they are, and the end.
    Raw(Vec<u8>),
    /// These bytes, and then nothing more, for as long as somebody holds the other end.
    Stall(Vec<u8>),
    /// A head, and then these bytes again and again, for as long as somebody takes them.
    Endless(Vec<u8>),
    /// Nothing: the connection is closed.
    Close,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self::Plain(status, Vec::new(), Vec::new())
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Plain(200, Vec::new(), text.into().into_bytes())
    }

    /// A redirect that keeps method and body.
    pub fn redirect(to: impl Into<String>) -> Self {
        Self::Plain(307, vec![("Location", to.into())], Vec::new())
    }
}

type Answers = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Shared {
    answers: Box<Answers>,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Accepts, and says nothing: not even TLS's greeting.
    deaf: bool,
    seen: Mutex<Vec<Seen>>,
    connections: AtomicU32,
    open: AtomicU32,
    ended: AtomicBool,
}

/// A running server.
pub struct Web {
    port: u16,
    shared: Arc<Shared>,
}

impl Web {
    /// A server that answers like this.
    pub fn start(answers: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::launch(Box::new(answers), None, false)
    }

    /// The same over TLS, with the certificate and the key of these files.
    pub fn start_tls(
        certificate: &Path,
        key: &Path,
        answers: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let certificates = CertificateDer::pem_file_iter(certificate).expect("a certificate");
        let certificates: Vec<_> = certificates.map(|found| found.expect("a certificate")).collect();
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .expect("a key of this certificate");
        Self::launch(Box::new(answers), Some(Arc::new(config)), false)
    }

    /// A server that takes connections and never says anything.
    pub fn deaf() -> Self {
        Self::launch(Box::new(|_| Reply::Close), None, true)
    }

    fn launch(answers: Box<Answers>, tls: Option<Arc<rustls::ServerConfig>>, deaf: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            answers,
            tls,
            deaf,
            seen: Mutex::default(),
            connections: AtomicU32::new(0),
            open: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.ended.load(SeqCst) {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&serving)) else { continue };
                shared.connections.fetch_add(1, SeqCst);
                shared.open.fetch_add(1, SeqCst);
                thread::spawn(move || {
                    // A client that has gone is no failure of the server.
                    let _ = serve(&stream, &shared);
                    let _ = stream.shutdown(Shutdown::Both);
                    shared.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:PORT` and this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// What it was asked, in order.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("no thread has panicked").clone()
    }

    /// Connections that it has taken so far.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(SeqCst)
    }

    /// Waits until it has been asked so often.
    pub fn wait_for_requests(&self, count: usize) {
        self.wait("requests", |shared| shared.seen.lock().expect("no thread has panicked").len() >= count);
    }

    /// Waits until nobody holds a connection to it.
    pub fn wait_until_left(&self) {
        self.wait("the end of all connections", |shared| shared.open.load(SeqCst) == 0);
    }

    #[track_caller]
    fn wait(&self, what: &str, done: impl Fn(&Shared) -> bool) {
        super::waiting::eventually(what, Duration::from_secs(60), || done(&self.shared).then_some(()));
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

fn serve(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut plain = stream;
    if shared.deaf {
        return until_left(&mut plain);
    }
    let mut wire: Box<dyn Wire + '_> = match &shared.tls {
        Some(config) => {
            let tls = rustls::ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
            Box::new(rustls::StreamOwned::new(tls, plain))
        }
        None => Box::new(plain),
    };
    let Some(seen) = read_request(&mut wire)? else { return Ok(()) };
    let reply = (shared.answers)(&seen);
    shared.seen.lock().expect("no thread has panicked").push(seen);
    match reply {
        Reply::Plain(status, headers, body) => {
            let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            wire.write_all(format!("{head}\r\n").as_bytes())?;
            wire.write_all(&body)?;
            wire.flush()
        }
        Reply::Raw(bytes) => {
            wire.write_all(&bytes)?;
            wire.flush()
        }
        Reply::Stall(bytes) => {
            wire.write_all(&bytes)?;
            wire.flush()?;
            until_left(&mut wire)
        }
        Reply::Endless(bytes) => {
            wire.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            loop {
                wire.write_all(&bytes)?;
            }
        }
        Reply::Close => Ok(()),
    }
}

fn until_left(wire: &mut dyn Read) -> std::io::Result<()> {
    let mut sink = [0; 4096];
    while wire.read(&mut sink)? > 0 {}
    Ok(())
}

/// `None` when the client has left without asking anything.
fn read_request(wire: &mut dyn Read) -> std::io::Result<Option<Seen>> {
    let mut reader = BufReader::new(wire);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut seen = Seen { method, target, headers: Vec::new(), body: Vec::new() };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        seen.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if let Some(length) = seen.header("content-length") {
        let length = length.parse().map_err(std::io::Error::other)?;
        reader.take(length).read_to_end(&mut seen.body)?;
    } else if seen.header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = u64::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            let mut piece = vec![0; size as usize + 2];
            reader.read_exact(&mut piece)?;
            if size == 0 {
                break;
            }
            seen.body.extend_from_slice(&piece[..size as usize]);
        }
    }
    Ok(Some(seen))
}
