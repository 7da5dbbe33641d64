//! The process that compiles one module: its arguments, its limits and its answer.
//!
//! It is this binary with [`COMMAND`] as its first argument; nobody types that. The module comes on stdin. The
//! compiled code goes to stdout, as the cache keeps it; where there is none, what is wrong goes there, and
//! the exit code says so.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use super::engine::{self, Allocation, CodeSettings};
use super::{LoadError, cache, check, compile, facts, load};

/// Makes a process of this binary one that compiles.
pub const COMMAND: &str = "__compile";

/// Exit code: the module is refused, and the answer says why.
const REFUSED: u8 = 10;
/// Exit code: it was started by nobody who compiles.
const WRONG_USE: u8 = 2;
/// Address space beyond the memory that it may have, in bytes: code, stacks, and what is only reserved.
const ADDRESSES_BEYOND: u64 = 4 << 30;
/// Processor time beyond the wall time of all threads.
const CPU_BEYOND: Duration = Duration::from_secs(10);

/// What it is started with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Task {
    /// What the code depends on.
    pub(super) settings: CodeSettings,
    /// The same as the engine that is to run the code says it.
    pub(super) compatibility: u64,
    /// Memory that it may have, in bytes.
    pub(super) memory_bytes_max: u64,
    /// After this it is killed.
    pub(super) time_max: Duration,
    /// Who started it.
    pub(super) parent: u32,
}

impl Task {
    pub(super) fn to_args(self) -> [String; 6] {
        [
            self.settings.allocation.as_str().to_owned(),
            self.settings.memory_bytes_max.to_string(),
            self.compatibility.to_string(),
            self.memory_bytes_max.to_string(),
            self.time_max.as_millis().to_string(),
            self.parent.to_string(),
        ]
    }

    fn from_args(args: &[OsString]) -> Option<Self> {
        let args: Vec<&str> = args.iter().map(|arg| arg.to_str()).collect::<Option<_>>()?;
        let [allocation, handler_bytes, compatibility, memory, time, parent] = args[..] else { return None };
        Some(Self {
            settings: CodeSettings {
                allocation: Allocation::from_name(allocation)?,
                memory_bytes_max: handler_bytes.parse().ok()?,
            },
            compatibility: compatibility.parse().ok()?,
            memory_bytes_max: memory.parse().ok()?,
            time_max: Duration::from_millis(time.parse().ok()?),
            parent: parent.parse().ok()?,
        })
    }
}

/// Compiles what comes on stdin, as the arguments after [`COMMAND`] say.
pub fn compile_child(args: &[OsString]) -> ExitCode {
    let Some(task) = Task::from_args(args) else {
        // Nobody reads it but a person who has typed the command.
        let _ =
            writeln!(io::stderr(), "{COMMAND} is for hourhand's own use: it compiles a handler for a runner");
        return ExitCode::from(WRONG_USE);
    };
    let compiled = bounded(&task)
        .map_err(|error| LoadError::Compile(format!("its compilation cannot be bounded: {error}")))
        .and_then(|()| {
            catch_unwind(AssertUnwindSafe(|| compiled(&task)))
                .unwrap_or_else(|_| Err(LoadError::Compile("the compiler panicked".to_owned())))
        });
    let mut stdout = io::stdout().lock();
    let (written, code) = match &compiled {
        Ok(code) => (cache::write_framed(&mut stdout, code), ExitCode::SUCCESS),
        Err(error) => (stdout.write_all(&answer_of(error)), ExitCode::from(REFUSED)),
    };
    // Whoever started it has gone.
    written.and_then(|()| stdout.flush()).map_or(ExitCode::FAILURE, |()| code)
}

fn compiled(task: &Task) -> Result<Vec<u8>, LoadError> {
    let failed = |error: String| LoadError::Compile(error);
    // Before the module is looked at.
    rayon::ThreadPoolBuilder::new()
        .num_threads(compile::thread_count())
        .build_global()
        .map_err(|error| LoadError::Unstarted(format!("it has no threads ({error})")))?;
    let engine = engine::build_for(task.settings).map_err(|error| failed(error.to_string()))?;
    if cache::engine_compatibility(&engine) != task.compatibility {
        return Err(failed("the process that compiles is of another version than this runner".to_owned()));
    }
    let mut module = Vec::new();
    io::stdin()
        .lock()
        .read_to_end(&mut module)
        .map_err(|error| failed(format!("cannot be read: {error}")))?;
    let facts = facts::read(&module)?;
    let role = check::role(&facts)?;
    let component = load::as_component(&module, &facts, role)?;
    drop(module);
    engine.precompile_component(&component).map_err(|error| failed(format!("{error:#}")))
}

/// Takes away what it does not need.
fn bounded(task: &Task) -> io::Result<()> {
    compile::give_way();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: ignoring a signal installs no handler. A service manager tells all processes of a service to
        // end: the runner decides when, and we go with it.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: prctl with these arguments reads and writes no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if std::os::unix::process::parent_id() != task.parent {
        // It was killed before we asked to die with it.
        return Err(io::Error::other("who started it is gone"));
    }
    let cpu = (task.time_max * compile::thread_count() as u32 + CPU_BEYOND).as_secs();
    limit(libc::RLIMIT_DATA, task.memory_bytes_max)?;
    limit(libc::RLIMIT_AS, task.memory_bytes_max.saturating_add(ADDRESSES_BEYOND))?;
    limit(libc::RLIMIT_CPU, cpu)?;
    limit(libc::RLIMIT_CORE, 0)
}

/// Sets a limit, unless there is a lower one already.
fn limit(what: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to an rlimit of ours, which the call fills.
    if unsafe { libc::getrlimit(what, &raw mut limits) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let lower = most.min(limits.rlim_max);
    let limits = libc::rlimit { rlim_cur: lower.min(limits.rlim_cur), rlim_max: lower };
    // SAFETY: the pointer is to an rlimit of ours, which the call reads.
    if unsafe { libc::setrlimit(what, &raw const limits) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A refusal as it is sent: a letter for what it is, then the text.
fn answer_of(error: &LoadError) -> Vec<u8> {
    let letter = match error {
        LoadError::Incomplete(_) => b'i',
        LoadError::Refused(_) => b'r',
        LoadError::Compile(_) => b'c',
        LoadError::Unstarted(_) => b'u',
    };
    let text = match error {
        LoadError::Incomplete(text)
        | LoadError::Refused(text)
        | LoadError::Compile(text)
        | LoadError::Unstarted(text) => text,
    };
    [&[letter], text.as_bytes()].concat()
}

/// The refusal that a child sent, if it sent one.
pub(super) fn refusal(status: ExitStatus, answer: &[u8]) -> Option<LoadError> {
    if status.code() != Some(i32::from(REFUSED)) {
        return None;
    }
    let (letter, text) = answer.split_first()?;
    let text = String::from_utf8_lossy(text).into_owned();
    match letter {
        b'i' => Some(LoadError::Incomplete(text)),
        b'r' => Some(LoadError::Refused(text)),
        b'c' => Some(LoadError::Compile(text)),
        b'u' => Some(LoadError::Unstarted(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_task_is_read_as_it_was_written() {
        for allocation in [Allocation::Pool, Allocation::TightPool, Allocation::OnDemand] {
            let task = Task {
                settings: CodeSettings { allocation, memory_bytes_max: 7 << 20 },
                compatibility: u64::MAX,
                memory_bytes_max: 5,
                time_max: Duration::from_millis(1_500),
                parent: 4_711,
            };
            let args: Vec<OsString> = task.to_args().map(OsString::from).into();
            assert_eq!(Task::from_args(&args), Some(task));
            assert_eq!(Task::from_args(&args[1..]), None);
        }
    }

    #[test]
    fn a_refusal_arrives_as_what_it_is() {
        let refused = ExitStatus::from_raw(i32::from(REFUSED) << 8);
        for error in [
            LoadError::Incomplete("a".to_owned()),
            LoadError::Refused(String::new()),
            LoadError::Compile("ü\nb".to_owned()),
            LoadError::Unstarted("d".to_owned()),
        ] {
            assert_eq!(refusal(refused, &answer_of(&error)), Some(error));
        }
        assert_eq!(refusal(ExitStatus::from_raw(0), b"rno"), None);
        assert_eq!(refusal(refused, b""), None);
    }
}
