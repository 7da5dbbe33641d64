//! A shop's order service for tests: HTTP on a free port, SQLite behind it. It loses replies and is down now and then, as services are.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A running order service.
pub struct Orders {
    port: u16,
    dir: TempDir,
    ended: Arc<AtomicBool>,
}

/// What became of one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub id: u64,
    pub state: String,
    pub closed_by: Option<String>,
    /// How often it was closed.
    pub closings: u64,
}

impl Orders {
    /// A service with as many unpaid orders, of which each fifth is paid just before somebody closes it. `seed` decides which requests
    /// go wrong.
    pub fn start(unpaid: u64, paid: u64, seed: u64) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the orders");
        let client = open(&dir.path().join("orders.db"));
        client
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL, races INTEGER NOT NULL, closed_by TEXT,
                     closings INTEGER NOT NULL DEFAULT 0);",
            )
            .expect("a table");
        for id in 0..unpaid + paid {
            let state = if id < unpaid { "unpaid" } else { "paid" };
            client
                .execute(
                    "INSERT INTO orders (id, state, races) VALUES (?, ?, ?)",
                    params![id, state, id % 5 == 4],
                )
                .expect("an order");
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let ended = Arc::new(AtomicBool::new(false));
        let (path, stop) = (dir.path().join("orders.db"), Arc::clone(&ended));
        thread::spawn(move || serve(&listener, &path, &stop, &Arc::new(AtomicU64::new(seed))));
        Self { port, dir, ended }
    }

    /// Where the service is: scheme, host and port.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where an order is.
    pub fn url(&self, id: u64) -> String {
        format!("{}/orders/{id}", self.origin())
    }

    /// All orders, as they are now.
    pub fn all(&self) -> Vec<Order> {
        let client = open(&self.path());
        let mut query =
            client.prepare("SELECT id, state, closed_by, closings FROM orders ORDER BY id").expect("a query");
        let rows = query.query_map([], |row| {
            Ok(Order { id: row.get(0)?, state: row.get(1)?, closed_by: row.get(2)?, closings: row.get(3)? })
        });
        rows.expect("rows").map(|row| row.expect("an order")).collect()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("orders.db")
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The accepting thread looks up once more.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn open(path: &Path) -> Connection {
    let client = Connection::open(path).expect("open the orders");
    client.busy_timeout(Duration::from_secs(30)).expect("patience");
    client
}

fn serve(listener: &TcpListener, path: &Path, stop: &AtomicBool, seed: &Arc<AtomicU64>) {
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let (path, seed) = (path.to_owned(), Arc::clone(seed));
        // A client that goes away in the middle is nobody's concern.
        thread::spawn(move || drop(answer(stream, &path, &seed)));
    }
}

/// A number below 100, the next of the seed's: splitmix64.
fn percent(seed: &AtomicU64) -> u64 {
    let mut z = seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) % 100
}

fn answer(mut stream: TcpStream, path: &Path, seed: &AtomicU64) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut key = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("idempotency-key")
        {
            key = Some(value.trim().to_owned());
        }
    }
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, ..] = words[..] else { return Ok(()) };
    let fate = percent(seed);
    if fate < 10 {
        return write!(
            stream,
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    if fate < 30 {
        thread::sleep(Duration::from_millis(fate * 5));
    }
    let (status, body) = handled(&open(path), method, target, key.as_deref());
    if (30..45).contains(&fate) {
        // Done, and nobody hears of it.
        return Ok(());
    }
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn handled(client: &Connection, method: &str, target: &str, key: Option<&str>) -> (u16, Value) {
    let parts: Vec<&str> = target.split('/').collect();
    match (method, parts.as_slice()) {
        ("GET", ["", "orders", id]) => match read(client, id) {
            Some(order) => (200, order),
            None => (404, json!({})),
        },
        ("POST", ["", "orders", id, "close"]) => close(client, id, key),
        _ => (405, json!({})),
    }
}

fn read(client: &Connection, id: &str) -> Option<Value> {
    client
        .query_row("SELECT id, state, closed_by FROM orders WHERE id = ?", [id.parse::<u64>().ok()?], |row| {
            let (id, state, by): (u64, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(json!({"id": id, "state": state, "pay_by_ms": 0, "closed_by": by}))
        })
        .optional()
        .expect("an order")
}

fn close(client: &Connection, id: &str, key: Option<&str>) -> (u16, Value) {
    let Some(key) = key else { return (400, json!({"error": "expected an idempotency-key"})) };
    // The customer pays at the last moment.
    client
        .execute("UPDATE orders SET state = 'paid' WHERE id = ? AND state = 'unpaid' AND races", [id])
        .expect("a payment");
    client
        .execute(
            "UPDATE orders SET state = 'closed', closed_by = ?2, closings = closings + 1 WHERE id = ?1 AND state = 'unpaid'",
            params![id, key],
        )
        .expect("a closing");
    match read(client, id) {
        Some(order) if order["state"] == "closed" => (200, order),
        Some(order) => (409, order),
        None => (404, json!({})),
    }
}
