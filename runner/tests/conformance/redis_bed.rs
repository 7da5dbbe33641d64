//! The Redis store's bed: a server of its own, and a hand inside it.

#[path = "../../../tests/harness/redis_server.rs"]
mod redis_server;

use async_trait::async_trait;
use hourhand::job::JobView;
use hourhand::queue::redis::{RedisOptions, RedisStore, ScriptEdit};
use hourhand::queue::{Lane, SessionId};
use redis::{Commands, Connection};
use redis_server::RedisServer;

use crate::bed::{Bed, NAMESPACE, name};
use crate::redis_audit::audit;

/// A Redis with one namespace in use.
pub(crate) struct RedisBed {
    server: RedisServer,
    store: RedisStore,
}

/// The fault that tests/mutants/run.sh wants in the scripts: a JSON array of file, text, replacement.
fn faults() -> Vec<ScriptEdit> {
    let Ok(text) = std::env::var("HOURHAND_MUTANT") else { return Vec::new() };
    let (file, find, replace): (String, String, String) = serde_json::from_str(&text).expect("a mutant");
    vec![ScriptEdit { file, find, replace }]
}

impl RedisBed {
    fn connect(&self, namespace: &str) -> RedisStore {
        let options = RedisOptions { script_edits: faults(), ..RedisOptions::default() };
        RedisStore::connect(&self.server.url(), &name(namespace), options).expect("a URL")
    }

    /// The store of the bed's first namespace with other options.
    pub(crate) fn connect_with(&self, options: RedisOptions) -> RedisStore {
        RedisStore::connect(&self.server.url(), &name(NAMESPACE), options).expect("a URL")
    }

    pub(crate) fn client(&self) -> Connection {
        self.server.client()
    }
}

pub(crate) fn key(rest: &str) -> String {
    format!("{NAMESPACE}:{{0}}:{rest}")
}

fn shown(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

fn pairs(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<String> {
    pairs.iter().map(|(name, value)| format!("{} {}", shown(name), shown(value))).collect()
}

#[async_trait]
impl Bed for RedisBed {
    type S = RedisStore;

    async fn start() -> Self {
        let server = RedisServer::start();
        let options = RedisOptions { script_edits: faults(), ..RedisOptions::default() };
        let store = RedisStore::connect(&server.url(), &name(NAMESPACE), options).expect("a URL");
        Self { server, store }
    }

    fn store(&self) -> &RedisStore {
        &self.store
    }

    async fn open(&self, namespace: &str) -> RedisStore {
        self.connect(namespace)
    }

    async fn lose_record(&self, job: &JobView) {
        let sequence = job.job.id.as_str().split('-').next().expect("a generated id");
        let gone: u32 = self.client().hdel(key("jobs"), format!("{sequence:0>14}")).expect("removed");
        assert_eq!(gone, 1, "the record was there");
    }

    async fn spoil_index(&self, lane: &Lane) {
        let index = key(&format!("due:{}:{}:n", lane.queue, lane.kind));
        let mut client = self.client();
        let entries = [(-1, "00000000000901"), (0, "00000000000902"), (5, "not one of ours")];
        for (score, member) in entries {
            let _: u32 = client.zadd(&index, member, score).expect("added");
        }
    }

    async fn foreign_data(&self) -> Vec<u8> {
        let mut client = self.client();
        let _: () = client.del(key("totals")).expect("removed");
        let _: () = client.set(key("totals"), "foreign").expect("set");
        self.contents().await
    }

    async fn contents(&self) -> Vec<u8> {
        let mut client = self.client();
        let mut keys: Vec<Vec<u8>> = client.keys("*").expect("keys of a small test");
        keys.sort();
        // Not DUMP, which tells in what order a hash happens to be kept.
        let mut all = Vec::new();
        for key in keys {
            let kind: String = redis::cmd("TYPE").arg(&key).query(&mut client).expect("a type");
            let mut values: Vec<String> = match kind.as_str() {
                "hash" => pairs(client.hgetall(&key).expect("a hash")),
                "zset" => pairs(client.zrange_withscores(&key, 0, -1).expect("a sorted set")),
                "set" => client
                    .smembers::<_, Vec<Vec<u8>>>(&key)
                    .expect("a set")
                    .iter()
                    .map(|bytes| shown(bytes))
                    .collect(),
                "none" => continue,
                _ => vec![shown(&client.get::<_, Vec<u8>>(&key).expect("a string"))],
            };
            values.sort();
            all.extend(key);
            all.extend(format!(" {kind} {}\n", values.join(" ")).into_bytes());
        }
        all
    }

    async fn audit(&self) -> Vec<String> {
        audit(&mut self.client(), NAMESPACE)
    }

    async fn backup(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut client = self.client();
        let keys: Vec<Vec<u8>> = client.keys("*").expect("keys of a small test");
        // The answers to calls go by themselves.
        let once = key("once:").into_bytes();
        let kept = keys.into_iter().filter(|key| !key.starts_with(&once));
        let dumped = kept.map(|key| {
            let value = redis::cmd("DUMP").arg(&key).query(&mut client).expect("a value");
            (key, value)
        });
        dumped.collect()
    }

    async fn go_back(&self, to: &[(Vec<u8>, Vec<u8>)]) {
        let mut client = self.client();
        let _: () = redis::cmd("FLUSHALL").query(&mut client).expect("emptied");
        for (key, value) in to {
            let _: () =
                redis::cmd("RESTORE").arg(key).arg(0).arg(value).query(&mut client).expect("put back");
        }
    }

    async fn lose_session(&self, session: &SessionId) {
        let gone: u32 = self.client().hdel(key("sessions"), &*session.0).expect("removed");
        assert_eq!(gone, 1, "the session was registered");
    }
}
