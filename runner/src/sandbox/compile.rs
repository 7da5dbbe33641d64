//! Compiling, bounded in time and memory.
//!
//! A compiler at work cannot be stopped, and a small module can keep one busy for hours or let it ask for
//! gigabytes. So a runner has it done by a process of its own: its binary, started anew, which reads the
//! module and writes the compiled code. It may have so much memory, and it is killed after so much time. What
//! crashes it, such as a stack that overflows in a parser, crashes nothing else.
//!
//! Where it cannot be started, nothing is compiled: that is tried again later. Only where no such binary is named
//! ([`compile_with`]), as in most tests, threads of this process compile. Then a compilation that takes too long is
//! left behind, at low priority.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use rayon::ThreadPool;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::child::{COMMAND, Task};
use super::engine::CodeSettings;
use super::{LoadError, cache, size};

/// The most that a child may write, in bytes.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// How long, and how often, it is tried to start a child.
const START_TRIES: Duration = Duration::from_secs(3);
const START_EVERY: Duration = Duration::from_millis(100);
/// A child that has written all must be gone within this.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What is kept of its words, in bytes.
const SAID_BYTES_MAX: u64 = 64 << 10;

/// The binary that compiles.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// From now on, modules are compiled by processes that run `program`, which must be a `hourhand` of this very
/// build. The first word counts.
pub fn compile_with(program: PathBuf) {
    // Said twice is no matter: it is the same binary.
    let _ = PROGRAM.set(program);
}

/// What a compilation may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Wall time.
    pub(super) time_max: Duration,
    /// Memory of the process that compiles, in bytes.
    pub(super) memory_bytes_max: u64,
}

/// Compiled, and where a process of its own did it, in the form that the cache keeps.
pub(super) struct Compiled {
    pub(super) component: Component,
    pub(super) kept_form: Option<Vec<u8>>,
}

/// Compiles for one engine.
pub(super) struct Compiler {
    engine: Engine,
    settings: CodeSettings,
    pub(super) bounds: Bounds,
    /// Compile where no process can, apart from everybody's global pool.
    pub(super) threads: Mutex<Option<Arc<ThreadPool>>>,
}

impl Compiler {
    pub(super) fn new(engine: &Engine, settings: CodeSettings, bounds: Bounds) -> Self {
        Self { engine: engine.clone(), settings, bounds, threads: Mutex::new(None) }
    }

    /// Compiles `module`, whose form as a component is `component()`.
    pub(super) fn compile(
        &self,
        module: &[u8],
        component: impl FnOnce() -> Result<Vec<u8>, LoadError>,
    ) -> Result<Compiled, LoadError> {
        if let Some(program) = PROGRAM.get() {
            let child = self.start_child(program)?;
            return self.in_child(child, module);
        }
        let component = self.in_threads(component()?)?;
        Ok(Compiled { component, kept_form: None })
    }

    /// What is missing (a process, a file descriptor) may be free again in a moment.
    fn start_child(&self, program: &Path) -> Result<Child, LoadError> {
        let begun = crate::clock::monotonic();
        loop {
            match self.try_start_child(program) {
                Ok(child) => return Ok(child),
                Err(error) if crate::clock::monotonic().duration_since(begun) >= START_TRIES => {
                    return Err(LoadError::Unstarted(format!("{} ({error})", program.display())));
                }
                Err(_) => std::thread::sleep(START_EVERY),
            }
        }
    }

    fn try_start_child(&self, program: &Path) -> io::Result<Child> {
        let task = Task {
            settings: self.settings,
            compatibility: cache::engine_compatibility(&self.engine),
            memory_bytes_max: self.bounds.memory_bytes_max,
            time_max: self.bounds.time_max,
            parent: std::process::id(),
        };
        Command::new(program)
            .arg0("hourhand")
            .arg(COMMAND)
            .args(task.to_args())
            .env_clear()
            .current_dir("/")
            // Ctrl-C in a terminal is for the runner.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }

    fn in_child(&self, mut child: Child, module: &[u8]) -> Result<Compiled, LoadError> {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (done, answered) = mpsc::channel();
        let (answer, status, said) = std::thread::scope(|scope| {
            let thread = || std::thread::Builder::new().name("compile-pipe".to_owned());
            let said = (|| {
                thread().spawn_scoped(scope, move || {
                    // It may end before it has read all; its status says why.
                    let _ = stdin.map(|mut stdin| stdin.write_all(module));
                })?;
                thread().spawn_scoped(scope, move || {
                    // Nobody waits any more when this took too long.
                    let _ = done.send(read_all(stdout, CODE_BYTES_MAX + 1));
                })?;
                thread().spawn_scoped(scope, move || read_all(stderr, SAID_BYTES_MAX))
            })();
            let said = said.map_err(|error| {
                // The threads that did start end with it.
                let _ = ended(&mut child, None);
                LoadError::Unstarted(format!("no thread for its pipes ({error})"))
            })?;
            let answer = answered.recv_timeout(self.bounds.time_max).ok();
            let patience = answer.is_some().then_some(LAST_WORDS);
            let status = ended(&mut child, patience);
            Ok((answer, status, said.join().unwrap_or_default()))
        })?;
        let Some(answer) = answer else { return Err(self.too_slow()) };
        match status {
            Ok(status) if status.success() => self.taken(answer),
            Ok(status) => Err(self.failed(status, &answer, &String::from_utf8_lossy(&said))),
            Err(error) => Err(LoadError::Compile(format!("the process that compiles is lost: {error}"))),
        }
    }

    fn taken(&self, answer: Vec<u8>) -> Result<Compiled, LoadError> {
        if answer.len() as u64 > CODE_BYTES_MAX {
            let most = size(CODE_BYTES_MAX);
            return Err(LoadError::Compile(format!("its compiled code is larger than {most}")));
        }
        let damaged = || LoadError::Compile("its compiled code did not arrive whole".to_owned());
        let code = cache::checked(&answer).ok_or_else(damaged)?;
        // SAFETY: the code comes from our own binary, through a pipe that nobody else has, its hash is right,
        // and wasmtime checks version and settings.
        let component = unsafe { Component::deserialize(&self.engine, code) }
            .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
        Ok(Compiled { component, kept_form: Some(answer) })
    }

    fn too_slow(&self) -> LoadError {
        let most = self.bounds.time_max.as_secs_f64();
        LoadError::Compile(format!("it takes more than {most} s and was stopped: make its functions smaller"))
    }

    fn failed(&self, status: ExitStatus, answer: &[u8], said: &str) -> LoadError {
        if let Some(error) = super::child::refusal(status, answer) {
            return error;
        }
        let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let text = match status.signal() {
            Some(libc::SIGABRT) if said.contains("memory allocation") => self.too_large(),
            Some(libc::SIGKILL) => {
                "the system killed the process that compiles it, most likely for want of memory".to_owned()
            }
            Some(libc::SIGXCPU) => return self.too_slow(),
            Some(signal) => format!("the compiler crashed (signal {signal}: {line})"),
            None => format!("the compiler ended with {status}: {line}"),
        };
        LoadError::Compile(text)
    }

    fn too_large(&self) -> String {
        let most = size(self.bounds.memory_bytes_max);
        format!("compiling it takes more than {most} of memory: make its functions smaller")
    }

    /// Compiles in this process, and gives up waiting after a while. The compiler cannot be stopped: it goes
    /// on beside everything else, at low priority, and other modules get fresh threads.
    fn in_threads(&self, bytes: Vec<u8>) -> Result<Component, LoadError> {
        let threads = self.threads()?;
        let (done, compiled) = mpsc::channel();
        let engine = self.engine.clone();
        threads.spawn(move || {
            let compiled = catch_unwind(AssertUnwindSafe(|| Component::from_binary(&engine, &bytes)));
            // Nobody waits any more when this took too long.
            let _ = done.send(compiled);
        });
        match compiled.recv_timeout(self.bounds.time_max) {
            Ok(Ok(compiled)) => compiled.map_err(|error| LoadError::Compile(format!("{error:#}"))),
            Ok(Err(_)) => Err(LoadError::Compile("the compiler panicked".to_owned())),
            Err(_) => {
                *self.threads.lock() = None;
                let most = self.bounds.time_max.as_secs_f64();
                Err(LoadError::Compile(format!("it takes more than {most} s: make its functions smaller")))
            }
        }
    }

    fn threads(&self) -> Result<Arc<ThreadPool>, LoadError> {
        let mut threads = self.threads.lock();
        if let Some(threads) = &*threads {
            return Ok(Arc::clone(threads));
        }
        let fresh = rayon::ThreadPoolBuilder::new()
            .num_threads(thread_count())
            .thread_name(|n| format!("compile-{n}"))
            .start_handler(|_| give_way())
            .build()
            .map_err(|error| LoadError::Compile(format!("cannot start the compile threads: {error}")))?;
        Ok(Arc::clone(threads.insert(Arc::new(fresh))))
    }
}

/// Threads that compile one module.
pub(super) fn thread_count() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(4))
}

/// Lets this thread, and those that it starts, compute only where others leave room: a large module must not
/// delay jobs.
pub(super) fn give_way() {
    const NICENESS: libc::c_int = 10;
    // SAFETY: 0 means the calling thread (Linux counts niceness by thread); nothing is read or written.
    // Where it fails, the thread merely competes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// What can be read, of so many bytes. A pipe that breaks ends it: the child's status says why.
fn read_all(pipe: Option<impl Read>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _ = pipe.take(most).read_to_end(&mut bytes);
    }
    bytes
}

/// Waits for the child's end, and kills it when that does not come in time; at once without `patience`.
fn ended(child: &mut Child, patience: Option<Duration>) -> io::Result<ExitStatus> {
    const LOOK_EVERY: Duration = Duration::from_millis(5);
    let asked = crate::clock::monotonic();
    while patience.is_some_and(|patience| crate::clock::monotonic().duration_since(asked) < patience) {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    child.kill()?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{SandboxConfig, engine};

    #[test]
    fn a_child_that_cannot_be_started_is_no_fault_of_the_module() {
        let (engine, settings) = engine::build_unpooled(&SandboxConfig::default()).unwrap();
        let bounds = Bounds { time_max: Duration::from_secs(100), memory_bytes_max: 1 << 30 };
        let compiler = Compiler::new(&engine, settings, bounds);
        let error = compiler.start_child(Path::new("/nowhere/hourhand")).unwrap_err();
        assert!(matches!(&error, LoadError::Unstarted(_)), "{error}");
        let said = error.to_string();
        assert!(
            said.starts_with("it does not compile: cannot start the process that compiles: /nowhere/"),
            "{said}"
        );
    }

    #[test]
    fn a_compilation_that_takes_too_long_is_left_behind_and_the_next_one_is_not_in_its_way() {
        const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";
        let (engine, settings) = engine::build_unpooled(&SandboxConfig::default()).unwrap();
        let bounds = Bounds { time_max: Duration::from_secs(100), memory_bytes_max: 1 << 30 };
        let mut compiler = Compiler::new(&engine, settings, bounds);
        // Its only threads are busy for as long as the test wants.
        let (release, busy) = mpsc::channel::<()>();
        let busy = Arc::new(Mutex::new(busy));
        for _ in 0..4 {
            let busy = Arc::clone(&busy);
            compiler.threads().unwrap().spawn(move || {
                // Ends when the test drops the sender.
                let _ = busy.lock().recv();
            });
        }
        compiler.bounds.time_max = Duration::from_millis(50);
        let error = compiler.in_threads(EMPTY.to_vec()).map(drop).unwrap_err();
        assert!(error.to_string().contains("takes more than"), "{error}");
        compiler.bounds.time_max = Duration::from_secs(100);
        assert!(compiler.in_threads(EMPTY.to_vec()).is_ok());
        drop(release);
    }
}
