//! A store behind TLS, with a certificate of the operator's own authority.

use std::path::Path;
use std::process::Command;

use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::{RedisServer, free_port};
use crate::harness::sentinel::{MASTER, Sentinel};

fn openssl(dir: &Path, args: &[&str]) {
    let output = Command::new("openssl").args(args).current_dir(dir).output().expect("openssl is installed");
    assert!(output.status.success(), "openssl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority and a certificate for localhost, in `dir`.
fn certificates(dir: &Path) {
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").expect("a file");
    for line in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout redis.key -out redis.csr -subj /CN=localhost",
        "x509 -req -in redis.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out redis.pem -days 2 -extfile names",
    ] {
        openssl(dir, &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn a_store_behind_tls_is_trusted_by_its_authority_and_by_nothing_else() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let at = |name: &str| dir.path().join(name).display().to_string();
    let port = free_port().to_string();
    let (cert, key, ca) = (at("redis.pem"), at("redis.key"), at("ca.pem"));
    let redis = RedisServer::start_with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
        "--tls-replication",
        "yes",
    ]);
    let here = Hourhand::new(&format!("rediss://localhost:{port}/2"), &["echo"]);
    let enqueue = ["enqueue", "echo", "1", "--id", "one"];
    let trusted = here.command(&enqueue).env("SSL_CERT_FILE", &ca).output().expect("run the binary");
    assert_eq!(trusted.status.code(), Some(0), "{}", String::from_utf8_lossy(&trusted.stderr));
    let untrusted = here.run(&enqueue);
    let message = String::from_utf8_lossy(&untrusted.stderr);
    assert_eq!(untrusted.status.code(), Some(5), "{message}");
    assert!(message.contains("certificate") && message.contains(&port), "{message}");

    let own_port = free_port();
    let lines = format!(
        "tls-port {own_port}\ntls-replication yes\ntls-cert-file {cert}\ntls-key-file {key}\ntls-ca-cert-file {ca}\ntls-auth-clients no\n"
    );
    let _sentinel = Sentinel::start(port.parse().expect("a port"), &lines, None);
    let url = format!("rediss+sentinel://localhost:{own_port}/{MASTER}/2");
    let ask = |command: &mut Command| command.env("HOURHAND_STORE", &url).output().expect("run the binary");
    let trusted = ask(here.command(&["job", "show", "one"]).env("SSL_CERT_FILE", &ca));
    assert_eq!(trusted.status.code(), Some(0), "{}", String::from_utf8_lossy(&trusted.stderr));
    let untrusted = ask(&mut here.command(&["job", "show", "one"]));
    let message = String::from_utf8_lossy(&untrusted.stderr);
    assert_eq!(untrusted.status.code(), Some(5), "{message}");
    assert!(message.contains("certificate"), "{message}");
    drop(redis);
}
