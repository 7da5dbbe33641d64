//! The invariants of the layout in Redis, checked from outside: every job is in exactly one index, every
//! index entry has a record, and every counter is what it counts.

use std::collections::{BTreeMap, HashMap};

use redis::{Commands, Connection};

type Fields = HashMap<String, Vec<u8>>;

/// What is wrong; empty when all is well, and was never otherwise.
pub(crate) fn audit(client: &mut Connection, namespace: &str) -> Vec<String> {
    let mut wrong = audit_mended(client, namespace);
    for aside in ["orphans", "dirt"] {
        let there: u64 = client.zcard(format!("{namespace}:{{0}}:{aside}")).expect("a set");
        if there > 0 {
            wrong.push(format!("{there} {aside}"));
        }
    }
    wrong
}

/// What is wrong; empty when all is well, whatever was set aside.
pub(crate) fn audit_mended(client: &mut Connection, namespace: &str) -> Vec<String> {
    let prefix = format!("{namespace}:{{0}}:");
    let mut audit = Audit { client, prefix, wrong: Vec::new() };
    audit.places();
    audit.ids();
    audit.counters();
    audit.state();
    audit.wrong
}

struct Audit<'a> {
    client: &'a mut Connection,
    prefix: String,
    wrong: Vec<String>,
}

impl Audit<'_> {
    fn hash(&mut self, name: &str) -> Fields {
        self.client.hgetall(format!("{}{name}", self.prefix)).expect("a hash")
    }

    /// Every index of a kind with its members.
    fn indexes(&mut self, kind: &str) -> BTreeMap<String, Vec<(String, f64)>> {
        let keys: Vec<String> =
            self.client.keys(format!("{}{kind}:*", self.prefix)).expect("keys of a small test");
        let mut indexes = BTreeMap::new();
        for key in keys {
            let members = self.client.zrange_withscores(&key, 0, -1).expect("an index");
            indexes.insert(key[self.prefix.len()..].to_owned(), members);
        }
        indexes
    }

    fn note(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }

    /// Each record is in one due index, one finished index or under one lease.
    fn places(&mut self) {
        let (jobs, past, running) = (self.hash("jobs"), self.hash("past"), self.hash("running"));
        let mut places: HashMap<String, Vec<String>> = HashMap::new();
        for (key, members) in self.indexes("due") {
            for (member, score) in members {
                let rid = if member.len() == 14 { member.clone() } else { member[14..28].to_owned() };
                if let Some(past) = past.get(&rid) {
                    let header = header(past);
                    let expected = format!("{}{rid}{}.{}", header[5], header[1], header[3]);
                    self.note(
                        header[0] == "w" && member == expected && header[4] == format!("{score}"),
                        || format!("{rid} waits as {member} at {score} but its past says {header:?}"),
                    );
                    let suspect = header[3].parse::<u32>().unwrap_or(0) >= 2;
                    self.note(key.ends_with(":s") == suspect, || {
                        format!("{rid} with {} crashes in {key}", header[3])
                    });
                } else {
                    self.note(member.len() == 14, || format!("{rid} has the member {member} and no past"));
                }
                places.entry(rid).or_default().push(key.clone());
            }
        }
        for (key, members) in self.indexes("done") {
            let mut bytes = 0;
            for (member, _) in members {
                let parts: Vec<&str> = member.splitn(6, ':').collect();
                bytes += parts[1].parse::<u64>().expect("bytes");
                let fits =
                    past.get(parts[0]).is_some_and(|past| key.ends_with(&format!(":{}", header(past)[0])));
                self.note(fits, || format!("{} in {key} and its past says otherwise", parts[0]));
                places.entry(parts[0].to_owned()).or_default().push(key.clone());
            }
            let field = key.trim_start_matches("done:").to_owned();
            let counted = number(&self.hash("sizes"), &field);
            self.note(counted == bytes as i64, || format!("sizes {field} is {counted}, not {bytes}"));
        }
        for rid in running.keys() {
            places.entry(rid.clone()).or_default().push("running".to_owned());
        }
        for rid in jobs.keys() {
            let of = places.remove(rid).unwrap_or_default();
            self.note(of.len() == 1, || format!("{rid} is in {of:?}"));
        }
        for (rid, of) in places {
            self.note(false, || format!("{rid} has no record and is in {of:?}"));
        }
        for rid in past.keys() {
            self.note(jobs.contains_key(rid), || format!("{rid} has a past and no record"));
        }
        for field in self.hash("logs").keys() {
            let rid = field.split(':').next().unwrap_or_default();
            self.note(jobs.contains_key(rid), || format!("log {field} has no record"));
        }
        for rid in self.hash("recalls").keys() {
            self.note(running.contains_key(rid), || format!("{rid} is recalled and has no lease"));
        }
    }

    /// Each explicit id points at a record or is remembered, and the memory's size is what it holds.
    fn ids(&mut self) {
        let jobs = self.hash("jobs");
        let memory: Vec<String> =
            self.client.zrange(format!("{}memory", self.prefix), 0, -1).expect("the memory");
        for (field, value) in self.hash("ids") {
            let value = String::from_utf8_lossy(&value).into_owned();
            let known =
                if value.starts_with('~') { memory.contains(&field) } else { jobs.contains_key(&value) };
            self.note(known, || format!("id {field} is {value}"));
        }
        let expected: usize = memory.iter().map(|field| 2 * field.len() + 200).sum();
        let counted = number(&self.hash("meta"), "id_bytes");
        self.note(counted == expected as i64, || format!("id_bytes is {counted}, not {expected}"));
    }

    /// Each bucket is listed with what it holds, and with a number that was given for each version.
    fn state(&mut self) {
        let keys: Vec<String> =
            self.client.keys(format!("{}state:*", self.prefix)).expect("keys of a small test");
        let sequence: u64 = self.client.get(format!("{}seq", self.prefix)).unwrap_or(0);
        let mut holdings = self.hash("holdings");
        let mut listed: Vec<String> =
            self.client.zrange(format!("{}buckets", self.prefix), 0, -1).expect("the buckets");
        for key in keys {
            let bucket = key.rsplit(':').next().unwrap_or_default().to_owned();
            let entries = self.hash(&format!("state:{bucket}"));
            let mut bytes = 0;
            for (field, value) in &entries {
                let space = value.iter().position(|b| *b == b' ').expect("a version");
                let version: u64 = String::from_utf8_lossy(&value[..space]).parse().expect("a number");
                bytes += field.len() + value.len() - space - 1;
                self.note((1..=sequence).contains(&version), || {
                    format!("{field} of {bucket} is of {version}")
                });
            }
            let held = holdings.remove(&bucket).unwrap_or_default();
            let held = String::from_utf8_lossy(&held).into_owned();
            let expected = format!("{} {bytes}", entries.len());
            self.note(held == expected, || format!("{bucket} holds {expected}, told {held}"));
            let known = listed.iter().position(|of| *of == bucket);
            self.note(known.is_some(), || format!("{bucket} is not listed"));
            known.map(|at| listed.remove(at));
        }
        self.note(holdings.is_empty() && listed.is_empty(), || format!("empty: {holdings:?} {listed:?}"));
    }

    /// The counters of leases fit the leases.
    fn counters(&mut self) {
        let (mut by_session, mut by_queue) = (HashMap::<String, i64>::new(), HashMap::<String, i64>::new());
        for lease in self.hash("running").values() {
            let text = String::from_utf8_lossy(lease).into_owned();
            let words: Vec<&str> = text.split(' ').collect();
            *by_session.entry(words[0].to_owned()).or_default() += 1;
            *by_queue.entry(format!("{}:running", words[9])).or_default() += 1;
        }
        let holders = self.hash("holders");
        for session in holders.keys().chain(by_session.keys()) {
            let (counted, there) = (number(&holders, session), by_session.get(session).copied().unwrap_or(0));
            self.note(counted == there, || format!("{session} holds {there}, counted {counted}"));
        }
        let totals = self.hash("totals");
        for (field, _) in totals.iter().filter(|(field, _)| field.ends_with(":running")) {
            let (counted, there) = (number(&totals, field), by_queue.get(field).copied().unwrap_or(0));
            self.note(counted == there, || format!("{field} is {counted}, not {there}"));
        }
    }
}

/// The words of a past's first line.
fn header(past: &[u8]) -> Vec<String> {
    let line = past.split(|b| *b == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).split(' ').map(str::to_owned).collect()
}

fn number(fields: &Fields, field: &str) -> i64 {
    fields.get(field).map_or(0, |value| String::from_utf8_lossy(value).parse().expect("a number"))
}
