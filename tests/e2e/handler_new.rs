//! `handler new`: what it makes builds, its tests pass, and its cases tell when it is not as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::cli::{check, text};
use crate::harness::backing::SqliteFile;
use crate::harness::hourhand::Hourhand;
use crate::harness::languages::language;
use crate::harness::toolchain::with_toolchain;

/// A machine with the binary and a toolchain; its store is not used but by whoever looks.
fn machine() -> (SqliteFile, Hourhand) {
    let file = SqliteFile::new();
    let here = Hourhand::new(&file.url(), &[]);
    // So that there is a store to look at in the end.
    here.ok(&["queue", "pause", "none"]);
    (file, here)
}

fn run_in(here: &Hourhand, folder: &str, args: &[&str]) -> Output {
    let mut command = here.command(args);
    with_toolchain(&mut command).current_dir(here.dir.path().join(folder)).output().expect("run the binary")
}

fn cargo_test(folder: &Path) -> Output {
    let mut command = Command::new("cargo");
    with_toolchain(command.args(["test", "--quiet"]).current_dir(folder)).output().expect("run cargo")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn a_new_handler_in_rust_builds_and_its_tests_pass_and_notice_a_change() {
    let (_store, here) = machine();
    let made = here.json(&["handler", "new", "new_greet"]);
    assert_eq!((&made["kind"], &made["dir"]), (&json!("new_greet"), &json!("new_greet")), "{made:#}");
    let crate_folder = here.dir.path().join("new_greet");
    assert_eq!(made["files"].as_array().expect("files").len(), files(&crate_folder).len());
    let native = cargo_test(&crate_folder);
    assert!(native.status.success(), "{}{}", text(&native.stdout), text(&native.stderr));
    assert!(text(&native.stdout).contains("3 passed"), "{}", text(&native.stdout));

    let tested = run_in(&here, "new_greet", &["handler", "test", "--json"]);
    check(&tested, 0, "");
    let answer: Value = serde_json::from_slice(&tested.stdout).expect("JSON");
    assert_eq!((&answer["passed"], &answer["failed"]), (&json!(3), &json!(0)), "{answer:#}");

    let case = crate_folder.join("fixtures/hello.toml");
    let before = fs::read_to_string(&case).expect("a case");
    fs::write(&case, before.replace("hello, Ada", "hello, Bob")).expect("a case");
    let failed = run_in(&here, "new_greet", &["handler", "test"]);
    check(&failed, 1, "2 passed, 1 failed");
    let shown = text(&failed.stdout);
    for part in ["FAILED", "expected {\"text\":\"hello, Bob\"}", "got      {\"text\":\"hello, Ada\"}"] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    assert_eq!(fs::read_to_string(&case).expect("a case"), before.replace("hello, Ada", "hello, Bob"));
    check(&run_in(&here, "new_greet", &["handler", "test", "--bless"]), 0, "2 passed, 0 failed, 1 blessed");
    let blessed = fs::read_to_string(&case).expect("a case");
    assert_eq!(blessed, before, "it says again what comes");
    let one = run_in(&here, "new_greet", &["handler", "test", "--only", "hello"]);
    check(&one, 0, "1 passed, 0 failed");

    // What does not compile is said as cargo says it.
    let source = crate_folder.join("src/lib.rs");
    let code = fs::read_to_string(&source).expect("a source");
    fs::write(&source, code.replace("Ok(Greeting", "Ok(Greting")).expect("a source");
    let broken = run_in(&here, "new_greet", &["handler", "test"]);
    check(&broken, 1, "error[E0422]: cannot find struct");
    assert!(text(&broken.stderr).contains("cargo failed"), "{}", text(&broken.stderr));
}

#[test]
fn a_kind_that_is_no_identifier_gets_a_crate_that_serves_it() {
    let (_store, here) = machine();
    let output = here.run(&["handler", "new", "7.new-Mails", "--dir", "made/here"]);
    check(&output, 0, "hourhand handler test");
    assert!(text(&output.stderr).contains("hourhand-sdk: "), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "made/here\n");
    let tested = run_in(&here, "", &["handler", "test", "made/here", "--json"]);
    check(&tested, 0, "");
    let answer: Value = serde_json::from_slice(&tested.stdout).expect("JSON");
    assert_eq!(answer["cases"][0]["run"]["kind"], "7.new-Mails", "{answer:#}");
    assert!(here.dir.path().join("made/here/on_7_new_mails.toml").is_file());
}

#[test]
fn a_new_program_without_the_sdk_is_a_handler_too() {
    let (_store, here) = machine();
    check(&here.run(&["handler", "new", "new.plain", "--lang", "plain"]), 0, "");
    let native = cargo_test(&here.dir.path().join("new.plain"));
    assert!(text(&native.stdout).contains("1 passed"), "{}{}", text(&native.stdout), text(&native.stderr));
    let tested = run_in(&here, "new.plain", &["handler", "test", "--json"]);
    check(&tested, 0, "");
    let answer: Value = serde_json::from_slice(&tested.stdout).expect("JSON");
    assert_eq!(
        (&answer["passed"], &answer["cases"][0]["run"]["kind"]),
        (&json!(2), &json!("new.plain")),
        "{answer:#}"
    );
}

/// What the examples in this language are compiled with, lent to a project.
fn lend(language_name: &str, tools: &str, project: &Path) -> PathBuf {
    language(language_name);
    let installed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/languages").join(language_name).join(tools);
    std::os::unix::fs::symlink(&installed, project.join(tools)).expect("a link");
    installed
}

#[track_caller]
fn passes_its_cases(here: &Hourhand, project: &str) {
    let tested = run_in(here, project, &["handler", "test", "--json"]);
    check(&tested, 0, "");
    let answer: Value = serde_json::from_slice(&tested.stdout).expect("JSON");
    assert_eq!(
        (&answer["passed"], &answer["cases"][0]["run"]["kind"]),
        (&json!(2), &json!(project)),
        "{answer:#}"
    );
}

#[test]
fn a_new_handler_in_javascript_builds_and_passes_its_cases() {
    let (_store, here) = machine();
    check(&here.run(&["handler", "new", "new.js", "--lang", "js"]), 0, "npm ci");
    lend("javascript", "node_modules", &here.dir.path().join("new.js"));
    passes_its_cases(&here, "new.js");
}

#[test]
fn a_new_handler_in_python_builds_and_passes_its_cases() {
    let (_store, here) = machine();
    check(&here.run(&["handler", "new", "new_python", "--lang", "python"]), 0, "");
    let project = here.dir.path().join("new_python");
    let venv = lend("python", "venv", &project);
    fs::copy(project.join("requirements.txt"), venv.join("installed.txt")).expect("copied");
    passes_its_cases(&here, "new_python");
}

/// A handler that remembers, enqueues and asks a server.
const SHOP: &str = r#"
use hourhand_sdk::prelude::*;

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

#[handler]
fn new_shop(ctx: &Context, order: Order) -> Result<i64, Failure> {
    ctx.progress(50, "half way");
    let orders = ctx.state().increment("orders", 1)?;
    ctx.state().set("last", &order.id)?;
    ctx.enqueue("notify", &order).delay(minutes(5)).send()?;
    let answer = ctx.http().post("https://bank.example/charge").json(&order).send()?;
    if answer.status() >= 500 {
        return Err(Failure::retry("the bank is closed"));
    }
    Ok(orders)
}
"#;

#[test]
fn a_case_says_what_is_remembered_what_is_enqueued_and_what_servers_answer() {
    let (_store, here) = machine();
    check(&here.run(&["handler", "new", "new_shop"]), 0, "");
    let at = |name: &str| here.dir.path().join("new_shop").join(name);
    fs::write(at("src/lib.rs"), SHOP).expect("a source");
    fs::write(
        at("new_shop.toml"),
        "[allow]\nhttp = [\"https://bank.example\"]\nstate = true\nenqueue = [\"notify\"]\n",
    )
    .expect("a manifest");
    fs::remove_dir_all(at("fixtures")).expect("removed");
    fs::create_dir(at("fixtures")).expect("a folder");
    let case = |name: &str, text: &str| fs::write(at("fixtures").join(name), text).expect("a case");
    let answer =
        "[[http]]\nrequest = { method = 'POST', url = 'https://bank.example/charge', body = { id = 7 } }\n";
    let before = "payload = { id = 7 }\nstate = { orders = 3 }\n";
    case(
        "closed.toml",
        &format!(
            "{before}{answer}response = {{ status = 503 }}\n[expect]\noutcome = 'retry'\nmessage = 'closed'\n\
         enqueued = []\nstate = {{ orders = 3 }}\n"
        ),
    );
    case(
        "down.toml",
        &format!(
            "{before}[expect]\noutcome = 'retry'\nlogs = ['no fixture answers POST https://bank.example/charge']\n"
        ),
    );
    case("pays.toml", &format!("{before}{answer}response = {{}}\n"));
    check(&run_in(&here, "new_shop", &["handler", "test"]), 1, "2 passed, 1 failed");
    check(&run_in(&here, "new_shop", &["handler", "test", "--bless"]), 0, "1 blessed");
    let blessed = fs::read_to_string(at("fixtures/pays.toml")).expect("a case");
    let expect = "[expect]\noutcome = \"completed\"\nresult = 4\n\
                  enqueued = [{ kind = \"notify\", payload = { id = 7 } }]\n\
                  requests = [\"POST https://bank.example/charge\"]\nstate = { last = 7, orders = 4 }\n";
    assert!(blessed.ends_with(expect), "{blessed}");

    fs::write(here.dir.path().join("state.json"), "{\"orders\": 8}").expect("a file");
    let answers = r#"{"http": [{"request": {"url": "https://bank.example/*"}, "response": {}}]}"#;
    fs::write(here.dir.path().join("answers.json"), answers).expect("a file");
    let target =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("new-handlers/wasm32-wasip1/release/new_shop.wasm");
    let module = target.to_str().expect("UTF-8");
    let tried = [
        "handler",
        "run",
        module,
        "--payload",
        "{\"id\":9}",
        "--http",
        "answers.json",
        "--state",
        "state.json",
    ];
    let denied = here.run(&[&tried[..], &["--json"]].concat());
    check(&denied, 1, "");
    let denied: Value = serde_json::from_slice(&denied.stdout).expect("JSON");
    assert_eq!(denied["error"]["reason"], "denied", "no manifest lies beside the module: {denied:#}");
    let run = here.json(&[&tried[..], &["--manifest", "new_shop/new_shop.toml"]].concat());
    assert_eq!((&run["result"], &run["state"]), (&json!("9"), &json!({"orders": 9, "last": 9})), "{run:#}");
    let child = &run["enqueued"][0];
    assert_eq!(
        (&child["kind"], &child["delay_ms"], &child["payload"]),
        (&json!("notify"), &json!(300_000), &json!("{\"id\":9}"))
    );
    assert_eq!(run["progress"], json!([{"percent": 50, "message": "half way"}]));
    assert_eq!(run["requests"], json!(["POST https://bank.example/charge"]));
}

#[test]
fn shells_know_the_commands() {
    let (_store, here) = machine();
    for shell in ["bash", "zsh", "fish"] {
        let script = here.ok(&["completions", shell]);
        for word in ["dev", "fixtures", "bless", "payload-file", "lang"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn nothing_is_overwritten_and_a_name_that_no_runner_takes_is_refused() {
    let (_store, here) = machine();
    let at = |name: &str| here.dir.path().join(name);
    fs::create_dir_all(at("full")).expect("a folder");
    fs::create_dir_all(at("empty")).expect("a folder");
    fs::write(at("full/notes.txt"), "mine").expect("a file");
    fs::write(at("file"), "mine").expect("a file");
    check(&here.run(&["handler", "new", "full"]), 4, "full: it is there and not empty: nothing was written");
    check(&here.run(&["handler", "new", "file"]), 4, "nothing was written");
    assert_eq!(files(&at("full")), [at("full/notes.txt")]);
    assert_eq!(fs::read_to_string(at("file")).expect("a file"), "mine");
    check(&here.run(&["handler", "new", "empty"]), 0, "");
    check(&here.run(&["handler", "new", "empty"]), 4, "not empty");
    for (args, part) in [
        (&["handler", "new", "a b"][..], "invalid name"),
        (&["handler", "new", "../up"], "invalid name"),
        (&["handler", "new", "schedules"], "reserved"),
        (&["handler", "new", "x.next"], "reserved"),
        (&["handler", "new", "x", "--lang", "cobol"], "possible values: rust, js, python, plain"),
        (&["handler", "new", "x", "--sdk", "."], "--sdk: expected the folder of hourhand-sdk"),
        (&["handler", "new", "x", "--lang", "plain", "--sdk", "."], "--sdk: only a handler in Rust"),
    ] {
        check(&here.run(args), 2, part);
    }
    assert!(!at("x").exists() && !at("schedules").exists());
}
