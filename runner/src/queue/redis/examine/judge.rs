//! What is to be said about how a server is set up. Pure: from what it says of itself to findings.

use super::server::{Persistence, Server};
use crate::queue::{Finding, Severity};

/// With less memory left than this part of all, new jobs are soon refused.
const MEMORY_LEFT_PERCENT: u64 = 10;
/// So many connections of a hundred are nearly all.
const CLIENTS_PERCENT: u64 = 90;
/// More rewrites an hour than this, and the server does hardly anything else; and from how many on that counts.
const REWRITES_AN_HOUR: f64 = 60.0;
const REWRITES_MIN: u64 = 10;
/// A replica that was not heard of for so long is behind, in seconds.
const LAG_S: u64 = 10;

/// What is wrong or unwise about the server at `place`; enqueues are acknowledged once `waited_for` replicas have them.
pub(super) fn set_up(server: &Server, place: &str, waited_for: u32) -> Vec<Finding> {
    let mut found = Found { place, list: Vec::new() };
    if let Some(there) = server.number("connected_slaves").filter(|there| *there < u64::from(waited_for)) {
        found.error(
            "replication",
            format!("enqueues wait for {waited_for} replicas, and it has {there}: none is acknowledged"),
            "bring the replicas back, or let enqueues wait for fewer",
        );
    }
    let denied = server.denied();
    if !denied.is_empty() {
        found.warning(
            "access",
            "this user may not look at the server's settings, so some things are not looked at",
            format!("redis-cli ACL SETUSER <user> {}", denied.join(" ")),
        );
    }
    roles(server, &mut found);
    persistence(server, &mut found);
    failures(server, &mut found);
    memory(server, &mut found);
    clients(server, &mut found);
    found.list
}

struct Found<'a> {
    place: &'a str,
    list: Vec<Finding>,
}

impl Found<'_> {
    fn warning(&mut self, check: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.list.push(Finding::around(check, Severity::Warning, self.place, message, fix));
    }

    fn error(&mut self, check: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        self.list.push(Finding::around(check, Severity::Error, self.place, message, fix));
    }
}

fn roles(server: &Server, found: &mut Found<'_>) {
    if server.info("role") == Some("slave") {
        let primary = match (server.info("master_host"), server.info("master_port")) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => "its primary".to_owned(),
        };
        found.error(
            "replica",
            format!("it is a replica of {primary}: nothing can be written there"),
            format!("name the primary in --store: redis://{primary}"),
        );
    }
    let wanted = server.setting_number("min-replicas-to-write").unwrap_or(0);
    let good = server.number("min_slaves_good_slaves").unwrap_or(wanted);
    if good < wanted {
        found.error(
            "replication",
            format!("it takes no writes: it wants {wanted} replicas that keep up, and has {good}"),
            "bring the replicas back, or `redis-cli CONFIG SET min-replicas-to-write` to fewer",
        );
    } else if let Some(lag_s) = server.replica_lag_s().filter(|lag| *lag > LAG_S) {
        found.warning(
            "replication",
            format!("a replica was last heard of {lag_s} s ago: a failover to it would lose what came since"),
            "look at the replica and at the network to it (INFO replication)",
        );
    }
}

fn persistence(server: &Server, found: &mut Found<'_>) {
    const KEEP: &str = "redis-cli CONFIG SET appendonly yes, and the same in redis.conf";
    match server.persistence() {
        None => {}
        Some(Persistence::None) => found.warning(
            "persistence",
            "it keeps no append-only file and no snapshots: a restart loses all jobs",
            KEEP,
        ),
        Some(Persistence::NoLog) => found.warning(
            "persistence",
            "it keeps no append-only file: a restart loses the jobs since its last snapshot, or all",
            KEEP,
        ),
        Some(Persistence::Snapshots) => found.warning(
            "persistence",
            "it keeps snapshots but no append-only file: a restart loses the jobs since the last one, and runs those again \
             that have ended since",
            KEEP,
        ),
        Some(Persistence::AppendOnly) => {
            if server.setting("appendfsync") == Some("no") {
                found.warning(
                    "persistence",
                    "it leaves writing to the system (appendfsync no): a power cut loses up to half a minute of jobs",
                    "redis-cli CONFIG SET appendfsync everysec, and the same in redis.conf",
                );
            }
            rewriting(server, found);
        }
    }
}

fn rewriting(server: &Server, found: &mut Found<'_>) {
    if server.setting("auto-aof-rewrite-percentage") == Some("0") {
        found.warning(
            "aof-rewrite",
            "its append-only file is never rewritten (auto-aof-rewrite-percentage 0): it grows until the disk is full",
            "redis-cli CONFIG SET auto-aof-rewrite-percentage 100, and the same in redis.conf; or run BGREWRITEAOF daily",
        );
    }
    let rewrites = server.number("aof_rewrites").unwrap_or(0);
    if let Some(an_hour) = server.rewrites_an_hour()
        && rewrites >= REWRITES_MIN
        && an_hour > REWRITES_AN_HOUR
    {
        found.warning(
            "aof-rewrite",
            format!(
                "its append-only file was rewritten {rewrites} times, {an_hour:.0} an hour: each is a fork and a copy of \
                 all data, which makes calls late"
            ),
            "redis-cli CONFIG SET auto-aof-rewrite-min-size 1gb (or more), and the same in redis.conf",
        );
    }
}

fn failures(server: &Server, found: &mut Found<'_>) {
    const LOOK: &str = "look at the server's log and its disk: space, permissions, faults";
    for (field, what) in [
        ("aof_last_write_status", "it cannot write its append-only file, and refuses new jobs until it can"),
        ("aof_last_bgrewrite_status", "the last rewrite of its append-only file failed: the file grows"),
    ] {
        if server.info(field) == Some("err") {
            found.error("disk", format!("{what} ({field}:err)"), LOOK);
        }
    }
    if server.info("rdb_last_bgsave_status") == Some("err") {
        const FAILED: &str = "its last snapshot failed (rdb_last_bgsave_status:err)";
        if server.setting("save") == Some("") {
            // Redis refuses writes for want of snapshots only where it is to make some by itself.
            found.warning("disk", format!("{FAILED}; it makes none by itself (save \"\")"), LOOK);
        } else {
            let refuses = server.setting("stop-writes-on-bgsave-error") != Some("no");
            let then = if refuses { ", and it refuses new jobs until one succeeds" } else { "" };
            found.error("disk", format!("{FAILED}{then}"), LOOK);
        }
    }
}

fn memory(server: &Server, found: &mut Found<'_>) {
    let limited = server.number("maxmemory").is_some_and(|most| most > 0);
    if let Some(policy) = server.info("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        let fix = "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; caches belong into another Redis";
        let what = if policy.starts_with("volatile") {
            "answers that make a repeated enqueue safe can vanish"
        } else {
            "jobs can vanish"
        };
        let message = format!("it evicts keys when its memory is full (maxmemory-policy {policy}): {what}");
        if limited {
            found.error("eviction", message, fix);
        } else {
            found.warning("eviction", format!("{message}; it has no maxmemory yet"), fix);
        }
    }
    if let Some((all, free)) = server.headroom()
        && free < all / 100 * MEMORY_LEFT_PERCENT
    {
        let of = if limited { "maxmemory" } else { "the machine's memory" };
        found.warning(
            "memory",
            format!(
                "{} MiB are left of {} MiB ({of}): without memory new jobs are refused",
                free >> 20,
                all >> 20
            ),
            if limited {
                "redis-cli CONFIG SET maxmemory to more, and the same in redis.conf; or keep finished jobs for a shorter time"
            } else {
                "give the machine more memory, or keep finished jobs for a shorter time"
            },
        );
    }
}

fn clients(server: &Server, found: &mut Found<'_>) {
    let (Some(now), Some(most)) = (server.number("connected_clients"), server.clients_max()) else { return };
    if now * 100 > most * CLIENTS_PERCENT {
        found.warning(
            "clients",
            format!("{now} of {most} connections are taken: beyond that runners are turned away"),
            "redis-cli CONFIG SET maxclients to more, or look who keeps so many (CLIENT LIST)",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::Looked;
    use super::*;

    /// A server of which nothing is to be said.
    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:36000\r\nmaxclients:10000\r\n\
        connected_clients:12\r\nused_memory:1000000\r\nused_memory_rss:2000000\r\ntotal_system_memory:1000000000\r\n\
        maxmemory:100000000\r\nmaxmemory_policy:noeviction\r\nmem_not_counted_for_evict:0\r\naof_enabled:1\r\n\
        aof_rewrites:40\r\naof_last_write_status:ok\r\naof_last_bgrewrite_status:ok\r\nrdb_last_bgsave_status:ok\r\n\
        role:master\r\nconnected_slaves:1\r\nslave0:ip=10.0.0.2,port=6379,state=online,offset=1,lag=1\r\n";
    const SETTINGS: &str = "appendfsync everysec,save 3600 1,auto-aof-rewrite-percentage 100";

    /// The words of what is found in a server that says other things than the sound one; an empty change is none.
    fn found(info: &[&str], settings: &[&str]) -> Vec<(&'static str, &'static str)> {
        let mut said = INFO.to_owned();
        for change in info.iter().filter(|change| !change.is_empty()) {
            said.push_str(change);
            said.push_str("\r\n");
        }
        let pairs = SETTINGS.split(',').chain(settings.iter().copied()).filter(|text| !text.is_empty());
        let pairs = pairs.map(|text| text.split_once(' ').unwrap_or((text, "")));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        words(&Server::read(Looked::There(said), Looked::There(pairs)))
    }

    fn words(server: &Server) -> Vec<(&'static str, &'static str)> {
        let all = set_up(server, "there", 1);
        assert!(all.iter().all(|f| f.fix.as_ref().is_some_and(|fix| !fix.is_empty())), "{all:?}");
        let severity = |finding: &Finding| match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        all.iter().map(|finding| (severity(finding), finding.check)).collect()
    }

    #[test]
    fn a_sound_server_has_no_findings() {
        assert_eq!(found(&[], &[]), []);
        assert_eq!(found(&["maxmemory:0"], &["appendfsync always"]), []);
    }

    #[test]
    fn each_fault_is_found_by_its_word() {
        type Case = (&'static str, &'static str, (&'static str, &'static str));
        let cases: [Case; 22] = [
            ("aof_enabled:0", "save", ("warning", "persistence")),
            ("aof_enabled:0", "save 60 1", ("warning", "persistence")),
            ("", "appendfsync no", ("warning", "persistence")),
            ("", "auto-aof-rewrite-percentage 0", ("warning", "aof-rewrite")),
            ("aof_rewrites:601", "", ("warning", "aof-rewrite")),
            ("aof_last_write_status:err", "", ("error", "disk")),
            ("aof_last_bgrewrite_status:err", "", ("error", "disk")),
            ("rdb_last_bgsave_status:err", "save 60 1", ("error", "disk")),
            ("rdb_last_bgsave_status:err", "save", ("warning", "disk")),
            ("maxmemory_policy:allkeys-lru", "", ("error", "eviction")),
            ("maxmemory_policy:volatile-ttl", "", ("error", "eviction")),
            ("maxmemory_policy:allkeys-lfu\r\nmaxmemory:0", "", ("warning", "eviction")),
            ("used_memory:95000000", "", ("warning", "memory")),
            ("maxmemory:0\r\nused_memory_rss:950000000", "", ("warning", "memory")),
            ("role:slave\r\nmaster_host:h\r\nmaster_port:1", "", ("error", "replica")),
            ("role:slave", "", ("error", "replica")),
            ("min_slaves_good_slaves:0", "min-replicas-to-write 1", ("error", "replication")),
            ("slave1:ip=10.0.0.3,port=1,state=online,offset=1,lag=11", "", ("warning", "replication")),
            ("connected_slaves:0", "", ("error", "replication")),
            ("connected_clients:9001", "", ("warning", "clients")),
            ("connected_clients:9999", "maxclients 1", ("warning", "clients")),
            ("uptime_in_seconds:30\r\naof_rewrites:10", "", ("warning", "aof-rewrite")),
        ];
        for (info, setting, wanted) in cases {
            assert_eq!(found(&[info], &[setting]), [wanted], "{info:?} {setting:?}");
        }
    }

    #[test]
    fn what_is_near_a_bound_is_no_fault() {
        for (info, setting) in [
            ("aof_rewrites:600", ""),
            ("uptime_in_seconds:30\r\naof_rewrites:9", ""),
            ("used_memory:90000000", ""),
            ("used_memory:95000000\r\nmem_not_counted_for_evict:10000000", ""),
            ("connected_clients:9000", ""),
            ("min_slaves_good_slaves:1", "min-replicas-to-write 1"),
        ] {
            assert_eq!(found(&[info], &[setting]), [], "{info:?} {setting:?}");
        }
    }

    #[test]
    fn what_may_not_be_asked_is_said_once() {
        assert_eq!(words(&Server::read(Looked::Denied, Looked::Denied)), [("warning", "access")]);
        assert_eq!(words(&Server::read(Looked::There(INFO.to_owned()), Looked::Unknown)), []);
        let quiet = format!("{INFO}aof_enabled:0\r\n");
        let server = Server::read(Looked::There(quiet), Looked::Unknown);
        assert_eq!(words(&server), [("warning", "persistence")]);
        assert!(set_up(&server, "there", 1)[0].message.contains("since its last snapshot, or all"));
    }
}
