//! What a command says when the store has done what it was asked, and the reply does not come.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Output;
use std::thread;

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::RedisServer;

/// A way to a server on which every connection ends with the reply to a request that holds `marker`. The port.
pub fn losing(server: u16, marker: &'static str) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || pass_on(client, server, marker));
        }
    });
    port
}

fn pass_on(mut client: TcpStream, server: u16, marker: &str) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let (mut request, mut reply) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    // The command line asks one thing at a time, and its scripts come in one piece or end soon.
    let _ = client.set_read_timeout(Some(std::time::Duration::from_millis(2)));
    let _ = server.set_read_timeout(Some(std::time::Duration::from_millis(2)));
    let mut lost = false;
    loop {
        match client.read(&mut request) {
            Ok(0) => return,
            Ok(size) => {
                lost |= text(&request[..size]).contains(marker);
                if server.write_all(&request[..size]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            Err(_) => {}
        }
        match server.read(&mut reply) {
            Ok(0) => return,
            Ok(_) if lost => {
                let _ = client.shutdown(Shutdown::Both);
                return;
            }
            Ok(size) if client.write_all(&reply[..size]).is_err() => return,
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

pub fn run_at(here: &Hourhand, port: u16, args: &[&str]) -> Output {
    here.command(args).env("HOURHAND_STORE", format!("redis://127.0.0.1:{port}")).output().expect("run")
}

#[test]
fn an_enqueue_without_a_reply_may_have_been_taken() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    let port = losing(redis.port(), "-- enqueue: takes");
    check(&run_at(&here, port, &["enqueue", "k"]), 5, "the job may or may not have been taken");
    assert_eq!(here.json(&["stats"])["queues"][0]["enqueued_total"], 1, "it was taken, once");
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    let port = losing(redis.port(), "-- enqueue: takes");
    check(
        &run_at(&here, port, &["enqueue", "k", "--id", "x"]),
        5,
        "x may or may not have been taken: with its id",
    );
}

#[test]
fn a_verb_without_a_reply_says_so_for_each_job() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    for id in ["a", "b"] {
        here.ok(&["enqueue", "k", "--id", id, "--delay", "1h"]);
    }
    for (verb, marker, done) in [
        ("retry", "-- requeue: ", "requeued"),
        ("cancel", "-- cancel: ends", "cancelled"),
        ("delete", "-- delete: removes", "deleted"),
    ] {
        let output = run_at(&here, losing(redis.port(), marker), &["job", verb, "b", "nope", "a", "--json"]);
        check(&output, 5, &format!("a may or may not have been {done}"));
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let results: Vec<(&Value, &Value)> =
            answer["items"].as_array().expect("items").iter().map(|i| (&i["id"], &i["result"])).collect();
        assert_eq!(
            results,
            [
                (&json!("b"), &json!("unsure")),
                (&json!("nope"), &json!("not_found")),
                (&json!("a"), &json!("unsure"))
            ],
            "{verb}"
        );
    }
    here.ok(&["enqueue", "k", "--id", "c", "--delay", "1h"]);
    let port = losing(redis.port(), "-- reschedule: ");
    let output = run_at(&here, port, &["job", "reschedule", "c", "--delay", "2h"]);
    check(&output, 5, "c may or may not have been rescheduled");
}
