//! The bodies of requests and responses on their way between guest and network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use wasmtime_wasi_http::{Error, WasiBody};

use crate::clock::{self, Monotonic};

use super::fault::Fault;
use super::job::JobCalls;

/// Pieces of a response that wait for the guest.
const PIECES: usize = 2;

/// A guest's request body. Where nobody reads it to its end, it is emptied all the same: a guest that is still writing when
/// its request is denied or answered is to see the denial or the answer, and not a closed stream.
pub(super) struct Outgoing {
    body: Option<WasiBody>,
    io: Handle,
}

impl Outgoing {
    pub(super) fn new(body: WasiBody, io: Handle) -> Self {
        Self { body: Some(body), io }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(mut body) = self.body.take().filter(|body| !body.is_end_stream()) {
            // Ends when the guest has written everything, or is gone.
            self.io.spawn(async move { while let Some(Ok(_)) = body.frame().await {} });
        }
    }
}

/// How far sending a body has come, as seen by whoever waits for the answer.
pub(super) struct Sending {
    began: Monotonic,
    /// When the last piece was taken, in milliseconds after `began`.
    last_ms: AtomicU64,
    /// Waits for the guest, and not for the server.
    guest_owes: AtomicBool,
    too_much: AtomicBool,
}

impl Sending {
    fn took(&self) {
        self.last_ms.store(clock::monotonic().duration_since(self.began).as_millis() as u64, Relaxed);
    }

    /// Whether the body was cut because the job has sent too much.
    pub(super) fn too_much(&self) -> bool {
        self.too_much.load(Relaxed)
    }

    /// Resolves when the server has let so much time pass: since the last piece of the request, while there is none
    /// that the guest still owes.
    pub(super) async fn stalled(&self, within: Duration) {
        loop {
            let last = self.began + Duration::from_millis(self.last_ms.load(Relaxed));
            let until = if self.guest_owes.load(Relaxed) { clock::monotonic() } else { last } + within;
            if until <= clock::monotonic() {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

/// A request's body that counts what it gives.
pub(super) struct Counted {
    body: Outgoing,
    job: Arc<JobCalls>,
    sending: Arc<Sending>,
}

impl Counted {
    pub(super) fn new(body: Outgoing, job: Arc<JobCalls>) -> (Self, Arc<Sending>) {
        let sending = Arc::new(Sending {
            began: clock::monotonic(),
            last_ms: AtomicU64::new(0),
            guest_owes: AtomicBool::new(false),
            too_much: AtomicBool::new(false),
        });
        (Self { body, job, sending: Arc::clone(&sending) }, sending)
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.sending.guest_owes.store(polled.is_pending(), Relaxed);
        if polled.is_ready() {
            self.sending.took();
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && !self.job.count_sent(data.len())
        {
            self.sending.too_much.store(true, Relaxed);
            return Poll::Ready(Some(Err(Error::HttpRequestBodySize(None))));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// All of a request's body, for whoever answers in place of the network.
pub(super) async fn collected(mut body: Outgoing, job: &JobCalls) -> Result<Bytes, Fault> {
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::new(error, "the guest broke off its request"))?;
        if let Some(data) = frame.data_ref() {
            if !job.count_sent(data.len()) {
                return Err(job.sent_too_much());
            }
            all.extend_from_slice(data);
        }
    }
    Ok(all.freeze())
}

/// A piece of a response's body; `None` at its end, so that a body whose sender is gone is not taken for a whole one.
type Piece = Option<Result<Frame<Bytes>, Error>>;

/// What puts a response's body into the guest's hands, piece by piece.
pub(super) struct Pieces(mpsc::Sender<Piece>);

/// The guest's end of a response's body.
struct Received {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
    /// Its turn among the job's connections, until its end.
    turn: Option<Arc<OwnedSemaphorePermit>>,
}

/// A response's body of which the pieces come later, and the turn that it keeps until it has been read to its end or dropped.
pub(super) fn received(turn: Option<Arc<OwnedSemaphorePermit>>) -> (Pieces, WasiBody) {
    let (pieces, receiver) = mpsc::channel(PIECES);
    (Pieces(pieces), Received { pieces: receiver, ended: false, turn }.boxed_unsync())
}

impl Body for Received {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(piece) = self.pieces.poll_recv(cx) else { return Poll::Pending };
        let piece = piece.unwrap_or(Some(Err(Error::HttpResponseIncomplete)));
        self.ended = !matches!(piece, Some(Ok(_)));
        if self.ended {
            self.turn = None;
        }
        Poll::Ready(piece)
    }
}

impl Pieces {
    /// Passes `incoming` on until it ends, the guest has lost interest, or something is wrong with it.
    /// `note` hears of it before the guest does.
    pub(super) async fn pass_on(
        self,
        job: &JobCalls,
        mut incoming: Incoming,
        between: Duration,
        stopped: impl Future<Output = Fault>,
        note: impl FnOnce(&Fault),
    ) {
        let passed = async {
            loop {
                let waited = tokio::time::timeout(between.min(job.remaining()), incoming.frame()).await;
                let frame = match waited {
                    Ok(None) => return Ok(()),
                    Ok(Some(Ok(frame))) => frame,
                    Ok(Some(Err(error))) => return Err(Fault::body(&error)),
                    Err(_) => return Err(silent(between)),
                };
                let data_fits = frame.data_ref().is_none_or(|data| job.count_received(data.len()));
                let trailers_fit = frame.trailers_ref().is_none_or(|fields| job.count_fields(fields));
                if !(data_fits && trailers_fit) {
                    return Err(job.received_too_much());
                }
                if self.0.send(Some(Ok(frame))).await.is_err() {
                    return Ok(());
                }
            }
        };
        let passed = tokio::select! {
            biased;
            () = self.0.closed() => return,
            fault = stopped => Err(fault),
            passed = passed => passed,
        };
        let last = passed.err().map(|fault| {
            note(&fault);
            Err(fault.code)
        });
        // Nobody listens where the guest has dropped it meanwhile.
        let _ = self.0.send(last).await;
    }

    /// Passes on a body that is there already.
    pub(super) async fn pass_whole(self, body: Bytes) {
        // Nobody may listen.
        let _ = self.0.send(Some(Ok(Frame::data(body)))).await;
        let _ = self.0.send(None).await;
    }
}

/// The server has stopped sending.
fn silent(within: Duration) -> Fault {
    let why = format!("the server has sent nothing more for {} ms", within.as_millis());
    Fault::new(Error::ConnectionReadTimeout, &why)
}
