//! `hourhand doctor`: what it says of how a server, or a file and its disk, is set up, each with what to do about it.

use std::process::Command;

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::at_redis::command;
use crate::harness::hourhand::Hourhand;
use crate::harness::redis_server::RedisServer;

/// What the doctor finds, as `severity check`, without what depends on how busy the machine is; and its exit code.
fn found(here: &Hourhand, args: &[&str]) -> (Vec<String>, Option<i32>, Value) {
    let args: Vec<&str> = ["doctor", "--json"].iter().chain(args).copied().collect();
    let output = here.run(&args);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let items = said["items"].as_array().expect("a list").iter();
    let items = items.filter(|item| {
        assert!(item["fix"].is_string(), "each finding has its fix: {item}");
        !["round-trip", "claim-latency", "memory", "disk"].iter().any(|busy| item["check"] == *busy)
            || item["severity"] == "error"
    });
    let word = |item: &Value, name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let words = items.map(|item| format!("{} {}", word(item, "severity"), word(item, "check"))).collect();
    (words, output.status.code(), said)
}

#[test]
fn each_fault_of_a_redis_is_told_with_its_fix_and_by_the_exit_code() {
    let redis = RedisServer::start();
    let here = Hourhand::new(&redis.url(), &[]);
    let set = |name: &str, value: &str| drop(command(&redis, &["CONFIG", "SET", name, value]));
    let words = |args: &[&str]| {
        let (words, code, _) = found(&here, args);
        (words.join(", "), code)
    };
    assert_eq!(words(&[]), ("warning persistence".into(), Some(0)));
    assert_eq!(words(&["--strict"]), ("warning persistence".into(), Some(1)));
    set("save", "3600 1");
    let (_, _, said) = found(&here, &[]);
    assert!(
        said["items"][0]["message"].as_str().is_some_and(|m| m.contains("since the last one")),
        "{said:#}"
    );
    set("appendonly", "yes");
    set("appendfsync", "no");
    set("auto-aof-rewrite-percentage", "0");
    assert_eq!(words(&[]), ("warning persistence, warning aof-rewrite".into(), Some(0)));
    set("appendfsync", "everysec");
    set("auto-aof-rewrite-percentage", "100");
    assert_eq!(words(&[]), (String::new(), Some(0)));
    set("maxmemory-policy", "allkeys-lru");
    assert_eq!(words(&[]), ("warning eviction".into(), Some(0)));
    set("maxmemory", "100mb");
    let output = here.run(&["doctor"]);
    check(&output, 1, "");
    let told = text(&output.stdout);
    assert!(
        told.contains("\neviction: ")
            && told.contains("fix: redis-cli CONFIG SET maxmemory-policy noeviction"),
        "{told}"
    );
    set("maxmemory-policy", "noeviction");
    let (_, code, said) = found(&here, &[]);
    let facts = &said["server"];
    assert_eq!(
        (code, &facts["role"], &facts["maxmemory_bytes"]),
        (Some(0), &json!("master"), &json!(104_857_600))
    );
}

#[test]
fn a_replica_is_no_place_for_jobs_and_the_primary_is_named() {
    let primary = RedisServer::start_with_aof();
    let port = primary.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let here = Hourhand::new(&primary.url(), &[]);
    here.ok(&["enqueue", "k", "--delay", "1h"]);
    let (words, code, said) = found(&here, &["--store", &replica.url()]);
    assert!(words.contains(&"error replica".to_owned()), "{words:?}");
    assert_eq!(code, Some(1));
    assert!(
        said.to_string().contains(&format!("name the primary in --store: redis://127.0.0.1:{port}")),
        "{said:#}"
    );
    assert_eq!(found(&here, &[]).1, Some(0));
}

#[test]
fn what_a_user_may_not_do_is_named_with_the_rule_that_grants_it() {
    let redis = RedisServer::start_with_aof();
    let here = Hourhand::new(&redis.url(), &[]);
    here.ok(&["enqueue", "k", "--delay", "1h"]);
    let url = format!("redis://h:pw@127.0.0.1:{}", redis.port());
    let mut store = here.command(&["doctor", "--json"]);
    store.env("HOURHAND_STORE", &url);
    let mut ask = |rules: &[&str]| {
        let base = ["ACL", "SETUSER", "h", "reset", "on", ">pw", "~hourhand:*", "&hourhand:*", "+@all"];
        command(&redis, &base.iter().chain(rules).copied().collect::<Vec<_>>());
        let output = store.output().expect("run the binary");
        let said: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        let items = said["items"].as_array().expect("a list").iter().filter(|item| item["check"] == "access");
        let fixes: Vec<String> =
            items.map(|item| format!("{} {}", item["severity"], item["fix"]).replace('"', "")).collect();
        assert!(!said.to_string().contains("pw@"), "the password is nowhere");
        (fixes.join("; "), output.status.code())
    };
    assert_eq!(ask(&[]), (String::new(), Some(0)));
    let denied = "warning redis-cli ACL SETUSER <user> +info '+config|get'";
    assert_eq!(ask(&["-info", "-config"]), (denied.into(), Some(0)));
    let (fixes, code) = ask(&["-hset", "-time", "-scan", "-publish"]);
    assert!(fixes.starts_with("error redis-cli ACL SETUSER <user> +hset +time; "), "{fixes}");
    assert!(fixes.contains("warning redis-cli ACL SETUSER <user> +scan; "), "{fixes}");
    assert!(fixes.contains("warning redis-cli ACL SETUSER <user> +publish '&hourhand:*'"), "{fixes}");
    assert_eq!(code, Some(1));
    let (fixes, code) = ask(&["resetkeys", "~other:*"]);
    assert!(fixes.contains("error redis-cli ACL SETUSER <user> '~hourhand:*'"), "{fixes}");
    assert_eq!(code, Some(1));
    let (fixes, code) = ask(&["-evalsha", "-eval"]);
    assert!(fixes.starts_with("error redis-cli ACL SETUSER <user> +eval +evalsha"), "{fixes}");
    assert_eq!(code, Some(1));
}

#[test]
fn foreign_keys_are_found_among_a_hundred_thousand_of_others_which_stay() {
    let redis = RedisServer::start_with_aof();
    let here = Hourhand::new(&redis.url(), &[]);
    here.ok(&["enqueue", "k", "--id", "x", "--delay", "1h"]);
    let fill = "for i = 1, 100000 do redis.call('SET', 'other:{0}:' .. i, i) end";
    command(&redis, &["EVAL", fill, "0"]);
    command(&redis, &["SET", "hourhand:{0}:paused", "foreign"]);
    command(&redis, &["SET", "hourhand:{0}:paid", "foreign"]);
    command(&redis, &["SET", "hourhand:{1}:jobs", "another's"]);
    let refused = here.run(&["stats"]);
    check(
        &refused,
        1,
        "key hourhand:{0}:paused is not ours: it holds a string, expected a set; `hourhand doctor --repair`",
    );
    let (words, code, _) = found(&here, &[]);
    let mut words: Vec<&str> = words.iter().map(String::as_str).filter(|w| w.starts_with("error")).collect();
    words.sort_unstable();
    // Claims need to know what is paused.
    assert_eq!((words, code), (vec!["error access", "error unknown-name", "error wrong-type"], Some(1)));
    check(&here.run(&["doctor", "--repair"]), 0, "all 2 repaired");
    assert_eq!(found(&here, &[]).1, Some(0));
    let left = "return #redis.call('KEYS', 'other:*') + #redis.call('KEYS', 'hourhand:{1}:*')";
    assert_eq!(command(&redis, &["EVAL", left, "0"]), redis::Value::Int(100_001));
}

/// A small disk in memory, where this user may mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(bytes: &str) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=700"), "tmpfs"])
            .arg(dir.path())
            .output()
            .is_ok_and(|output| output.status.success());
        mounted.then_some(Self(dir))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

#[test]
fn a_file_in_memory_and_on_a_full_disk_is_told() {
    let Some(disk) = Disk::mount("24m") else {
        println!("not tried: this user may not mount a disk");
        return;
    };
    let url = format!("sqlite://{}", disk.0.path().join("jobs.db").display());
    let here = Hourhand::new(&url, &[]);
    here.ok(&["enqueue", "k", "--delay", "1h"]);
    let (words, code, said) = found(&here, &[]);
    assert_eq!((words.join(", "), code), ("warning persistence".into(), Some(0)));
    assert_eq!(
        (&said["server"]["file_system"], &said["server"]["journal"]),
        (&json!("tmpfs"), &json!("wal"))
    );
    std::fs::write(disk.0.path().join("other"), vec![7; 10 << 20]).expect("written");
    check(&here.run(&["enqueue", "k"]), 5, "free some space");
    let (words, code, _) = found(&here, &[]);
    assert_eq!((words.join(", "), code), ("warning persistence, error disk".into(), Some(1)));
    std::fs::remove_file(disk.0.path().join("other")).expect("removed");
    std::fs::set_permissions(
        disk.0.path().join("jobs.db"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .expect("changed");
    assert_eq!(found(&here, &[]).0.join(", "), "warning persistence, warning file-mode");
}
