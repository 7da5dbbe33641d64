//! The README's commands, as a newcomer would type them: in an empty folder, with an empty home and no settings.
//!
//! Every `sh` block of the quick start runs, line by line and in order, and what the README shows after it (a `text`
//! block) is compared with what comes, numbers and generated ids apart. Three things are done for the newcomer:
//! `cargo install` (the binary that was built for the tests is on the PATH), `make guests` (its modules are where
//! it puts them), and `make demo` and `make test`, of which CI runs the second and e2e/demo.rs does the first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::cli::text;
use crate::harness::guests::guest;
use crate::harness::redis_server::RedisServer;
use crate::harness::waiting::eventually;

/// A fenced block: its language and its lines.
#[derive(Debug)]
struct Block {
    language: String,
    lines: Vec<String>,
}

/// The blocks of the README from its title, or from the section with this heading, to the next section.
fn blocks(section: Option<&str>) -> Vec<Block> {
    let readme =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).expect("README.md");
    let mut inside = section.is_none();
    let mut found: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    for line in readme.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, Some(language)) if inside => {
                open = Some(Block { language: language.to_owned(), lines: Vec::new() });
            }
            _ => {}
        }
        if let (None, Some(heading)) = (&open, line.strip_prefix("## ")) {
            inside = section == Some(heading);
        }
    }
    assert!(!found.is_empty(), "the README has no block in {section:?}");
    found
}

/// Somebody's new machine, with Hourhand installed and the handlers built.
struct Newcomer {
    home: TempDir,
    runners: Vec<Child>,
}

impl Newcomer {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a home");
        let made = home.path().join("target/guests");
        fs::create_dir_all(&made).expect("a folder");
        fs::copy(guest("order_close"), made.join("order_close.wasm")).expect("a module");
        Self { home, runners: Vec::new() }
    }

    /// Who has Hourhand's source as well: those folders of it that the README names.
    fn with_the_source() -> Self {
        let this = Self::new();
        for file in files_below(&source(), &["examples", "wit"]) {
            let copy = this.home.path().join(&file);
            fs::create_dir_all(copy.parent().expect("a folder")).expect("a folder");
            fs::copy(source().join(&file), copy).expect("copy a file");
        }
        this
    }

    fn shell(&self, line: &str) -> Command {
        let installed = Path::new(env!("CARGO_BIN_EXE_hourhand")).parent().expect("a folder");
        let mut command = Command::new("sh");
        command
            .args(["-euc", line])
            .current_dir(self.home.path())
            .env_clear()
            .env("PATH", format!("{}:{}:/usr/local/bin:/usr/bin:/bin", installed.display(), machine("PATH")))
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        // Where this machine gets packages from, and what it has of them already.
        let own = Path::new(&machine("HOME")).to_owned();
        command.env("NPM_CONFIG_USERCONFIG", own.join(".npmrc")).env("NPM_CONFIG_CACHE", own.join(".npm"));
        command.envs(std::env::vars().filter(|(name, _)| name.starts_with("PIP_")));
        command
    }

    /// Runs a line; its stdout.
    fn types(&mut self, line: &str) -> String {
        let done_already = ["make ", "cargo install "];
        if done_already.iter().any(|word| line.starts_with(word)) {
            return String::new();
        }
        if line.starts_with("hourhand run") {
            self.starts(line);
            return String::new();
        }
        let output = self.shell(line).output().expect("run a shell");
        assert!(output.status.success(), "{line}: {}\n{}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts a runner in a terminal of its own.
    fn starts(&mut self, line: &str) {
        let log = self.home.path().join("run.log");
        let file = fs::File::create(&log).expect("a log");
        // So that the shell's process is the runner's.
        self.runners.push(self.shell(&format!("exec {line}")).stderr(file).spawn().expect("run a shell"));
        // Some handlers take their time to compile.
        eventually("the runner serves", Duration::from_secs(600), || {
            fs::read_to_string(&log).ok()?.contains("the runner serves").then_some(())
        });
    }

    /// Follows a section: the lines of its `sh` blocks, and what they print where the README shows that.
    fn follows(&mut self, blocks: &[Block]) {
        let mut printed = String::new();
        for block in blocks {
            match block.language.as_str() {
                "sh" => printed = block.lines.iter().map(|line| self.types(uncommented(line))).collect(),
                "js" => is_the_example(block, "javascript/receipt.js"),
                "python" => is_the_example(block, "python/receipt_py.py"),
                "text" => assert_eq!(shape(&printed), shape(&block.lines.join("\n")), "got:\n{printed}"),
                other => panic!("the quick start has a block of {other:?}, and nobody tries it"),
            }
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        for runner in &mut self.runners {
            let _ = runner.kill();
            let _ = runner.wait();
        }
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn machine(variable: &str) -> String {
    std::env::var(variable).unwrap_or_default()
}

/// The files of these folders as a fresh checkout has them, by their paths below `root`.
fn files_below(root: &Path, folders: &[&str]) -> Vec<PathBuf> {
    let built = ["node_modules", "venv", "target", "__pycache__"];
    let mut folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder of the source") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if !entry.path().is_dir() {
                files.push(path);
            } else if !built.iter().any(|built| entry.file_name() == *built) {
                folders.push(path);
            }
        }
    }
    files
}

/// What the README shows of an example is the example.
#[track_caller]
fn is_the_example(block: &Block, file: &str) {
    let text = fs::read_to_string(source().join("examples").join(file)).expect("an example");
    assert_eq!(block.lines.join("\n"), text.trim_end(), "examples/{file}");
}

/// A line without the remark at its end.
fn uncommented(line: &str) -> &str {
    line.split(" #").next().unwrap_or_default().trim_end()
}

/// What of an output is the same each time: words, in lines, with numbers and generated ids left out.
fn shape(output: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| !line.trim().is_empty());
    lines
        .map(|line| without_uuids(line).split_whitespace().map(shape_of_word).collect::<Vec<_>>().join(" "))
        .collect()
}

/// The line with `<uuid>` for each identifier of the form 8-4-4-4-12.
fn without_uuids(line: &str) -> String {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    const LENGTH: usize = 36;
    let is_uuid = |text: &str| {
        text.bytes()
            .enumerate()
            .all(|(at, b)| if DASHES.contains(&at) { b == b'-' } else { b.is_ascii_hexdigit() })
    };
    let (mut shown, mut rest) = (String::new(), line);
    while let Some(first) = rest.chars().next() {
        let taken = match rest.get(..LENGTH) {
            Some(uuid) if is_uuid(uuid) => {
                shown.push_str("<uuid>");
                LENGTH
            }
            _ => {
                shown.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    shown
}

fn shape_of_word(word: &str) -> String {
    let is_id = word.split_once('-').is_some_and(|(number, random)| {
        !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
            && random.len() == 5
            && random.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    });
    if is_id {
        return "<id>".to_owned();
    }
    let mut shape = String::new();
    let mut in_number = false;
    for c in word.chars() {
        // A point within a number belongs to it, and so does the sign of an offset or the T of an instant to neither.
        in_number = c.is_ascii_digit() || (in_number && c == '.');
        if !in_number {
            shape.push(c);
        } else if !shape.ends_with('#') {
            shape.push('#');
        }
    }
    shape
}

#[test]
fn the_quick_start_does_what_it_shows() {
    let mut newcomer = Newcomer::new();
    newcomer.follows(&blocks(Some("Quick start")));
    assert!(
        newcomer.home.path().join("hourhand.db").is_file(),
        "the embedded store is where it is said to be"
    );
    // And the first thing that the README shows, before any section.
    for block in blocks(None).iter().filter(|block| block.language == "console") {
        let [typed, shown @ ..] = &block.lines[..] else { panic!("{block:?}") };
        let printed = newcomer.types(typed.strip_prefix("$ ").expect("a command"));
        assert_eq!(shape(&printed), shape(&shown.join("\n")), "got:\n{printed}");
    }
}

#[test]
fn a_redis_is_used_as_the_readme_says() {
    let redis = RedisServer::start();
    let mut newcomer = Newcomer::new();
    let mut blocks = blocks(Some("With Redis"));
    for block in &mut blocks {
        // One shell: an export counts for what follows. The Redis is the test's own.
        let script = block.lines.join("\n").replace(":6379", &format!(":{}", redis.port()));
        block.lines = vec![script.replace("hourhand run", "hourhand run --until-idle")];
    }
    newcomer.types("mkdir handlers && cp target/guests/order_close.wasm handlers/");
    newcomer.follows(&blocks);
    assert!(!newcomer.home.path().join("hourhand.db").exists(), "all of it went to Redis");
}

#[test]
fn the_javascript_example_runs_from_the_readme_alone() {
    Newcomer::with_the_source().follows(&blocks(Some("Handlers in JavaScript")));
}

#[test]
fn the_python_example_runs_from_the_readme_alone() {
    Newcomer::with_the_source().follows(&blocks(Some("Handlers in Python")));
}

#[test]
fn only_numbers_and_generated_ids_differ() {
    assert_eq!(shape("42-ab3de\ncompleted in 1.25 ms"), shape("7-zzzzz\ncompleted in 20 ms"));
    assert_ne!(shape("order-7 completed"), shape("order-7 dead"));
    assert_eq!(
        shape("\"a2f84b23-58e4-4116-acf1-acef0914f31a\""),
        shape("\"00000000-0000-0000-0000-000000000000\"")
    );
    assert_ne!(shape("7-abcd"), shape("7-abcde"));
}
