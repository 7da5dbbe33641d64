//! Manifests: what they let a guest reach, that changes to them alone count, and what is said of those that are wrong.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::manifest::write_manifest;
use crate::harness::backing::{StoreKind, on_both_stores};
use crate::harness::hourhand::Hourhand;
use crate::harness::waiting::eventually;

const SOON: Duration = Duration::from_secs(60);

on_both_stores! {
    a_manifest_counts_without_a_restart_a_broken_one_is_said_once_and_a_deleted_one_takes_its_grants
}

/// What came of steps of the example `files`.
#[track_caller]
fn files(here: &Hourhand, steps: &Value) -> Vec<String> {
    let id = here.json(&["enqueue", "files", &steps.to_string()])["id"].as_str().unwrap().to_owned();
    let job = here.job_in(&id, "completed", SOON);
    serde_json::from_str(job["result"].as_str().expect("a result")).expect("a list of texts")
}

fn mode(here: &Hourhand) -> String {
    files(here, &serde_json::json!([{ "env": "MODE" }])).remove(0)
}

fn a_manifest_counts_without_a_restart_a_broken_one_is_said_once_and_a_deleted_one_takes_its_grants(
    on: StoreKind,
) {
    let store = on.start();
    let here = Hourhand::new(&store.url(), &["files"]);
    write_manifest(&here, "files", "[allow.env]\nMODE = 'first'\n");
    let runner = here.runner(&[]);
    assert_eq!(mode(&here), "first", "from the very first job");
    let becomes = |what: &str| eventually(what, SOON, || (mode(&here) == what).then_some(()));
    write_manifest(&here, "files", "[allow.env]\nMODE = 'second'\n");
    becomes("second");

    // Written in place, by somebody who makes mistakes.
    let manifest = here.handlers().join("files.toml");
    fs::write(&manifest, "\ntimeot = '3s'\n[allow]\nhttp = ['a.b']\n").unwrap();
    let said = "files.toml:2: timeot: unknown key: expected one of";
    eventually("the mistake is said", SOON, || runner.log().contains(said).then_some(()));
    assert!(
        runner.log().contains("files.toml:4: allow.http: expected scheme, host and port"),
        "all of it at once"
    );
    for _ in 0..3 {
        assert_eq!(mode(&here), "second", "the last good one counts");
    }
    assert_eq!(runner.log().matches("files.toml:2").count(), 1, "{}", runner.log());
    let list = here.json(&["handler", "list"]);
    let broken =
        list["items"].as_array().unwrap().iter().find(|h| h["status"] == "broken").expect("a broken one");
    assert_eq!(broken["kind"], "files");
    assert!(broken["error"].as_str().unwrap().starts_with(said), "{broken:#}");
    assert!(broken["file"].as_str().unwrap().ends_with("files.toml"), "{broken:#}");

    fs::write(&manifest, "[allow.env]\nMODE = 'third'\n").unwrap();
    becomes("third");
    // As a Kubernetes volume does it: the name leads through a link to a folder that is exchanged.
    let (a, b) = (here.dir.path().join("a"), here.dir.path().join("b"));
    for (dir, mode) in [(&a, "fourth"), (&b, "fifth")] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("files.toml"), format!("[allow.env]\nMODE = '{mode}'\n")).unwrap();
    }
    let data = here.handlers().join("..data");
    symlink(&a, &data).unwrap();
    fs::remove_file(&manifest).unwrap();
    symlink("..data/files.toml", &manifest).unwrap();
    becomes("fourth");
    let flip = here.handlers().join("..data_tmp");
    symlink(&b, &flip).unwrap();
    fs::rename(&flip, &data).unwrap();
    becomes("fifth");

    fs::remove_file(&manifest).unwrap();
    eventually("its grants are gone", SOON, || mode(&here).starts_with("error: ").then_some(()));
    assert_eq!(
        runner.log().matches("handler loaded").count(),
        1,
        "nothing was compiled again: {}",
        runner.log()
    );
}

fn folders(here: &Hourhand) -> (std::path::PathBuf, std::path::PathBuf, std::path::PathBuf) {
    let real = here.dir.path().canonicalize().unwrap();
    let (open, read, outside) = (real.join("shared/open"), real.join("shared/read"), real.join("outside"));
    for dir in [&open, &read, &outside] {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("there"), "it is there").unwrap();
    }
    (open, read, outside)
}

fn dirs(granted: &[(&Path, &str, bool)]) -> String {
    let one = |(host, guest, writable): &(&Path, &str, bool)| {
        format!("{{ host = '{}', guest = '{guest}', writable = {writable} }}", host.display())
    };
    let all: Vec<String> = granted.iter().map(one).collect();
    format!("[allow]\ndirs = [{}]\n", all.join(", "))
}

#[test]
fn a_guest_sees_the_folders_that_it_was_given_and_gets_out_of_none() {
    let store = StoreKind::Sqlite.start();
    let here = Hourhand::new(&store.url(), &["files"]);
    let (open, read, outside) = folders(&here);
    let shared = open.parent().unwrap();
    fs::write(here.dir.path().join("hourhand.toml"), format!("[ceiling]\ndirs = ['{}']\n", shared.display()))
        .unwrap();
    write_manifest(
        &here,
        "files",
        &dirs(&[(&open, "/open", true), (&read, "/read", false), (&outside, "/outside", true)]),
    );
    // Links that were there before, by name and by path.
    symlink(outside.join("there"), open.join("absolute")).unwrap();
    symlink("../../outside/there", open.join("upward")).unwrap();
    symlink("../../outside", open.join("folder")).unwrap();
    symlink("there", open.join("within")).unwrap();
    let runner = here.runner(&[]);

    let fine = files(
        &here,
        &serde_json::json!([
            { "read": "/open/there" },
            { "read": "/open/within" },
            { "write": ["/open/new", "written"] },
            { "rename": ["/open/new", "/open/newer"] },
            { "hard_link": ["/open/newer", "/open/second"] },
            { "read": "/open/second" },
            { "list": "/read" },
            { "read": "/read/there" },
        ]),
    );
    assert_eq!(fine, ["it is there", "it is there", "", "", "", "written", "there", "it is there"]);
    assert_eq!(fs::read_to_string(open.join("newer")).unwrap(), "written");

    let steps = serde_json::json!([
        { "write": ["/read/new", "x"] },
        { "write": ["/read/there", "x"] },
        { "rename": ["/read/there", "/read/gone"] },
        { "rename": ["/read/there", "/open/taken"] },
        { "hard_link": ["/read/there", "/read/twice"] },
        { "read": "/open/absolute" },
        { "read": "/open/upward" },
        { "read": "/open/folder/there" },
        { "write": ["/open/folder/new", "x"] },
        { "write": ["/open/upward", "x"] },
        { "list": "/open/folder" },
        { "read": "/open/../read/../../outside/there" },
        { "read": "/open/../../outside/there" },
        { "symlink": ["../../outside/there", "made"] },
        { "read": "/open/made" },
        { "symlink": [outside.join("there"), "made_absolute"] },
        { "read": "/open/made_absolute" },
        { "hard_link": ["/open/upward", "/open/hard"] },
        { "read": "/open/hard" },
        { "rename": ["/open/there", "/open/../../outside/moved"] },
        { "read": outside.join("there") },
        { "read": "/outside/there" },
        { "list": "/" },
        { "read": "/etc/passwd" },
        { "read": "/proc/self/environ" },
    ]);
    let refused = files(&here, &steps);
    for (step, came) in steps.as_array().unwrap().iter().zip(&refused) {
        // A link may be made, and leads nowhere; a hard link to a link is one.
        let may_be_made = step.get("symlink").is_some() || step.get("hard_link").is_some();
        assert!(came.starts_with("error: ") || (may_be_made && came.is_empty()), "{step}: {came}");
    }
    assert_eq!(fs::read_to_string(outside.join("there")).unwrap(), "it is there");
    assert_eq!(fs::read_to_string(read.join("there")).unwrap(), "it is there");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was put there");
    assert_eq!(fs::read_dir(&read).unwrap().count(), 1);
    let note = format!("allow.dirs: {} is not granted", outside.display());
    assert_eq!(runner.log().matches(&note).count(), 1, "{}", runner.log());

    // Somebody puts a link in the place of a folder that was granted: it is not followed.
    fs::rename(&read, shared.join("away")).unwrap();
    symlink(&outside, &read).unwrap();
    here.ok(&["enqueue", "files", "[]", "--id", "swapped", "--max-attempts", "1"]);
    let job = here.job_in("swapped", "dead", SOON);
    assert_eq!(job["error"]["reason"], "denied", "{job:#}");
    assert!(job["error"]["message"].as_str().unwrap().contains("it is a link to"), "{job:#}");
}

#[test]
fn variables_of_the_runner_pass_only_where_the_ceiling_lets_them_and_secrets_are_never_shown() {
    const VALUE: &str = "s3cret-value-of-the-operator";
    let store = StoreKind::Sqlite.start();
    let here = Hourhand::new(&store.url(), &["files"]);
    fs::write(here.dir.path().join("secret"), format!("{VALUE}\n")).unwrap();
    let file = here.dir.path().join("secret");
    let settings = |name: &str| {
        let ceiling = "[ceiling]\nenv = ['HOME', 'UNSET']\n";
        let text = format!("{ceiling}[secrets]\n{name} = {{ file = '{}' }}\n", file.display());
        fs::write(here.dir.path().join("hourhand.toml"), text).unwrap();
    };
    settings("signing");
    let manifest = "[allow]\nhttp = ['https://api.example.com']\nstate = true\n[allow.env]\nPLACE = { from = 'HOME' }\nPATH = { from = 'PATH' }\n\
                    [allow.secrets]\nsigning = { to = 'https://api.example.com', header = 'x-key' }\n";
    write_manifest(&here, "files", manifest);
    let mut runner = here.runner(&[]);
    let seen = files(
        &here,
        &serde_json::json!([{ "env": "PLACE" }, { "env": "PATH" }, { "env": "HOURHAND_STORE" }]),
    );
    assert_eq!(seen[0], here.dir.path().to_str().unwrap());
    assert!(seen[1..].iter().all(|seen| seen.starts_with("error: ")), "{seen:?}");
    assert!(runner.log().contains("PATH is not passed through: [ceiling] env does not list it"));
    let list = here.json(&["handler", "list"]);
    let grants = &list["items"][0]["grants"];
    assert_eq!(grants["secrets"][0]["injected"][0]["header"], "x-key", "{list:#}");
    assert_eq!(grants["http"]["allow"][0], "https://api.example.com");
    assert_eq!(grants["env"], serde_json::json!(["PLACE"]));
    // The module wants less than it might have: by its own word.
    assert_eq!(
        (&grants["state"], &list["items"][0]["limits"]["memory_bytes"]),
        (&Value::Null, &(64 << 20).into())
    );
    let check = here.json(&["handler", "check", "handlers/files.wasm"]);
    let asks = &check["handlers"][0]["asks"];
    assert_eq!(
        (&asks["state"], &asks["memory_bytes"], &asks["http"]),
        (&false.into(), &(64 << 20).into(), &Value::Null)
    );
    assert_eq!(&check["gets"][0]["grants"], grants, "{check:#}");
    for shown in [list.to_string(), here.ok(&["handler", "list"]), runner.log()] {
        assert!(!shown.contains(VALUE), "{shown}");
    }
    assert_eq!(runner.stop().code(), Some(0));

    // A secret that the operator does not have: said, and the handler does not serve.
    settings("other");
    let runner = here.runner(&[]);
    let said = "files.toml:8: allow.secrets.signing: expected one of the operator's secrets";
    eventually("it is said", SOON, || runner.log().contains(said).then_some(()));
    drop(runner);
    let check = here.run(&["handler", "check", "handlers/files.wasm"]);
    assert_eq!(check.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&check.stderr).contains(said), "{check:?}");
    // One that is not where the settings say: nothing starts.
    fs::remove_file(&file).unwrap();
    let output = here.run(&["run", "--handlers", "handlers"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("hourhand.toml:4: secrets.other: cannot read"), "{text}");
}
