//! Files that people drop into a handlers folder: which load, and what is said of the others.

mod guests;

use std::sync::Arc;

use guests::{TEXT, WIT, at, echo, guest, limits, ok, run};
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{Form, JobLog, LoadError, Sandbox, SandboxConfig, StopSignal, inspect};
use wasm_encoder::{Instruction as I, MemoryType, ValType};
use wit_component::ComponentEncoder;

fn memory(memory64: bool, shared: bool) -> MemoryType {
    MemoryType { minimum: 2, maximum: Some(4), memory64, shared, page_size_log2: None }
}

const LONG_NAME: &str = match std::str::from_utf8(&[b'n'; 50_000]) {
    Ok(name) => name,
    Err(_) => unreachable!(),
};

/// Files that no runner loads, with what is said of each: the cause, and the fix.
fn refused() -> Vec<(&'static str, Vec<u8>, &'static str, &'static str)> {
    const BUILD: &str = "wasm32-wasip1";
    let importing = |module, name| echo().import(module, name, &[], &[]).export("handle").build_bare();
    let newer = WIT.replace("hourhand:job@0.1.0", "hourhand:job@0.2.0");
    let newer = echo().export("hourhand:job/handler@0.2.0#handle").wit(newer).build();
    let truncated = |bytes: Vec<u8>| bytes[..bytes.len() / 2].to_vec();
    vec![
        ("an empty file", Vec::new(), "empty", ""),
        ("a beginning", b"\0as".to_vec(), "3 bytes", ""),
        ("half a module", truncated(echo().build()), "ends too early", ""),
        ("native code", b"\x7fELF\x02\x01\x01\0\0\0".to_vec(), "native code", BUILD),
        (
            "compiled WebAssembly",
            b"\x7fELF\x02\x01\x01\xc8\0\0\0".to_vec(),
            ".cwasm",
            "portable modules only",
        ),
        ("native code of Windows", b"MZ\x90\0\x03\0\0\0".to_vec(), "native code", BUILD),
        ("a Rust library", b"!<arch>\n/   ".to_vec(), "static library", BUILD),
        (
            "Python",
            b"import json\n\ndef handle(job):\n    pass\n".to_vec(),
            "text, not WebAssembly",
            "docs/handlers.md",
        ),
        (
            "a script cut inside a character",
            [&[b'x'; 511][..], "\u{e9}".as_bytes()].concat(),
            "text",
            "docs/handlers.md",
        ),
        ("an error page", b"<!DOCTYPE html><html>".to_vec(), "a web page", "download"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0".to_vec(), "compressed", "unpack it"),
        ("room that is being filled", b"\0asm\0\0\0\0\0\0".to_vec(), "no contents", ""),
        ("a version of tomorrow", b"\0asm\x02\0\0\0\0\0".to_vec(), "version 02000000", "update the runner"),
        ("text", b"(module)".to_vec(), "WebAssembly text", "wat2wasm"),
        ("text with a comment", b";; a\n(module)".to_vec(), "WebAssembly text", "wat2wasm"),
        ("an archive", b"PK\x03\x04abcdefgh".to_vec(), "begins with 504b0304", "unpack it"),
        ("noise", b"\xfe\x01\x02\x03\x04\x05".to_vec(), "begins with fe010203", BUILD),
        ("a Git LFS pointer", b"version https://git-lfs.github.com/spec/v1".to_vec(), "LFS", "git lfs pull"),
        ("garbage after the header", b"\0asm\x01\0\0\0\xff\xff\xff\xff\xff\xff".to_vec(), "not valid", ""),
        ("wasm-bindgen", importing("__wbindgen_placeholder__", "__wbindgen_describe"), "JavaScript", BUILD),
        ("wasm-bindgen after its tool", importing("wbg", "__wbg_now"), "JavaScript", BUILD),
        ("Emscripten", importing("env", "emscripten_notify_memory_growth"), "Emscripten", BUILD),
        ("wasm32-unknown-unknown", importing("env", "host_call"), "imports env.host_call", BUILD),
        ("names for a terminal", importing("env", "\u{1b}[2Jcleared\nand a new line"), "env.", BUILD),
        ("a name without end", importing("env", LONG_NAME), "(cut)", ""),
        ("Go for browsers", importing("gojs", "runtime.wasmExit"), "GOOS=js", "GOOS=wasip1"),
        ("AssemblyScript", importing("env", "abort"), "AssemblyScript", "wasi-shim"),
        (
            "a command that wants more than WASI",
            echo()
                .import("hourhand:job/host@0.1.0", "is-cancelled", &[], &[ValType::I32])
                .export("_start")
                .build_bare(),
            "a command (exports _start) that imports hourhand:job/host@0.1.0.is-cancelled",
            "leave that import out",
        ),
        (
            "a WASI library",
            echo().export("_initialize").build_bare(),
            "a WASI library (exports _initialize) without a handler",
            "main function",
        ),
        (
            "wasm32-unknown-unknown without imports",
            echo().export("__heap_base").build_bare(),
            "built for wasm32-unknown-unknown?",
            BUILD,
        ),
        (
            "a command of an old C library",
            made_by(echo().export("_start").build_bare(), "Debian clang", "14.0.6"),
            "built with Debian clang 14.0.6",
            "2023 or newer",
        ),
        (
            "a function that WASI does not have",
            echo().import("wasi:http/types@0.2.0", "f", &[], &[]).build(),
            "cannot be wrapped",
            "wasi:http/types",
        ),
        (
            "a function of WASI with another signature",
            echo().import("wasi:clocks/monotonic-clock@0.2.0", "now", &[], &[ValType::I32]).build(),
            "cannot be wrapped",
            "",
        ),
        (
            "another WASI",
            echo().import("wasi:http/types@0.3.0", "f", &[], &[]).build(),
            "cannot be wrapped",
            "wasm32-wasip1",
        ),
        ("an object file", object_file(), "not linked", "leave out -c"),
        ("an HTTP component", http_component(), "an HTTP component", "hourhand-sdk"),
        (
            "a library without handlers",
            echo().export("add").build_bare(),
            "exports no handler",
            "hourhand-sdk",
        ),
        ("a newer interface", newer, "hourhand:job@0.2.0; this runner serves 0.1.0", "update the runner"),
        (
            "a wrong signature",
            echo().handle_params(&[ValType::I64]).build(),
            "another signature",
            "hourhand-sdk",
        ),
        ("packages that need each other", cyclic(), "does not export hourhand:job/handler", "hourhand-sdk"),
        ("no world", echo().build_bare(), "no WIT world", "component-type"),
        ("threads", echo().memory(memory(false, true)).build(), "threads", BUILD),
        ("64-bit memory", echo().memory(memory(true, false)).build(), "64-bit memory", BUILD),
        ("bad declarations", echo().handlers("{").build(), "hourhand.handlers", ""),
        (
            "a kind twice",
            echo().handlers("{\"kind\":\"a\"}\n{\"kind\":\"a\"}").build(),
            "kind a more than once",
            "",
        ),
        ("memory for no one", echo().pages(9_000).build(), "562.5 MiB", "128 MiB"),
        ("memory over the default", echo().pages(3_000).build(), "187.5 MiB", "128 MiB"),
        ("a page too many", echo().pages(2_049).build(), "131136 KiB", "128 MiB"),
        ("a component of another world", other_component(), "does not export hourhand:job/handler", BUILD),
    ]
}

/// A world whose packages need each other: it sent wit-component into endless recursion, and with it the
/// process to its end.
fn cyclic() -> Vec<u8> {
    const NAME: &[u8] = b"hourhand:job/handler@0.1.0";
    let mut bytes = echo().build();
    let in_world = bytes.windows(NAME.len()).rposition(|window| window == NAME).unwrap();
    bytes[in_world + "hourhand:jo".len()] = b'v';
    bytes
}

/// The module, as if these tools had made it.
fn made_by(mut bytes: Vec<u8>, tool: &str, version: &str) -> Vec<u8> {
    let mut field = wasm_encoder::ProducersField::new();
    field.value(tool, version);
    let mut producers = wasm_encoder::ProducersSection::new();
    producers.field("processed-by", &field);
    wasm_encoder::ComponentSection::append_to_component(&producers, &mut bytes);
    bytes
}

/// What a compiler hands to its linker.
fn object_file() -> Vec<u8> {
    let mut bytes = echo().build_bare();
    let linking = wasm_encoder::CustomSection { name: "linking".into(), data: [2].as_slice().into() };
    bytes.push(0);
    wasm_encoder::Encode::encode(&linking, &mut bytes);
    bytes
}

fn http_component() -> Vec<u8> {
    const WIT: &str = "
        package a:b;
        world job-handler { export wasi:http/incoming-handler@0.2.0; }
        package wasi:http@0.2.0 { interface incoming-handler { handle: func(); } }";
    let module = guest([wasm_encoder::Instruction::I32Const(1), wasm_encoder::Instruction::Drop])
        .export("wasi:http/incoming-handler@0.2.0#handle")
        .no_results()
        .handle_params(&[])
        .wit(WIT.to_owned())
        .build();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

fn other_component() -> Vec<u8> {
    let wit = "package a:b; world job-handler { export run: func(x: u32) -> u32; }".to_owned();
    let module = guest([wasm_encoder::Instruction::I32Const(1)]).export("run").wit(wit).build();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}

#[test]
fn what_is_no_handler_is_refused_with_its_cause_and_the_fix_by_runner_and_check_alike() {
    let sandbox = Sandbox::new(SandboxConfig { concurrency: 1, ..SandboxConfig::default() }).unwrap();
    for (what, bytes, cause, fix) in refused() {
        let error = sandbox.load("k", &bytes).map(|_| ()).expect_err(what);
        let message = error.to_string();
        assert!(message.contains(cause) && message.contains(fix), "{what}: {message}");
        let one_line = message.len() <= 1_100 && !message.chars().any(char::is_control);
        assert!(one_line, "{what}: one line, not {message:?}");
        assert_eq!(inspect("k", &bytes).refusal, Some(error), "{what}");
    }
    let half = sandbox.load("k", &refused()[2].1).map(|_| ());
    assert!(matches!(half, Err(LoadError::Incomplete(_))), "{half:?}");
}

#[test]
fn every_beginning_of_a_module_is_incomplete_or_refused_and_never_more() {
    let sandbox = Sandbox::new(SandboxConfig { concurrency: 1, ..SandboxConfig::default() }).unwrap();
    let whole = echo().handlers(r#"{"kind":"k"}"#).build();
    assert!(sandbox.load("k", &whole).is_ok());
    for end in 0..whole.len() {
        assert!(sandbox.load("k", &whole[..end]).is_err(), "the first {end} bytes of {}", whole.len());
    }
}

#[test]
fn a_ready_component_loads_as_it_is() {
    let sandbox = Sandbox::new(SandboxConfig { concurrency: 1, ..SandboxConfig::default() }).unwrap();
    let core = echo().handlers(r#"{"kind":"a","timeout_ms":7}"#).build();
    let component = ComponentEncoder::default().module(&core).unwrap().encode().unwrap();
    let module = sandbox.load("k", &component).unwrap();
    assert_eq!(module.sha256().len(), 64);
    let declared: Vec<_> = module.declared().iter().map(|d| (d.kind.as_str(), d.timeout_ms)).collect();
    assert_eq!(declared, [("a", Some(7))]);
}

#[tokio::test]
async fn a_core_module_that_imports_wasi_0_2_by_itself_runs_whatever_its_patch_version() {
    for patch in [0, 3, 12] {
        let clock: &'static str = format!("wasi:clocks/monotonic-clock@0.2.{patch}").leak();
        let mut body = vec![I::I32Const(TEXT), I::Call(0), I::I64Store(at(0))];
        body.extend(ok(TEXT, 8));
        let module = guest(body).import(clock, "now", &[], &[ValType::I64]);
        match run(&module, &limits(1_000)).await.end {
            RunEnd::Completed(now) => assert!(now.iter().any(|byte| *byte != 0), "{clock}"),
            other => panic!("{clock}: {other:?}"),
        }
    }
}

#[test]
fn inspect_says_what_a_module_is_and_needs() {
    let with_wasi = guest(ok(0, 0)).wasi("fd_write", &[ValType::I32; 4]).handlers(r#"{"kind":"a"}"#).build();
    let inspection = inspect("k", &with_wasi);
    assert_eq!(inspection.refusal, None);
    assert_eq!(inspection.form, Some(Form::Core));
    assert_eq!(inspection.interface.as_deref(), Some("0.1.0"));
    assert_eq!(inspection.imports, ["wasi_snapshot_preview1.fd_write"]);
    assert_eq!(inspection.declared[0].kind.as_str(), "a");
    assert_eq!(inspection.memory_bytes_initial, Some(2 << 16));
    assert_eq!(inspection.size_bytes, with_wasi.len() as u64);
}

#[test]
fn a_module_that_is_refused_is_webassembly_all_the_same() {
    let core = echo().build();
    let component = ComponentEncoder::default().module(&core).unwrap().encode().unwrap();
    let half = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    for (bytes, form) in [
        (echo().handlers("{").build(), Some(Form::Core)),
        (half(&core), Some(Form::Core)),
        (half(&component), Some(Form::Component)),
        (b"\0asm".to_vec(), None),
        (b"(module)".to_vec(), None),
    ] {
        let inspection = inspect("k", &bytes);
        assert!(inspection.refusal.is_some());
        assert_eq!(inspection.form, form, "{:?}", inspection.refusal);
    }
    let inspection = inspect("k", &echo().handlers("{").build());
    assert_eq!(inspection.interface.as_deref(), Some("0.1.0"));
}

#[test]
fn compiled_code_is_kept_between_starts() {
    let dir = tempfile::tempdir().unwrap();
    let cache_dir = dir.path().join("code");
    let start = || {
        let config =
            SandboxConfig { concurrency: 1, cache_dir: Some(cache_dir.clone()), ..SandboxConfig::default() };
        Sandbox::new(config).unwrap()
    };
    let files = || std::fs::read_dir(&cache_dir).unwrap().count();
    let bytes = echo().build();
    start().load("k", &bytes).unwrap();
    assert_eq!(files(), 1);
    let again: Arc<Sandbox> = start();
    again.load("k", &bytes).unwrap();
    assert_eq!(files(), 1);
    // A module that is refused leaves nothing.
    again.load("k", &echo().pages(9_000).build()).unwrap_err();
    assert_eq!(files(), 1);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for config in [
        SandboxConfig { memory_bytes_max: 0, ..SandboxConfig::default() },
        SandboxConfig { memory_bytes_max: 32 << 10, ..SandboxConfig::default() },
        SandboxConfig { memory_bytes_total: 1, ..SandboxConfig::default() },
        SandboxConfig { memory_bytes_max: 5 << 30, ..SandboxConfig::default() },
    ] {
        let message = Sandbox::new(config).map(|_| ()).unwrap_err().to_string();
        assert!(message.starts_with("memory of "), "{message}");
    }
}

/// Damaged modules either do not load or run and end: whatever the damage, the host goes on.
#[test]
#[allow(clippy::print_stderr, reason = "the seed, for who wants to see it again")]
fn damaged_modules_do_the_host_no_harm() {
    let seed = std::env::var("HOURHAND_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| hourhand::clock::wall_us() | 1);
    eprintln!("HOURHAND_TEST_SEED={seed}");
    let mut state = seed;
    let mut random = move |below: usize| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let whole = guests::print(1, b"hello", 3).handlers(r#"{"kind":"k"}"#).build();
    let (mut loaded, mut refused) = (0, 0);
    guests::in_a_guest_runtime(async {
        let limits = guests::limits(50);
        for _ in 0..400 {
            let mut damaged = whole.clone();
            for _ in 0..=random(3) {
                let at = random(damaged.len());
                damaged[at] = random(256) as u8;
            }
            let Ok(module) = guests::sandbox().load("k", &damaged) else {
                refused += 1;
                continue;
            };
            loaded += 1;
            let log = Arc::new(JobLog::new(100));
            guests::sandbox().run(&module, guests::job("x"), &limits, StopSignal::new(), log).await;
            assert_eq!(guests::sandbox().memory_in_use(), 0);
        }
    });
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
}
