//! A handler's project: how it is built, and where its modules are then.
//!
//! Three kinds of folders are known: a crate or a workspace of Rust (`Cargo.toml`), a project with a build script
//! of npm (`package.json` with `scripts.build`), and one with a script of its own (`build.sh`).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::stage::Artifact;

/// Where projects without Cargo leave their modules: beside their files, or in one of these.
const OUTPUT_FOLDERS: [&str; 3] = ["", "dist", "build"];
/// What a folder must be, for messages.
pub(in crate::cli) const WHAT_IS_ONE: &str =
    "a folder with a Cargo.toml, a package.json with a build script, or a build.sh";

/// How a project is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Cargo,
    Npm,
    Script,
}

/// A folder that can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Project {
    /// The folder.
    pub(in crate::cli) dir: PathBuf,
    tool: Tool,
}

/// Why a build gave nothing.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum BuildError {
    /// The tool ran and said what is wrong.
    #[error("{tool} failed ({status}): what it said is above")]
    Failed {
        /// What ran.
        tool: String,
        /// How it ended.
        status: std::process::ExitStatus,
    },
    /// The tool could not be run.
    #[error("cannot run {tool}: {error}")]
    NoTool {
        /// What should have run.
        tool: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Nothing to load came of it.
    #[error("{0}")]
    NoModule(String),
    /// Somebody stopped it.
    #[error("the build was stopped")]
    Stopped,
}

/// Stops builds: the running one, and all that would come.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct BuildStop(Arc<Mutex<Stopping>>);

#[derive(Debug, Default)]
struct Stopping {
    told: bool,
    /// The process group of the running build.
    group: Option<i32>,
}

impl BuildStop {
    /// Ends the running build with everything that it started, and lets no other begin.
    pub(in crate::cli) fn stop(&self) {
        let mut stopping = self.0.lock();
        stopping.told = true;
        if let Some(group) = stopping.group {
            signal(group, libc::SIGTERM);
        }
    }

    /// Whether it was told to.
    pub(in crate::cli) fn is_told(&self) -> bool {
        self.0.lock().told
    }

    /// Starts a process in a group of its own, unless builds are stopped.
    fn spawn(&self, command: &mut Command) -> std::io::Result<Option<Child>> {
        let mut stopping = self.0.lock();
        if stopping.told {
            return Ok(None);
        }
        let child = command.process_group(0).spawn()?;
        stopping.group = i32::try_from(child.id()).ok();
        Ok(Some(child))
    }

    /// The build has ended: its number may soon be somebody else's. Called before the process is waited for.
    fn ended(&self) {
        self.0.lock().group = None;
    }
}

fn signal(group: i32, signal: i32) {
    // SAFETY: kill() has no memory effects. The group is that of our own child, which nobody has waited for yet.
    #[allow(unsafe_code, reason = "the standard library signals no groups")]
    unsafe {
        libc::kill(-group, signal);
    }
}

impl Project {
    /// The project in this folder, if it is one.
    pub(in crate::cli) fn find(dir: &Path) -> Option<Self> {
        let tool = if dir.join("Cargo.toml").is_file() {
            Tool::Cargo
        } else if has_npm_build(dir) {
            Tool::Npm
        } else if dir.join("build.sh").is_file() {
            Tool::Script
        } else {
            return None;
        };
        Some(Self { dir: dir.to_owned(), tool })
    }

    /// What it is called, for people.
    pub(in crate::cli) fn name(&self) -> String {
        let dir = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// What builds it, for people.
    pub(in crate::cli) fn tool_name(&self) -> &'static str {
        match self.tool {
            Tool::Cargo => "cargo",
            Tool::Npm => "npm",
            Tool::Script => "build.sh",
        }
    }

    /// Builds it and says which modules it has now. What the tool says goes to stderr as it is.
    ///
    /// # Errors
    /// [`BuildError`].
    pub(in crate::cli) fn build(&self, stop: &BuildStop) -> Result<Vec<Artifact>, BuildError> {
        let artifacts = match self.tool {
            Tool::Cargo => self.cargo(stop)?,
            Tool::Npm => self.run(stop, Command::new("npm").args(["run", "--silent", "build"]))?,
            Tool::Script => self.run(stop, Command::new("sh").arg("build.sh"))?,
        };
        if artifacts.is_empty() {
            return Err(BuildError::NoModule(self.no_module()));
        }
        Ok(artifacts)
    }

    fn no_module(&self) -> String {
        match self.tool {
            Tool::Cargo => format!(
                "{}: no module came of it: a handler's crate has crate-type = [\"cdylib\"], or is a program",
                self.dir.display()
            ),
            Tool::Npm | Tool::Script => {
                format!("{}: there is no *.wasm in it, nor in its dist or build", self.dir.display())
            }
        }
    }

    fn cargo(&self, stop: &BuildStop) -> Result<Vec<Artifact>, BuildError> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["build", "--release", "--target", "wasm32-wasip1"]);
        command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
        let mut found = BTreeSet::new();
        let dir = self.dir.canonicalize().unwrap_or_else(|_| self.dir.clone());
        self.wait(stop, &mut command, |child| {
            let Some(stdout) = child.stdout.take() else { return };
            // A line that is no JSON is what a build script printed.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str::<Value>(&line) {
                    found.extend(modules_of(&message, &dir));
                }
            }
        })?;
        Ok(found.into_iter().collect())
    }

    fn run(&self, stop: &BuildStop, command: &mut Command) -> Result<Vec<Artifact>, BuildError> {
        // Whatever it prints is no answer of ours.
        command.stdout(std::io::stderr());
        self.wait(stop, command, |_| {})?;
        Ok(self.modules_beside())
    }

    fn wait(
        &self,
        stop: &BuildStop,
        command: &mut Command,
        meanwhile: impl FnOnce(&mut Child),
    ) -> Result<(), BuildError> {
        let tool = command.get_program().to_string_lossy().into_owned();
        command.current_dir(&self.dir).stdin(Stdio::null());
        let child = stop.spawn(command).map_err(|error| BuildError::NoTool { tool: tool.clone(), error })?;
        let Some(mut child) = child else { return Err(BuildError::Stopped) };
        meanwhile(&mut child);
        let status = wait_and_forget(&mut child, stop)
            .map_err(|error| BuildError::NoTool { tool: tool.clone(), error })?;
        match status {
            _ if stop.is_told() => Err(BuildError::Stopped),
            status if status.success() => Ok(()),
            status => Err(BuildError::Failed { tool, status }),
        }
    }

    fn modules_beside(&self) -> Vec<Artifact> {
        OUTPUT_FOLDERS.iter().flat_map(|folder| modules_in(&self.dir.join(folder), &self.dir)).collect()
    }
}

/// Waits for the end without taking it, takes back the number, and only then lets it go.
fn wait_and_forget(child: &mut Child, stop: &BuildStop) -> std::io::Result<std::process::ExitStatus> {
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
    loop {
        // SAFETY: the pointer is to a siginfo_t of ours, which the call fills; WNOWAIT leaves the child to be waited for.
        #[allow(unsafe_code, reason = "the standard library cannot wait without taking the end")]
        let waited = unsafe {
            libc::waitid(libc::P_PID, child.id(), info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        if waited == 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    stop.ended();
    child.wait()
}

fn has_npm_build(dir: &Path) -> bool {
    let text = std::fs::read(dir.join("package.json")).ok();
    let package = text.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    package.is_some_and(|package| package["scripts"]["build"].is_string())
}

/// The modules of a message of cargo's, if it is about a handler below `dir`.
fn modules_of(message: &Value, dir: &Path) -> Vec<Artifact> {
    let strings = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let kinds = strings(&message["target"]["kind"]);
    let is_handler = kinds.iter().any(|kind| kind == "cdylib" || kind == "bin");
    let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
    let manifest_dir = manifest.parent().unwrap_or(dir);
    let ours = manifest_dir.canonicalize().is_ok_and(|found| found.starts_with(dir));
    if message["reason"] != "compiler-artifact" || !is_handler || !ours {
        return Vec::new();
    }
    let files = strings(&message["filenames"]).into_iter().map(PathBuf::from);
    let modules = files.filter(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    modules.map(|module| Artifact::with_manifest_in(module, manifest_dir)).collect()
}

/// The modules that lie in a folder, with the manifests that lie in `manifests`.
pub(in crate::cli) fn modules_in(folder: &Path, manifests: &Path) -> Vec<Artifact> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_module = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".wasm") && !name.starts_with('.') && file.is_file()
    };
    let mut modules: Vec<Artifact> =
        files.filter(is_module).map(|module| Artifact::with_manifest_in(module, manifests)).collect();
    modules.sort();
    modules
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_project_is_known_by_its_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let tool = || Project::find(dir.path()).map(|project| project.tool);
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("a file");
        assert_eq!(tool(), None);
        write("build.sh", "");
        assert_eq!(tool(), Some(Tool::Script));
        write("package.json", "{\"scripts\":{\"test\":\"x\"}}");
        assert_eq!(tool(), Some(Tool::Script), "it has no build script");
        write("package.json", "{\"scripts\":{\"build\":\"x\"}}");
        assert_eq!(tool(), Some(Tool::Npm));
        write("Cargo.toml", "");
        assert_eq!(tool(), Some(Tool::Cargo));
    }

    #[test]
    fn only_modules_of_handlers_below_the_folder_are_taken() {
        let dir = tempfile::tempdir().expect("a folder");
        let dir = dir.path().canonicalize().expect("a path");
        fs::write(dir.join("greet.toml"), "").expect("a manifest");
        let message = |kind: &str, manifest: &Path| {
            json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "target": {"kind": [kind]},
                "filenames": ["/t/greet.wasm", "/t/greet.d"]
            })
        };
        let ours = dir.join("Cargo.toml");
        let artifact = Artifact { module: "/t/greet.wasm".into(), manifest: Some(dir.join("greet.toml")) };
        assert_eq!(modules_of(&message("cdylib", &ours), &dir), std::slice::from_ref(&artifact));
        assert_eq!(modules_of(&message("bin", &ours), &dir), [artifact]);
        assert_eq!(modules_of(&message("rlib", &ours), &dir), []);
        assert_eq!(modules_of(&message("cdylib", Path::new("/elsewhere/Cargo.toml")), &dir), []);
        assert_eq!(modules_of(&json!({"reason": "build-finished"}), &dir), []);
    }

    #[test]
    fn a_build_is_stopped_with_all_that_it_started() {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("build.sh"), "sleep 1000 & echo $! > child\nwait\n").expect("a script");
        let project = Project::find(dir.path()).expect("a project");
        let stop = BuildStop::default();
        let building = {
            let stop = stop.clone();
            std::thread::spawn(move || project.build(&stop))
        };
        let child: i32 = loop {
            let text = fs::read_to_string(dir.path().join("child")).unwrap_or_default();
            match text.strip_suffix('\n') {
                Some(pid) => break pid.parse().expect("a pid"),
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        stop.stop();
        let ended = building.join().expect("no panic");
        assert!(matches!(ended, Err(BuildError::Stopped)), "{ended:?}");
        // Its parent is gone, so that the system takes its end.
        let stat = PathBuf::from(format!("/proc/{child}/stat"));
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let again = Project::find(dir.path()).expect("a project").build(&stop);
        assert!(matches!(again, Err(BuildError::Stopped)), "{again:?}");
    }
}
