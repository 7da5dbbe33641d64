//! A TCP proxy in front of a server that can freeze, and lose replies: the network at its worst.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy is to do, and did.
#[derive(Default)]
struct Orders {
    /// Connections with a lower number pass nothing on, and are not closed either.
    frozen_below: AtomicUsize,
    /// So does every new one.
    frozen: AtomicBool,
    /// Connections with a lower number pass on requests, and no reply.
    mute_below: AtomicUsize,
    /// The next reply is dropped, and its connection with it.
    lose_reply: AtomicBool,
    lost: AtomicUsize,
    connections: AtomicUsize,
}

/// A running proxy. It ends with its runtime.
#[allow(dead_code, reason = "each test binary uses a part of this")]
pub(crate) struct Proxy {
    port: u16,
    orders: Arc<Orders>,
}

#[allow(dead_code, reason = "each test binary uses a part of this")]
impl Proxy {
    /// A proxy in front of a port of the loopback address.
    pub(crate) async fn start(server_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let orders = Arc::new(Orders::default());
        tokio::spawn(accept(listener, server_port, orders.clone()));
        Self { port, orders }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// From now on nothing passes, and nothing is closed.
    pub(crate) fn freeze(&self) {
        self.orders.frozen.store(true, Ordering::SeqCst);
        self.orders.frozen_below.store(usize::MAX, Ordering::SeqCst);
    }

    /// From now on nothing passes on the connections that are open, and nothing is closed; new ones work.
    pub(crate) fn freeze_open(&self) {
        self.orders.frozen_below.store(self.connections(), Ordering::SeqCst);
    }

    /// New connections work again; those that were open never will.
    pub(crate) fn thaw_for_new_connections(&self) {
        let next = self.connections();
        self.orders.frozen_below.store(next, Ordering::SeqCst);
        self.orders.frozen.store(false, Ordering::SeqCst);
    }

    /// From now on no reply passes on the connections that are open; their requests do, and new connections work.
    pub(crate) fn freeze_replies(&self) {
        self.orders.mute_below.store(self.connections(), Ordering::SeqCst);
    }

    /// How many connections there were so far.
    pub(crate) fn connections(&self) -> usize {
        self.orders.connections.load(Ordering::SeqCst)
    }

    /// The server gets the next request; its reply is lost with the connection.
    pub(crate) fn lose_next_reply(&self) {
        self.orders.lose_reply.store(true, Ordering::SeqCst);
    }

    /// How many replies were lost.
    pub(crate) fn lost(&self) -> usize {
        self.orders.lost.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server_port: u16, orders: Arc<Orders>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = orders.connections.fetch_add(1, Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        tokio::spawn(pass_on(client_read, server_write, number, orders.clone(), false));
        tokio::spawn(pass_on(server_read, client_write, number, orders.clone(), true));
    }
}

async fn pass_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    orders: Arc<Orders>,
    replies: bool,
) {
    let mut buffer = vec![0u8; 64 << 10];
    while let Ok(size) = from.read(&mut buffer).await {
        let mute = replies && number < orders.mute_below.load(Ordering::SeqCst);
        if mute || orders.frozen.load(Ordering::SeqCst) || number < orders.frozen_below.load(Ordering::SeqCst)
        {
            // Keeps both sides open and says nothing, as a host that lost its power would.
            std::future::pending::<()>().await;
        }
        if replies && size > 0 && orders.lose_reply.swap(false, Ordering::SeqCst) {
            orders.lost.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if size == 0 || to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
    }
}
