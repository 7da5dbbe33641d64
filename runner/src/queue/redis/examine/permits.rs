//! What this user may do: asked of the server by one script, before a call fails for it.

use crate::queue::redis::RedisStore;
use crate::queue::redis::link::Repeat;
use crate::queue::redis::reply::Items;
use crate::queue::{Finding, Severity, StoreError};

/// Commands on keys that scripts and calls use.
const ON_KEYS: [&str; 35] = [
    "GET",
    "SET",
    "TYPE",
    "PTTL",
    "RENAMENX",
    "HDEL",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HINCRBY",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HSCAN",
    "HSET",
    "HSETNX",
    "HSTRLEN",
    "HVALS",
    "SADD",
    "SCARD",
    "SISMEMBER",
    "SMEMBERS",
    "SMISMEMBER",
    "SREM",
    "SSCAN",
    "WATCH",
    "ZADD",
    "ZCARD",
    "ZCOUNT",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZREM",
    "ZREMRANGEBYRANK",
    "ZSCAN",
    "ZSCORE",
];
/// What an enqueue that waits for replicas needs beyond that, on a key and without.
const OF_REPLICAS: [&str; 2] = ["EXPIRE", "WAIT"];
/// Commands without keys.
const ON_NOTHING: [&str; 4] = ["TIME", "SCAN", "MULTI", "EXEC"];
/// Commands on the channel of wake-ups.
const ON_CHANNEL: [&str; 2] = ["PUBLISH", "SUBSCRIBE"];
/// Those that the doctor alone uses: runners do without.
const OF_THE_DOCTOR: [&str; 8] = ["SCAN", "SSCAN", "ZSCAN", "WATCH", "MULTI", "EXEC", "TYPE", "RENAMENX"];

impl RedisStore {
    pub(super) async fn refusals(&self) -> Result<Vec<Finding>, StoreError> {
        let place = self.link.place();
        let channel = self.keys.wake_channel();
        let mut args: Vec<&str> = vec![self.keys.global("seq"), &channel];
        let [on_key, on_nothing] = OF_REPLICAS;
        let waits = self.replicas_wanted() > 0;
        args.extend(ON_KEYS);
        args.extend(waits.then_some(on_key));
        args.push("");
        args.extend(ON_NOTHING);
        args.extend(waits.then_some(on_nothing));
        args.push("");
        args.extend(ON_CHANNEL);
        let keys: [&str; 0] = [];
        let mut refused = Vec::new();
        match self.link.script(&self.scripts.permits, &keys, &args, Repeat::Once).await {
            Ok(reply) => {
                let mut items = Items::of(reply)?;
                while !items.is_empty() {
                    refused.push(items.text()?);
                }
            }
            // Scripts are all that we have.
            Err(StoreError::Refused(text)) if text.contains("NOPERM") => {
                let message = format!("this user may not run scripts: {text}");
                let fix =
                    format!("redis-cli ACL SETUSER <user> +eval +evalsha '~{}:*'", self.keys.namespace());
                return Ok(vec![Finding::around("access", Severity::Error, place, message, fix)]);
            }
            Err(StoreError::Refused(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        Ok(judge(&refused, self.keys.namespace().as_str(), place))
    }
}

/// What is to be said of commands that are refused on our names.
fn judge(refused: &[String], namespace: &str, place: &str) -> Vec<Finding> {
    let is = |command: &str, list: &[&str]| list.contains(&command);
    let mut found = Vec::new();
    if ON_KEYS.iter().all(|command| refused.iter().any(|known| known == command)) {
        let message = format!("this user may not use the keys {namespace}:*");
        let fix = format!("redis-cli ACL SETUSER <user> '~{namespace}:*'");
        return vec![Finding::around("access", Severity::Error, place, message, fix)];
    }
    let mut tell = |severity, what: &str, list: Vec<&str>| {
        if !list.is_empty() {
            let names: Vec<String> = list.iter().map(|name| name.to_lowercase()).collect();
            let grants: Vec<String> = names.iter().map(|name| format!("+{name}")).collect();
            let channels = if list.iter().any(|c| is(c, &ON_CHANNEL)) {
                format!(" '&{namespace}:*'")
            } else {
                String::new()
            };
            found.push(Finding::around(
                "access",
                severity,
                place,
                format!("this user may not {what}: {}", names.join(", ")),
                format!("redis-cli ACL SETUSER <user> {}{channels}", grants.join(" ")),
            ));
        }
    };
    let of = |list: &dyn Fn(&str) -> bool| refused.iter().map(String::as_str).filter(|c| list(c)).collect();
    let beside = |c: &str| is(c, &OF_THE_DOCTOR) || is(c, &ON_CHANNEL) || is(c, &OF_REPLICAS);
    tell(Severity::Error, "do what jobs need", of(&|c| !beside(c)));
    tell(Severity::Error, "wait for replicas, as wait_replicas asks", of(&|c| is(c, &OF_REPLICAS)));
    tell(Severity::Warning, "do what the doctor needs", of(&|c| is(c, &OF_THE_DOCTOR)));
    tell(
        Severity::Warning,
        "signal that jobs have come, so they may start up to a second late",
        of(&|c| is(c, &ON_CHANNEL)),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_named_with_the_rule_that_grants_it() {
        let refused: Vec<String> =
            ["HSET", "EXPIRE", "TIME", "WAIT", "SCAN", "PUBLISH"].map(str::to_owned).to_vec();
        let found = judge(&refused, "shop", "there");
        let said: Vec<_> = found.iter().map(|f| (f.severity, f.fix.as_deref().unwrap_or_default())).collect();
        assert_eq!(
            said,
            [
                (Severity::Error, "redis-cli ACL SETUSER <user> +hset +time"),
                (Severity::Error, "redis-cli ACL SETUSER <user> +expire +wait"),
                (Severity::Warning, "redis-cli ACL SETUSER <user> +scan"),
                (Severity::Warning, "redis-cli ACL SETUSER <user> +publish '&shop:*'"),
            ]
        );
        let all: Vec<String> = ON_KEYS.map(str::to_owned).to_vec();
        let found = judge(&all, "shop", "there");
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("the keys shop:*"), "{found:?}");
        assert_eq!(judge(&[], "shop", "there"), []);
    }

    #[test]
    fn every_command_of_the_scripts_is_asked_for() {
        let scripts = crate::queue::redis::scripts::Scripts::load(&[]).expect("they resolve");
        let listed: Vec<&str> = ON_KEYS.iter().chain(&ON_NOTHING).chain(&ON_CHANNEL).copied().collect();
        for body in scripts.bodies() {
            for call in body.split("call('").skip(1) {
                let name = call.split('\'').next().unwrap_or_default();
                assert!(listed.contains(&name), "{name} is not asked for");
            }
        }
    }
}
