//! A TCP proxy in front of a server: the network at its worst. It delays, slows down, freezes, loses replies, resets and
//! refuses, as it is told at any moment. One proxy is one link.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hourhand::clock::{Monotonic, monotonic};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// What one direction of a connection may hold that is under way.
const UNDER_WAY: usize = 64;

/// What the proxy is to do, and did.
#[derive(Default)]
struct Orders {
    /// Connections with a lower number pass nothing on, and are not closed either.
    frozen_below: AtomicUsize,
    /// Connections with a lower number pass on requests, and no reply.
    mute_below: AtomicUsize,
    /// Nothing passes to the server, or from it, while this is so; what was held back comes afterwards.
    held: [AtomicBool; 2],
    /// The next reply is dropped, and its connection with it.
    lose_reply: AtomicBool,
    /// What is done before the client can notice.
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// So is each so manieth; 0 for none.
    lose_every: AtomicU64,
    replies: AtomicU64,
    lost: AtomicUsize,
    connections: AtomicUsize,
    /// New connections are closed at once.
    refuse: AtomicBool,
    /// The least and the most that each piece takes on its way, in microseconds.
    delay: [AtomicU64; 2],
    /// Bytes a second in each direction; 0 for no bound.
    rate: AtomicU64,
    jitter: AtomicU64,
}

const TO_SERVER: usize = 0;
const FROM_SERVER: usize = 1;

/// A running proxy. It ends with its runtime.
#[allow(dead_code, reason = "each test binary uses a part of this")]
pub(crate) struct Proxy {
    port: u16,
    orders: Arc<Orders>,
    resets: watch::Sender<u64>,
}

#[allow(dead_code, reason = "each test binary uses a part of this")]
impl Proxy {
    /// A proxy in front of a port of the loopback address.
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let (orders, resets) = (Arc::new(Orders::default()), watch::Sender::new(0));
        tokio::spawn(accept(listener, server_port, orders.clone(), resets.clone()));
        Self { port, orders, resets }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// From now on nothing passes on what is open now, for ever, and nothing is closed; nor on new connections, until
    /// [`thaw_for_new_connections`](Self::thaw_for_new_connections).
    pub(crate) fn freeze(&self) {
        self.orders.frozen_below.store(usize::MAX, SeqCst);
    }

    /// From now on nothing passes on the connections that are open, and nothing is closed; new ones work.
    pub(crate) fn freeze_open(&self) {
        self.orders.frozen_below.store(self.connections(), SeqCst);
    }

    /// New connections work again; those that were open never will.
    pub(crate) fn thaw_for_new_connections(&self) {
        self.orders.frozen_below.store(self.connections(), SeqCst);
    }

    /// Holds back what goes to the server, what comes from it, or both; what was held back comes when it is let go.
    pub(crate) fn hold(&self, to_server: bool, from_server: bool) {
        self.orders.held[TO_SERVER].store(to_server, SeqCst);
        self.orders.held[FROM_SERVER].store(from_server, SeqCst);
    }

    /// From now on no reply passes on the connections that are open; their requests do, and new connections work.
    pub(crate) fn freeze_replies(&self) {
        self.orders.mute_below.store(self.connections(), SeqCst);
    }

    /// The server gets the next request; its reply is lost with the connection.
    pub(crate) fn lose_next_reply(&self) {
        self.orders.lose_reply.store(true, SeqCst);
    }

    /// The same, and something is done before the client can notice and send its request again.
    pub(crate) fn lose_next_reply_and(&self, then: impl FnOnce() + Send + 'static) {
        *self.orders.then.lock().expect("no panic") = Some(Box::new(then));
        self.lose_next_reply();
    }

    /// Loses each so manieth reply with its connection; 0 for none.
    pub(crate) fn lose_every(&self, count: u64) {
        self.orders.lose_every.store(count, SeqCst);
    }

    /// How many replies were lost.
    pub(crate) fn lost(&self) -> usize {
        self.orders.lost.load(SeqCst)
    }

    /// What each piece takes on its way, in each direction; those of one connection stay in their order.
    pub(crate) fn delay(&self, least: Duration, most: Duration) {
        self.orders.delay[0].store(least.as_micros() as u64, SeqCst);
        self.orders.delay[1].store(most.as_micros() as u64, SeqCst);
    }

    /// At most so many bytes a second in each direction of each connection; 0 for no bound.
    pub(crate) fn rate(&self, bytes: u64) {
        self.orders.rate.store(bytes, SeqCst);
    }

    /// Resets (RST) all that is open.
    pub(crate) fn reset_all(&self) {
        self.resets.send_modify(|resets| *resets += 1);
    }

    /// Whether new connections are closed at once.
    pub(crate) fn refuse(&self, refuse: bool) {
        self.orders.refuse.store(refuse, SeqCst);
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.orders.connections.load(SeqCst)
    }
}

impl Orders {
    /// When a piece of so many bytes that came now has arrived on the other side.
    fn arrival(&self, size: usize, before: Monotonic) -> Monotonic {
        let [least, most] = [0, 1].map(|end| self.delay[end].load(SeqCst));
        let step = self.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, SeqCst);
        let delay = least + (step ^ (step >> 29)) % (most.saturating_sub(least) + 1);
        let started = before.max(monotonic() + Duration::from_micros(delay));
        match self.rate.load(SeqCst) {
            0 => started,
            rate => started + Duration::from_secs_f64(size as f64 / rate as f64),
        }
    }

    /// Whether this reply is one that gets lost.
    fn loses(&self) -> bool {
        let every = self.lose_every.load(SeqCst);
        let number = self.replies.fetch_add(1, SeqCst) + 1;
        let lost = self.lose_reply.swap(false, SeqCst) || (every > 0 && number.is_multiple_of(every));
        if lost {
            self.lost.fetch_add(1, SeqCst);
            if let Some(then) = self.then.lock().expect("no panic").take() {
                then();
            }
        }
        lost
    }
}

async fn accept(listener: TcpListener, server_port: u16, orders: Arc<Orders>, resets: watch::Sender<u64>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = orders.connections.fetch_add(1, SeqCst);
        if orders.refuse.load(SeqCst) {
            continue;
        }
        tokio::spawn(link(client, server_port, number, orders.clone(), resets.subscribe()));
    }
}

/// One connection, until one side ends it, a reply is lost, or it is reset.
async fn link(
    mut client: TcpStream,
    server_port: u16,
    number: usize,
    orders: Arc<Orders>,
    mut resets: watch::Receiver<u64>,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server_port)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let reset = tokio::select! {
        () = pass_on(client_read, server_write, number, &orders, TO_SERVER) => false,
        () = pass_on(server_read, client_write, number, &orders, FROM_SERVER) => false,
        _ = resets.changed() => true,
    };
    if reset {
        // A close that lingers for no time throws away what is under way, and is a reset on the wire.
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Reads pieces and writes each when it has arrived. Ends with the connection.
async fn pass_on(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    number: usize,
    orders: &Orders,
    direction: usize,
) {
    let (under_way, mut arriving) = mpsc::channel::<(Monotonic, Vec<u8>)>(UNDER_WAY);
    let read = async {
        let mut buffer = vec![0u8; 64 << 10];
        let mut last = monotonic();
        while let Ok(size) = from.read(&mut buffer).await {
            if direction == FROM_SERVER && size > 0 && orders.loses() {
                return;
            }
            last = orders.arrival(size, last);
            if size == 0 || under_way.send((last, buffer[..size].to_vec())).await.is_err() {
                break;
            }
        }
        // What is under way still arrives.
        drop(under_way);
        std::future::pending::<()>().await;
    };
    let write = async {
        while let Some((at, piece)) = arriving.recv().await {
            tokio::time::sleep_until(at.into()).await;
            while orders.held[direction].load(SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let mute = direction == FROM_SERVER && number < orders.mute_below.load(SeqCst);
            if mute || number < orders.frozen_below.load(SeqCst) {
                // Keeps both sides open and says nothing, as a host that lost its power would.
                std::future::pending::<()>().await;
            }
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
