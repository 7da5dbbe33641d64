//! What is no module of ours, said with its cause and the fix in one line.
//!
//! People drop all kinds of files into a handlers folder. Each check here answers one kind before
//! anything is compiled.

use super::facts::{Facts, Form};
use super::{LoadError, inspect::INTERFACE_VERSION};

const HOW_TO_BUILD: &str =
    "build it with hourhand-sdk, crate-type cdylib: cargo build --release --target wasm32-wasip1";
const HANDLER_PREFIX: &str = "hourhand:job/handler@";

/// Refuses what is not WebAssembly at all.
pub(super) fn looks_like_wasm(bytes: &[u8]) -> Result<(), LoadError> {
    const MAGIC: &[u8] = b"\0asm";
    if bytes.is_empty() {
        return Err(LoadError::Incomplete("the file is empty".to_owned()));
    }
    if bytes.len() < 8 && MAGIC.starts_with(&bytes[..bytes.len().min(4)]) {
        return Err(LoadError::Incomplete(format!("the file has only {} bytes", bytes.len())));
    }
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    let what = if bytes.starts_with(b"\x7fELF") {
        "native code (ELF), or compiled WebAssembly (.cwasm): a runner loads portable modules only".to_owned()
    } else if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'(')
        || bytes.starts_with(b";;")
        || bytes.starts_with(b"(;")
    {
        "WebAssembly text: convert it with `wasm-tools parse` or `wat2wasm`".to_owned()
    } else if bytes.starts_with(b"version https://git-lfs") {
        "a Git LFS pointer and not the module: run `git lfs pull`".to_owned()
    } else {
        let start: String = bytes[..bytes.len().min(4)].iter().map(|b| format!("{b:02x}")).collect();
        format!("not WebAssembly: it begins with {start}, not 0061736d")
    };
    Err(LoadError::Refused(format!("{what}; {HOW_TO_BUILD}")))
}

/// Refuses WebAssembly that does not serve as a handler.
pub(super) fn is_handler(facts: &Facts) -> Result<(), LoadError> {
    if facts.shared_memory {
        return refused("it wants threads (a shared memory), which the sandbox does not offer", HOW_TO_BUILD);
    }
    if facts.memory64 {
        return refused("it uses 64-bit memory, which the sandbox does not offer", HOW_TO_BUILD);
    }
    if let Some(version) = handler_version(facts) {
        return if is_served(&version) { foreign_imports(facts) } else { other_version(&version) };
    }
    foreign_imports(facts)?;
    let what = match facts.form {
        Form::Component if facts.exports.iter().any(|e| e.starts_with("wasi:cli/run@")) => {
            "it is a command component (exports wasi:cli/run) and no handler"
        }
        Form::Component if facts.exports.iter().any(|e| e.starts_with("wasi:http/incoming-handler@")) => {
            "it is an HTTP component and no job handler"
        }
        Form::Component => "the component does not export hourhand:job/handler",
        Form::Core if facts.exports.iter().any(|e| e == "_start") => {
            "it is a plain WASI command (exports _start), which this version does not run"
        }
        Form::Core => "it exports no handler (hourhand:job/handler)",
    };
    refused(what, HOW_TO_BUILD)
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

fn other_version(version: &str) -> Result<(), LoadError> {
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
        return refused("it was built for JavaScript (wasm-bindgen, wasm32-unknown-unknown)", HOW_TO_BUILD);
    }
    if imports_from("gojs.") || imports_from("go.") {
        return refused(
            "it was built for JavaScript (GOOS=js)",
            "build it with GOOS=wasip1 and the job world",
        );
    }
    if imports_from("env.") && facts.imports.iter().any(|i| i.contains("emscripten") || i.contains("invoke_"))
    {
        return refused("it was built with Emscripten, whose imports (env) no sandbox offers", HOW_TO_BUILD);
    }
    if imports_from("wasi_unstable.") {
        return refused("it was built for an old preview of WASI (wasi_unstable)", HOW_TO_BUILD);
    }
    match facts.imports.iter().find(|import| import.starts_with("env.")) {
        Some(import) => refused(
            &format!("it imports {import}, which the sandbox does not offer (wasm32-unknown-unknown?)"),
            HOW_TO_BUILD,
        ),
        None => Ok(()),
    }
}

fn refused(what: &str, fix: &str) -> Result<(), LoadError> {
    Err(LoadError::Refused(format!("{what}; {fix}")))
}
