//! What settings default to on this machine: its memory, its name, the user's folders.

use std::path::{Path, PathBuf};

/// Facts of the machine and the user, read once at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The machine's name.
    pub host: String,
    /// This process.
    pub pid: u32,
    /// The user that runs it.
    pub user: String,
    /// What the machine has, or the cgroup may use if that is less, in bytes.
    pub memory_bytes: u64,
    /// Where this user's compiled handlers are kept.
    pub cache_dir: PathBuf,
    /// Where this user's session locks are.
    pub state_dir: PathBuf,
}

impl Machine {
    /// Asks the operating system.
    pub fn read() -> Self {
        let variable = |key: &str| std::env::var(key).ok().filter(|v| !v.is_empty());
        // SAFETY: geteuid has no precondition and cannot fail.
        #[allow(unsafe_code, reason = "the standard library has no way to ask for the user id")]
        let uid = unsafe { libc::geteuid() };
        Self {
            host: host(),
            pid: std::process::id(),
            user: variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| format!("uid{uid}")),
            memory_bytes: memory_bytes(),
            cache_dir: user_dir(variable("XDG_CACHE_HOME"), variable("HOME"), ".cache", uid),
            state_dir: user_dir(variable("XDG_STATE_HOME"), variable("HOME"), ".local/state", uid),
        }
    }

    /// What a runner is called unless somebody names it.
    pub fn runner_name(&self) -> String {
        format!("{}:{}", self.host, self.pid)
    }

    /// Who enqueues from this command line: at most 256 bytes without control characters.
    pub fn source(&self) -> String {
        let text = format!("cli:{}@{}", self.user, self.host);
        let clean: String = text.chars().filter(|c| !c.is_control()).collect();
        crate::outcome::capped(clean, 256)
    }
}

/// Lets this process have as many files open as the system allows it to: its soft limit is raised to its hard one. Each running
/// job, connection and process that compiles takes some.
///
/// # Errors
/// What the system says.
#[allow(unsafe_code, reason = "the standard library has no way to change limits")]
pub fn raise_open_files() -> std::io::Result<()> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit of ours, which the call fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    limits.rlim_cur = limits.rlim_max;
    // SAFETY: the pointer is to an rlimit of ours, which the call reads.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// A relative `XDG_*` is void by its specification. Without a home (a service user) the temporary
/// folder serves, named by user; whoever creates it makes it private.
fn user_dir(xdg: Option<String>, home: Option<String>, below_home: &str, uid: u32) -> PathBuf {
    if let Some(dir) = xdg.map(PathBuf::from).filter(|d| d.is_absolute()) {
        return dir.join("hourhand");
    }
    match home.map(PathBuf::from).filter(|d| d.is_absolute()) {
        Some(home) => home.join(below_home).join("hourhand"),
        None => std::env::temp_dir().join(format!("hourhand-{uid}")),
    }
}

/// The smaller of the machine's memory and the cgroup's limit; 1 GiB where neither can be read.
fn memory_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|t| meminfo_total(&t));
    let own = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = cgroup_files(&own).into_iter().filter_map(|p| read(&p)?.trim().parse::<u64>().ok());
    machine.into_iter().chain(limits).filter(|bytes| *bytes > 0).min().unwrap_or(1 << 30)
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// The files that may hold a limit for this process: its own cgroup and all above it (version 2), and
/// the memory controller's of version 1. In a container the root of the mount is the container's own.
fn cgroup_files(own: &str) -> Vec<PathBuf> {
    let mut files = vec![
        PathBuf::from("/sys/fs/cgroup/memory.max"),
        PathBuf::from("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => continue,
        };
        let path = Path::new(path.trim_start_matches('/'));
        // A path out of our view starts with `..`: the root above stands for it.
        if !path.starts_with("..") {
            files.extend(
                path.ancestors()
                    .filter(|a| !a.as_os_str().is_empty())
                    .map(|a| Path::new(root).join(a).join(file)),
            );
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(meminfo_total("MemTotal:       16 kB\nMemFree: 1 kB\n"), Some(16_384));
        assert_eq!(meminfo_total("nothing"), None);
        assert!(memory_bytes() > 0);
    }

    #[test]
    fn every_cgroup_above_the_process_counts() {
        let files = cgroup_files("0::/system.slice/hourhand.service\n");
        assert!(files.contains(&PathBuf::from("/sys/fs/cgroup/system.slice/hourhand.service/memory.max")));
        assert!(files.contains(&PathBuf::from("/sys/fs/cgroup/system.slice/memory.max")));
        assert_eq!(cgroup_files("0::/../../other\n").len(), 2);
        assert!(
            cgroup_files("9:memory:/a\n")
                .contains(&PathBuf::from("/sys/fs/cgroup/memory/a/memory.limit_in_bytes"))
        );
    }

    #[test]
    fn all_files_that_the_system_allows_may_be_open() {
        raise_open_files().expect("a soft limit may be raised to the hard one");
        let limits = std::fs::read_to_string("/proc/self/limits").expect("limits");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
        let mut words = line.split_whitespace();
        let (soft, hard) = (words.next(), words.next());
        assert!(soft.is_some() && soft == hard, "{line}");
    }

    #[test]
    fn folders_follow_the_xdg_rules() {
        let dir = |xdg: Option<&str>, home: Option<&str>| {
            user_dir(xdg.map(str::to_owned), home.map(str::to_owned), ".cache", 7)
        };
        assert_eq!(dir(Some("/c"), Some("/h")), PathBuf::from("/c/hourhand"));
        assert_eq!(dir(Some("relative"), Some("/h")), PathBuf::from("/h/.cache/hourhand"));
        assert_eq!(dir(None, None), std::env::temp_dir().join("hourhand-7"));
    }

    #[test]
    fn the_source_fits_into_a_job() {
        let mut machine = Machine::read();
        machine.user = "u\u{7}".repeat(300);
        let mut job = crate::job::NewJob::new(crate::names::Name::new("k").expect("a name"));
        job.source = machine.source();
        assert_eq!(job.validate(), Ok(()));
    }
}
