//! `handler check`: what a module is and gets, and whether a runner would take it.

use std::fs;

use serde_json::json;

use crate::cli::text;
use crate::harness::backing::StoreKind;
use crate::harness::hourhand::Hourhand;

#[test]
fn a_check_tells_a_command_from_a_handler_and_what_each_needs() {
    let store = StoreKind::Sqlite.start();
    store.make();
    let here = Hourhand::new(&store.url(), &["command", "echo"]);
    let command = here.json(&["handler", "check", "handlers/command.wasm"]);
    assert_eq!(command["ok"], true, "{command:#}");
    assert_eq!(
        (&command["role"], &command["form"], &command["interface"]),
        (&json!("command"), &json!("core"), &json!(null))
    );
    assert_eq!(command["kinds"], json!(["command"]));
    let echo = here.json(&["handler", "check", "handlers/echo.wasm"]);
    assert_eq!((&echo["role"], &echo["interface"]), (&json!("handler"), &json!("0.1.0")));
    for checked in [&command, &echo] {
        let needs = &checked["needs"];
        assert!(needs["memories"].as_u64() >= Some(1) && needs["compile_ms"].is_u64(), "{checked:#}");
        assert_eq!(checked["gets"][0]["limits"]["timeout_ms"], 30_000, "{checked:#}");
    }
    let shown = here.ok(&["handler", "check", "handlers/command.wasm"]);
    for words in ["runs as     command", "compiled in", "memories", "reaches nothing"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn a_check_reads_the_manifest_and_the_ceiling_as_a_runner_does() {
    let store = StoreKind::Sqlite.start();
    store.make();
    let here = Hourhand::new(&store.url(), &["command"]);
    let manifest = here.handlers().join("command.toml");
    fs::write(
        &manifest,
        "kinds = [\"pay\"]\ntimeout = \"20s\"\n[allow]\nhttp = [\"https://bank.example\"]\n",
    )
    .expect("a file");
    fs::write(here.dir.path().join("hourhand.toml"), "[ceiling]\ntimeout = \"10s\"\n").expect("a file");
    let check = ["handler", "check", "handlers/command.wasm"];
    let checked = here.json(&check);
    assert_eq!(checked["kinds"], json!(["pay"]), "{checked:#}");
    let gets = &checked["gets"][0];
    assert_eq!(
        (&gets["kind"], &gets["limits"]["timeout_ms"]),
        (&json!("pay"), &json!(10_000)),
        "{checked:#}"
    );
    assert_eq!(gets["grants"]["http"]["allow"], json!(["https://bank.example"]), "{checked:#}");
    assert!(gets["notes"].as_array().is_some_and(|notes| !notes.is_empty()), "{checked:#}");
    assert!(here.ok(&check).contains("reaches http https://bank.example"));

    fs::write(&manifest, "timeuot = \"20s\"\n").expect("a file");
    let output = here.run(&check);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("command.toml") && said.contains("timeuot"), "{said}");
}
