//! docs/protocol.md is true: the Python program on that page is taken from it and run as it is, with its own
//! Redis client, and what it enqueued is claimed through the store. And what a careless program may send is
//! refused by the script itself, because no Rust stands in front of it.

#[path = "../../tests/harness/redis_server.rs"]
mod redis_server;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hourhand::job::NewJob;
use hourhand::names::{JobId, Name};
use hourhand::queue::redis::{RedisOptions, RedisStore};
use hourhand::queue::{ClaimRequest, Disposition, Lane, LaneClaim, SessionId, Store};
use redis_server::RedisServer;

/// The version of the Python client that the page was tried with.
const PYTHON_CLIENT: &str = "redis==8.1.0";
const NAMESPACE: &str = "hourhand";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A Python with the client, made once in the target folder.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protocol-python");
    let python = folder.join("bin/python");
    let ready = folder.join(PYTHON_CLIENT);
    if !ready.exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", PYTHON_CLIENT]));
        fs::write(&ready, "").expect("a mark");
    }
    python
}

/// The program on the page.
fn example() -> String {
    let page = fs::read_to_string(root().join("docs/protocol.md")).expect("the page");
    let (_, rest) = page.split_once("```python\n").expect("a Python block");
    let (code, rest) = rest.split_once("```").expect("its end");
    assert!(!rest.contains("```python"), "one program");
    code.to_owned()
}

async fn claim(store: &RedisStore, kind: &str) -> Vec<hourhand::queue::ClaimedJob> {
    let request = ClaimRequest {
        session: SessionId("s".into()),
        lanes: vec![LaneClaim::new(Lane { queue: name(kind), kind: name(kind) }, 5)],
        due_max: 10,
        ahead_max: 0,
        look_ahead_ms: 0,
        suspect: true,
        first_token: 1,
        beat: 0,
    };
    store.claim(&request).await.expect("claimed").jobs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_program_of_the_page_enqueues() {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url(), &name(NAMESPACE), RedisOptions::default()).expect("a URL");
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("hourhand_enqueue.py");
    fs::write(&program, example()).expect("written");
    let payload: Vec<u8> = (0..=255u8).chain(*b"\0[]{}\x1f\xff").collect();
    let payload_file = folder.path().join("payload");
    fs::write(&payload_file, &payload).expect("written");
    let enqueue = |id: &str| {
        let output = run(Command::new(python())
            .arg(&program)
            .arg(server.url())
            .arg(root().join("lua/enqueue.lua"))
            .arg("order_close")
            .arg(&payload_file)
            .args((!id.is_empty()).then_some(id)));
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let field = |key: &str| answer[key].as_str().expect("a string").to_owned();
        (field("disposition"), field("id"), field("state"))
    };
    let (disposition, made, state) = enqueue("");
    assert_eq!((disposition.as_str(), state.as_str()), ("created", "ready"));
    let given = "Bestellung 7/ü";
    assert_eq!(enqueue(given), ("created".to_owned(), given.to_owned(), "ready".to_owned()));
    assert_eq!(enqueue(given), ("kept".to_owned(), given.to_owned(), "ready".to_owned()));

    // The store knows the job as if it were its own.
    let again = NewJob { id: Some(JobId::new(given).expect("an id")), ..NewJob::new(name("order_close")) };
    assert_eq!(store.enqueue(&[again]).await.expect("answered")[0].disposition, Disposition::Kept);
    let claimed = claim(&store, "order_close").await;
    let ids: Vec<&str> = claimed.iter().map(|c| c.job.id.as_str()).collect();
    assert_eq!(ids, [made.as_str(), given]);
    for job in &claimed {
        assert_eq!(job.job.payload, payload, "byte for byte");
        assert_eq!(job.job.meta, [("from".to_owned(), "python".to_owned())]);
        assert_eq!(job.job.source, "python");
    }
}

/// A call as a program makes it: lanes, and eleven arguments a job.
struct Call {
    lanes: Vec<(&'static str, &'static str)>,
    jobs: Vec<[&'static [u8]; 11]>,
}

/// lane, id, priority, due, max_attempts, timeout_ms, traceparent, meta, source, on_conflict, payload
const GOOD: [&[u8]; 11] = [b"1", b"", b"", b"", b"", b"", b"", b"", b"me", b"", b"{}"];

fn call(server: &RedisServer, call: &Call) -> redis::RedisResult<Vec<String>> {
    let script = fs::read_to_string(root().join("lua/enqueue.lua")).expect("the script");
    let prefix = format!("{NAMESPACE}:{{0}}:");
    let globals = ["seq", "jobs", "past", "running", "ids", "lanes", "totals", "meta", "logs", "once:"];
    let mut keys: Vec<String> = globals.iter().map(|key| format!("{prefix}{key}")).collect();
    for (queue, kind) in &call.lanes {
        keys.extend(["h", "n", "l", "s"].map(|part| format!("{prefix}due:{queue}:{kind}:{part}")));
    }
    let mut cmd = redis::cmd("EVAL");
    cmd.arg(script).arg(keys.len()).arg(keys).arg("1").arg("abcde").arg("").arg(call.lanes.len());
    for (queue, kind) in &call.lanes {
        cmd.arg(*queue).arg(*kind);
    }
    for job in &call.jobs {
        cmd.arg(&job[..]);
    }
    cmd.query(&mut server.client())
}

/// A job that differs from a good one in one argument.
fn with(place: usize, value: &'static [u8]) -> [&'static [u8]; 11] {
    let mut job = GOOD;
    job[place] = value;
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_itself_refuses_what_is_against_the_rules() {
    let server = RedisServer::start();
    let lanes = vec![("q", "k")];
    let bad: Vec<(usize, &[u8])> = vec![
        (0, b"0"),
        (0, b"2"),
        (0, b""),
        (0, b"x"),
        (1, b" a"),
        (1, b"a "),
        (1, b"a\tb"),
        (1, b"a\x7fb"),
        (1, b"\xff"),
        (1, b"\xc2\x85"),
        (1, b"\xe2\x80\x83x"),
        (1, b"\xed\xa0\x80"),
        (1, b"\xf4\x90\x80\x80"),
        (1, b"\xc0\x80"),
        (1, b"\xe2\x82"),
        (1, &[b'i'; 201]),
        (2, b"urgent"),
        (2, b"High"),
        (3, b"+-1"),
        (3, b"-1"),
        (3, b"5"),
        (3, b"+1e3"),
        (3, b"+NaN"),
        (3, b"@99999999999999999999"),
        (3, b"+3155760000001"),
        (3, b"+ 1"),
        (3, b"@1.5"),
        (3, b"~"),
        (3, b"+5~"),
        (3, b"+5~-1"),
        (3, b"+5~1~1"),
        (3, b"x~1"),
        (3, b"~2592000001"),
        (4, b"0"),
        (4, b"1001"),
        (4, b"-1"),
        (4, b"2.5"),
        (5, b"0"),
        (5, b"86400001"),
        (5, b"0x10"),
        (6, b"a\x1fb"),
        (6, &[b't'; 129]),
        (7, b"x"),
        (7, b"{\"a\":\"b\"}"),
        (7, b"[\"a\",\"b\"]"),
        (7, b"[[\"a\"]]"),
        (7, b"[[\"a\",1]]"),
        (7, b"[[\"\",\"b\"]]"),
        (7, b"[[\"a\",\"b\x1f\"]]"),
        (8, b"a\nb"),
        (8, &[b's'; 257]),
        (9, b"maybe"),
    ];
    for (place, value) in bad {
        let refused = call(&server, &Call { lanes: lanes.clone(), jobs: vec![GOOD, with(place, value)] });
        let error = refused.expect_err("it is against the rules");
        assert_eq!(error.code(), Some("HOURHAND_INVALID"), "argument {place}, {value:?}: {error}");
        assert!(error.detail().is_some_and(|text| text.starts_with("1 ")), "it names the job: {error}");
    }
    for (queue, kind) in [("", "k"), ("a b", "k"), ("q", "-k"), ("é", "k"), ("q:x", "k"), ("q", "{x}")] {
        let refused = call(&server, &Call { lanes: vec![(queue, kind)], jobs: vec![GOOD] });
        assert_eq!(refused.expect_err("no name").code(), Some("HOURHAND_INVALID"), "{queue:?} {kind:?}");
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.client()).expect("keys");
    assert_eq!(keys, Vec::<String>::new(), "nothing was written");
    let good: Vec<(usize, &[u8])> = vec![
        (1, b"a"),
        (1, "Ünï cö/😀:{x}".as_bytes()),
        (1, &[b'i'; 200]),
        (2, b"high"),
        (3, b"+0"),
        (3, b"@0"),
        (3, b"+3155760000000"),
        (4, b"1000"),
        (5, b"86400000"),
        (7, b"[]"),
        (7, b"[[\"a\",\"b\"],[\"a\",\"\"]]"),
        (9, b"reject"),
        (10, b""),
        (10, b"\0\xff\x1f"),
    ];
    for (place, value) in &good {
        let taken = call(&server, &Call { lanes: lanes.clone(), jobs: vec![with(*place, value)] })
            .expect("within the rules");
        assert_eq!(taken[0], "created", "argument {place}, {value:?}");
    }
    let store = RedisStore::connect(&server.url(), &name(NAMESPACE), RedisOptions::default()).expect("a URL");
    let queue = store.counts().await.expect("counts").queues.remove(0);
    assert_eq!((queue.ready + queue.scheduled) as usize, good.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_call_is_told_from_an_invalid_job() {
    let server = RedisServer::start();
    let script = fs::read_to_string(root().join("lua/enqueue.lua")).expect("the script");
    let eval = |keys: &[&str], args: &[&str]| -> redis::RedisResult<Vec<String>> {
        redis::cmd("EVAL").arg(&script).arg(keys.len()).arg(keys).arg(args).query(&mut server.client())
    };
    let globals = ["seq", "jobs", "past", "running", "ids", "lanes", "totals", "meta", "logs", "once:"];
    let globals: Vec<String> = globals.iter().map(|key| format!("h:{{0}}:{key}")).collect();
    let wrong_lane: Vec<&str> = globals.iter().map(String::as_str).chain(["h:{0}:due:q:k:h"; 4]).collect();
    let job = ["1", "", "", "", "", "", "", "", "", "", "x"];
    let one = |head: &[&'static str]| [head, &job[..]].concat();
    for (keys, args) in [
        (&wrong_lane[..0], vec![]),
        (&wrong_lane[..], one(&["2", "abcde", "", "1", "q", "k"])),
        (&wrong_lane[..], one(&["1", "ABCDE", "", "1", "q", "k"])),
        (&wrong_lane[..], one(&["1", "abcde", "", "2", "q", "k"])),
        (&wrong_lane[..], one(&["1", "abcde", "", "1", "q", "k"])),
        (&wrong_lane[..13], one(&["1", "abcde", "", "1", "q", "k"])),
        (&wrong_lane[..], one(&["1", "abcde", "", "1", "q", "k", "more"])),
    ] {
        let error = eval(keys, &args).expect_err("malformed");
        assert_eq!(error.code(), Some("HOURHAND_PROTOCOL"), "{args:?}: {error}");
    }
    let store = RedisStore::connect(&server.url(), &name(NAMESPACE), RedisOptions::default()).expect("a URL");
    assert_eq!(store.find(None, &JobId::new("x").expect("an id")).await, Ok(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_access_list_of_the_page_is_enough() {
    let server = RedisServer::start();
    let page = fs::read_to_string(root().join("docs/protocol.md")).expect("the page");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER")).expect("the command");
    let mut words = line.split(' ');
    let mut acl = redis::cmd(words.next().expect("ACL"));
    for word in words {
        acl.arg(word);
    }
    let _: () = acl.query(&mut server.client()).expect("a user");
    let script = fs::read_to_string(root().join("lua/enqueue.lua")).expect("the script");
    let url = format!("redis://enqueuer:password@127.0.0.1:{}", server.port());
    let mut client = redis::Client::open(url).expect("a URL").get_connection().expect("connected");
    let lane = ["h", "n", "l", "s"].map(|part| format!("due:k:k:{part}"));
    let globals = ["seq", "jobs", "past", "running", "ids", "lanes", "totals", "meta", "logs", "once:t0ken"];
    let names = globals.iter().map(|name| (*name).to_owned()).chain(lane);
    let keys: Vec<String> = names.map(|name| format!("{NAMESPACE}:{{0}}:{name}")).collect();
    for (on_conflict, expected) in
        [("keep", "created"), ("replace", "replaced"), ("reschedule", "rescheduled"), ("keep", "kept")]
    {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&script).arg(keys.len()).arg(&keys).arg("1").arg("abcde").arg("").arg(1).arg("k").arg("k");
        cmd.arg(&["1", "x", "", "", "", "", "", "", "", on_conflict, "payload"]);
        let reply: Vec<String> = cmd.query(&mut client).expect("allowed");
        assert_eq!(reply[0], expected);
    }
}
