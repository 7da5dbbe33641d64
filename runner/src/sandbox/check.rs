//! What is no module of ours, said with its cause and the fix in one line.
//!
//! People drop all kinds of files into a handlers folder. Each check here answers one kind before
//! anything is compiled; what is no WebAssembly at all is `stranger`'s.

use super::facts::{Facts, Form, Role};
use super::{LoadError, inspect::INTERFACE_VERSION};

pub(super) const HOW_TO_BUILD: &str =
    "build it with hourhand-sdk, crate-type cdylib: cargo build --release --target wasm32-wasip1";
const HOW_TO_BUILD_EITHER: &str = "build it with hourhand-sdk, crate-type cdylib, or give it a main function: \
     cargo build --release --target wasm32-wasip1; other languages: docs/handlers.md";
const HANDLER_PREFIX: &str = "hourhand:job/handler@";
const COMMAND_PREFIX: &str = "wasi:cli/run@";
const HTTP_PREFIXES: [&str; 3] =
    ["wasi:http/incoming-handler@", "wasi:http/handler@", "wasi:http/middleware@"];
const WASI_PREVIEW1: &str = "wasi_snapshot_preview1.";

/// What the module serves as.
///
/// # Errors
/// [`LoadError::Refused`] where it serves as nothing.
pub(super) fn role(facts: &Facts) -> Result<Role, LoadError> {
    const WITHOUT_THREADS: &str =
        "build it for wasm32-wasip1, without threads (no -pthread, no wasm32-wasip1-threads)";
    if facts.object_file {
        return refused(
            "it is an object file that was not linked",
            "link it: leave out -c, or take the linker's output",
        );
    }
    if facts.shared_memory {
        return refused(
            "it wants threads (a shared memory), which the sandbox does not offer",
            WITHOUT_THREADS,
        );
    }
    if facts.memory64 {
        return refused(
            "it uses 64-bit memory, which the sandbox does not offer",
            "build it for wasm32-wasip1, not for wasm64",
        );
    }
    if let Some(version) = handler_version(facts) {
        if !is_served(&version) {
            return other_version(&version);
        }
        return foreign_imports(facts).map(|()| Role::Handler);
    }
    foreign_imports(facts)?;
    match facts.form {
        Form::Core => core_role(facts),
        Form::Component => component_role(facts),
    }
}

fn core_role(facts: &Facts) -> Result<Role, LoadError> {
    let exports = |name: &str| facts.exports.iter().any(|export| export == name);
    if exports("_start") {
        return match facts.imports.iter().find(|import| !is_wasi(import)) {
            None => not_too_old(facts).map(|()| Role::Command),
            Some(import) => refused(
                &format!(
                    "it is a command (exports _start) that imports {import}, and commands are given WASI only"
                ),
                "leave that import out",
            ),
        };
    }
    let what = if exports("_initialize") {
        "it is a WASI library (exports _initialize) without a handler (hourhand:job/handler)"
    } else if exports("__heap_base") && facts.imports.is_empty() {
        "it exports no handler (hourhand:job/handler) and uses no WASI: built for wasm32-unknown-unknown?"
    } else {
        "it exports no handler (hourhand:job/handler) and is no command (_start)"
    };
    refused(what, HOW_TO_BUILD_EITHER)
}

/// What the sandbox offers to every module: preview 1 by its adapter, 0.2 as it is.
fn is_wasi(import: &str) -> bool {
    import.starts_with(WASI_PREVIEW1) || (import.starts_with("wasi:") && import.contains("@0.2."))
}

/// Refuses commands of C libraries from before 2023. Their allocator takes for its own all memory that is there when it is
/// first used, and the adapter's state has been put there by then: they would run, and compute nonsense.
fn not_too_old(facts: &Facts) -> Result<(), LoadError> {
    const FIXED: (u32, u32, u32) = (15, 0, 7);
    let tool = |word: &str| facts.producers.iter().find(|producer| producer.contains(word));
    match tool("clang ").filter(|clang| clang_version(clang).is_some_and(|version| version < FIXED)) {
        // Rust comes with a C library of its own.
        Some(clang) if tool("rustc ").is_none() => refused(
            &format!(
                "it is a command built with {clang}, whose C library misuses memory that WASI 0.2 needs"
            ),
            "build it with a compiler and a wasi-libc of 2023 or newer, say zig cc: see docs/handlers.md",
        ),
        _ => Ok(()),
    }
}

/// The numbers in `Debian clang 14.0.6`.
fn clang_version(producer: &str) -> Option<(u32, u32, u32)> {
    let (_, after) = producer.split_once("clang ")?;
    let mut numbers = after.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn component_role(facts: &Facts) -> Result<Role, LoadError> {
    let version = facts.exports.iter().find_map(|export| export.strip_prefix(COMMAND_PREFIX));
    match version {
        Some(version) if version.starts_with("0.2.") => return Ok(Role::Command),
        Some(version) => {
            return refused(
                &format!("it is a command of WASI {version}; this runner runs those of WASI 0.2"),
                "build it for wasm32-wasip2",
            );
        }
        None => {}
    }
    let serves_http = |export: &String| HTTP_PREFIXES.iter().any(|prefix| export.starts_with(prefix));
    if facts.exports.iter().any(serves_http) {
        return refused(
            "it is an HTTP component (it serves requests) and no job handler",
            HOW_TO_BUILD_EITHER,
        );
    }
    refused(
        "the component does not export hourhand:job/handler, and is no command (wasi:cli/run)",
        HOW_TO_BUILD_EITHER,
    )
}

/// The version of `hourhand:job` whose handler the module exports.
pub(super) fn handler_version(facts: &Facts) -> Option<String> {
    facts.exports.iter().find_map(|export| {
        let rest = export.strip_prefix(HANDLER_PREFIX)?;
        Some(rest.split('#').next().unwrap_or(rest).to_owned())
    })
}

/// Version 0.1.x: functions may have been added, types have not changed.
fn is_served(version: &str) -> bool {
    let served = INTERFACE_VERSION.rsplit_once('.').map_or(INTERFACE_VERSION, |(minor, _)| minor);
    version.strip_prefix(served).is_some_and(|rest| rest.starts_with('.'))
}

fn other_version<T>(version: &str) -> Result<T, LoadError> {
    refused(
        &format!("it is built for hourhand:job@{version}; this runner serves {INTERFACE_VERSION}"),
        "update the runner, or build it with the hourhand-sdk of this runner's version",
    )
}

/// Imports that betray another toolchain.
fn foreign_imports(facts: &Facts) -> Result<(), LoadError> {
    if facts.form == Form::Component {
        return Ok(());
    }
    let imports_from = |prefix: &str| facts.imports.iter().any(|import| import.starts_with(prefix));
    if imports_from("__wbindgen") || imports_from("wbg.") || imports_from("./") {
        return refused(
            "it was built for JavaScript (wasm-bindgen, wasm32-unknown-unknown)",
            &format!(
                "{HOW_TO_BUILD}, and without the features of dependencies that want a browser (chrono's wasmbind, getrandom's js)"
            ),
        );
    }
    if imports_from("gojs.") || imports_from("go.") {
        return refused(
            "it was built for JavaScript (GOOS=js)",
            "build it as a command: GOOS=wasip1 GOARCH=wasm go build",
        );
    }
    if imports_from("env.") && facts.imports.iter().any(|i| i.contains("emscripten") || i.contains("invoke_"))
    {
        return refused(
            "it was built with Emscripten, whose imports (env) no sandbox offers",
            "build it as a command with clang --target=wasm32-wasip1 and a WASI sysroot, see docs/handlers.md",
        );
    }
    if imports_from("wasi_unstable.") {
        return refused(
            "it was built for an old preview of WASI (wasi_unstable)",
            "build it for wasm32-wasip1",
        );
    }
    if facts.imports.iter().any(|import| import == "env.abort") && !imports_from(WASI_PREVIEW1) {
        return refused(
            "it was built with AssemblyScript, whose abort (env) the sandbox does not offer",
            "build it with its WASI shim (wasi-shim), exporting _start",
        );
    }
    match facts.imports.iter().find(|import| import.starts_with("env.")) {
        Some(import) => refused(
            &format!("it imports {import}, which the sandbox does not offer (wasm32-unknown-unknown?)"),
            HOW_TO_BUILD_EITHER,
        ),
        None => Ok(()),
    }
}

fn refused<T>(what: &str, fix: &str) -> Result<T, LoadError> {
    Err(LoadError::Refused(format!("{what}; {fix}")))
}
