//! What INFO and CONFIG say of a server, read once.

use std::collections::BTreeMap;

use crate::queue::examination::Facts;

/// What a question brought that a user need not be allowed to ask, or a server to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked<T> {
    /// This.
    There(T),
    /// This user may not ask.
    Denied,
    /// This server does not answer it.
    Unknown,
}

impl<T> Looked<T> {
    fn as_ref(&self) -> Option<&T> {
        match self {
            Self::There(seen) => Some(seen),
            Self::Denied | Self::Unknown => None,
        }
    }
}

/// A server as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    info: Looked<BTreeMap<String, String>>,
    settings: Looked<BTreeMap<String, String>>,
}

/// What keeps data over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    /// Nothing.
    None,
    /// A snapshot now and then.
    Snapshots,
    /// A log of every change.
    AppendOnly,
    /// No log, and the server does not say whether there are snapshots.
    NoLog,
}

impl Server {
    /// `info` is the reply of INFO, `settings` that of CONFIG GET.
    pub(super) fn read(info: Looked<String>, settings: Looked<Vec<(String, String)>>) -> Self {
        let info = match info {
            Looked::There(text) => Looked::There(
                text.lines()
                    .filter_map(|line| line.trim().split_once(':'))
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
            ),
            Looked::Denied => Looked::Denied,
            Looked::Unknown => Looked::Unknown,
        };
        let settings = match settings {
            Looked::There(pairs) => Looked::There(pairs.into_iter().collect()),
            Looked::Denied => Looked::Denied,
            Looked::Unknown => Looked::Unknown,
        };
        Self { info, settings }
    }

    /// The questions that this user may not ask, as a shell gives ACL rules for them.
    pub(super) fn denied(&self) -> Vec<&'static str> {
        let mut denied = Vec::new();
        if self.info == Looked::Denied {
            denied.push("+info");
        }
        if self.settings == Looked::Denied {
            denied.push("'+config|get'");
        }
        denied
    }

    /// A field of INFO.
    pub(super) fn info(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.get(name).map(String::as_str)
    }

    /// A field of INFO that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.info(name)?.parse().ok()
    }

    /// A setting.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// A setting that is a number.
    pub(super) fn setting_number(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    pub(super) fn persistence(&self) -> Option<Persistence> {
        Some(match (self.info("aof_enabled")?, self.setting("save")) {
            ("1", _) => Persistence::AppendOnly,
            (_, None) => Persistence::NoLog,
            (_, Some("")) => Persistence::None,
            (_, Some(_)) => Persistence::Snapshots,
        })
    }

    /// Rewrites of the append-only file an hour, since the server's start.
    pub(super) fn rewrites_an_hour(&self) -> Option<f64> {
        let (rewrites, up_s) = (self.number("aof_rewrites")?, self.number("uptime_in_seconds")?);
        Some(rewrites as f64 * 3_600.0 / up_s.max(1) as f64)
    }

    /// The most memory that there is for data, and how much of it is free, in bytes; `None` where that is not said.
    pub(super) fn headroom(&self) -> Option<(u64, u64)> {
        let used = self.number("used_memory")?;
        match self.number("maxmemory")? {
            0 => {
                let all = self.number("total_system_memory").filter(|all| *all > 0)?;
                let resident = self.number("used_memory_rss").unwrap_or(used).max(used);
                Some((all, all.saturating_sub(resident)))
            }
            most => {
                let counted = used.saturating_sub(self.number("mem_not_counted_for_evict").unwrap_or(0));
                Some((most, most.saturating_sub(counted)))
            }
        }
    }

    /// How long ago the slowest replica was heard of, in seconds.
    pub(super) fn replica_lag_s(&self) -> Option<u64> {
        let replicas =
            self.info.as_ref()?.iter().filter(|(name, _)| {
                name.strip_prefix("slave").is_some_and(|rest| rest.parse::<u32>().is_ok())
            });
        replicas
            .filter_map(|(_, said)| said.split(',').find_map(|part| part.strip_prefix("lag=")?.parse().ok()))
            .max()
    }

    /// All that is worth knowing.
    pub(super) fn tell(&self, facts: &mut Facts) {
        let text = |name| self.info(name).map(str::to_owned);
        facts.add_known("version", text("redis_version"));
        facts.add_known("up_s", self.number("uptime_in_seconds"));
        facts.add_known(
            "persistence",
            self.persistence().map(|kept| match kept {
                Persistence::None => "none",
                Persistence::Snapshots => "snapshots",
                Persistence::AppendOnly => "append-only file",
                Persistence::NoLog => "no append-only file",
            }),
        );
        facts.add_known("appendfsync", self.setting("appendfsync"));
        facts.add_known("snapshots", self.setting("save"));
        if self.info("aof_enabled") == Some("1") {
            facts.add_known("aof_bytes", self.number("aof_current_size"));
            facts.add_known("aof_base_bytes", self.number("aof_base_size"));
            facts.add_known("aof_rewrite_percentage", self.setting_number("auto-aof-rewrite-percentage"));
            facts.add_known("aof_rewrite_min_bytes", self.setting_number("auto-aof-rewrite-min-size"));
            facts.add_known("aof_rewrites", self.number("aof_rewrites"));
            facts.add_known("aof_rewrites_an_hour", self.rewrites_an_hour());
        }
        facts.add_known("maxmemory_bytes", self.number("maxmemory"));
        facts.add_known("maxmemory_policy", text("maxmemory_policy"));
        facts.add_known("used_memory_bytes", self.number("used_memory"));
        facts.add_known("free_memory_bytes", self.headroom().map(|(_, free)| free));
        facts.add_known("role", text("role"));
        facts.add_known("replicas", self.number("connected_slaves"));
        facts.add_known("replica_lag_s", self.replica_lag_s());
        facts.add_known("min_replicas_to_write", self.setting_number("min-replicas-to-write"));
        facts.add_known("clients", self.number("connected_clients"));
        facts.add_known("clients_max", self.clients_max());
    }

    pub(super) fn clients_max(&self) -> Option<u64> {
        self.number("maxclients").or_else(|| self.setting_number("maxclients"))
    }
}
