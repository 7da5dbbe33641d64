//! `handler`: what a handlers folder holds, and whether a module would load.
//!
//! Both load modules as a runner does, in this process: what they say is what a runner would say.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::context::Context;
use super::exit::{Code, Fault};
use super::grants::{GrantsOut, in_short};
use super::listing;
use super::output::{Out, note, plain};
use super::table::Table;
use crate::config;
use crate::manifest::Effective;
use crate::names::Name;
use crate::registry::{HandlerStatus, PinStatus, Registry, RegistryConfig, Verdict, Versions, verdict};
use crate::sandbox::{Asks, Build, Declared, Form, Limits, Role, Sandbox, SandboxConfig};
use crate::wire::units::rfc3339;

/// A handler of a folder.
#[derive(Debug, Serialize)]
struct HandlerOut<'a> {
    kind: &'a str,
    file: String,
    sha256: Option<&'a str>,
    status: &'static str,
    since: String,
    error: Option<&'a str>,
    limits: LimitsOut,
    grants: GrantsOut<'a>,
    /// What its module, its manifest and the ceiling do not agree about.
    notes: &'a [String],
    /// How long it took to compile; `null` for what was in the cache, and for what did not load now.
    compile_ms: Option<u64>,
    /// Whether its code was in the cache; `null` for what did not load now.
    from_cache: Option<bool>,
    pin: Option<PinOut<'a>>,
}

#[derive(Debug, Serialize)]
struct PinOut<'a> {
    sha256: &'a str,
    since: String,
    folder_sha256: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct LimitsOut {
    timeout_ms: u64,
    memory_bytes: u64,
    output_bytes: usize,
    log_bytes: usize,
    /// Jobs of the kind that one runner runs at once; `null` for no bound of its own.
    concurrency: Option<u32>,
    weight: u32,
}

impl<'a> From<&'a HandlerStatus> for HandlerOut<'a> {
    fn from(handler: &'a HandlerStatus) -> Self {
        let Limits { timeout_ms, memory_bytes, output_bytes, log_bytes } = handler.limits;
        Self {
            kind: &handler.kind,
            file: handler.file.display().to_string(),
            sha256: handler.sha256.as_deref(),
            status: handler.status.as_str(),
            since: rfc3339(handler.since_ms),
            error: handler.error.as_deref(),
            limits: LimitsOut {
                timeout_ms,
                memory_bytes,
                output_bytes,
                log_bytes,
                concurrency: handler.concurrency,
                weight: handler.weight,
            },
            grants: GrantsOut::from(&*handler.grants),
            notes: &handler.notes,
            compile_ms: handler.build.as_ref().and_then(|build| build.compile_ms),
            from_cache: handler.build.as_ref().map(|build| build.compile_ms.is_none()),
            pin: handler.pin.as_ref().map(|pin| PinOut {
                sha256: &pin.wanted,
                since: rfc3339(pin.since_ms),
                folder_sha256: pin.folder_sha256.as_deref(),
            }),
        }
    }
}

/// Loads the handlers folder and lists what is in it.
pub(super) async fn list(context: &mut Context) -> Result<Code, Fault> {
    let (dir, cache_dir) = config::handlers(&context.layers, &context.machine)?;
    crate::app::check_handlers_dir(&dir).map_err(|e| Fault::usage(format!("{e:#}")))?;
    let versions = cache_dir.as_deref().map(|cache| Versions::of_folder(cache, &dir).read_only());
    // One slot is enough to load with.
    let settings = context.layers.operator();
    let memory_bytes_max = crate::app::memory_bytes_max(settings);
    let config = SandboxConfig { concurrency: 1, memory_bytes_max, cache_dir, ..SandboxConfig::default() };
    let sandbox = Sandbox::new(config).map_err(|e| Fault::failed(e.to_string()))?;
    let operator = Arc::new(crate::app::operator_without_secrets(settings));
    let registry =
        Registry::start(RegistryConfig { operator, versions, ..RegistryConfig::new(dir) }, sandbox);
    let registry = registry.map_err(|e| Fault::failed(e.to_string()))?;
    registry.settled().await;
    let snapshot = registry.snapshot();
    if context.out.json() {
        listing::whole(context, snapshot.files.iter().map(HandlerOut::from).collect());
        return Ok(Code::Done);
    }
    let mut table = Table::new(&[
        "kind", "status", "file", "sha256", "timeout", "memory", "grants", "compiled", "pinned", "error",
    ]);
    for handler in &snapshot.files {
        table.row([
            handler.kind.clone(),
            handler.status.as_str().to_owned(),
            handler.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            handler.sha256.as_deref().map(|s| s.chars().take(12).collect()).unwrap_or_default(),
            format!("{} ms", handler.limits.timeout_ms),
            format!("{} MiB", handler.limits.memory_bytes >> 20),
            in_short(&handler.grants),
            handler.build.as_ref().map_or_else(String::new, |build| {
                build.compile_ms.map_or_else(|| "from cache".to_owned(), |ms| format!("{ms} ms"))
            }),
            handler.pin.as_ref().map(pinned).unwrap_or_default(),
            handler.error.clone().unwrap_or_default(),
        ]);
    }
    table.print(&mut context.out, "no handlers");
    let notes: BTreeSet<&String> = snapshot.files.iter().flat_map(|handler| &handler.notes).collect();
    for text in notes {
        note(&format!("note: {}", plain(text)));
    }
    Ok(Code::Done)
}

/// `since 2026-12-01T09:00:00Z, folder has 0123456789ab`
fn pinned(pin: &PinStatus) -> String {
    let folder = pin.folder_sha256.as_deref().map_or_else(
        || "nothing in the folder".to_owned(),
        |sha256| match sha256.starts_with(&pin.wanted) {
            true => "folder has the same".to_owned(),
            false => format!("folder has {}", &sha256[..12]),
        },
    );
    format!("since {}, {folder}", rfc3339(pin.since_ms))
}

/// What a module is, and whether it would load.
#[derive(Debug, Serialize)]
struct CheckOut<'a> {
    file: String,
    ok: bool,
    error: Option<String>,
    sha256: &'a str,
    size_bytes: u64,
    /// `core`, `component`, or `null` for what is no WebAssembly.
    form: Option<&'static str>,
    /// `handler`, `command`, or `null` for what serves as neither.
    role: Option<&'static str>,
    interface: Option<&'a str>,
    kinds: Vec<String>,
    handlers: Vec<DeclaredOut<'a>>,
    /// What each kind gets: module, manifest and ceiling together.
    gets: Vec<GetsOut<'a>>,
    memory_bytes_initial: Option<u64>,
    /// `null` when it does not load.
    needs: Option<NeedsOut>,
    imports: &'a [String],
    exports: &'a [String],
    producers: &'a [String],
}

/// What a kind gets.
#[derive(Debug, Serialize)]
struct GetsOut<'a> {
    kind: &'a str,
    limits: LimitsOut,
    max_attempts: u32,
    grants: GrantsOut<'a>,
    notes: &'a [String],
    #[serde(skip)]
    grants_in_short: String,
}

impl<'a> From<&'a (Name, Effective)> for GetsOut<'a> {
    fn from((kind, effective): &'a (Name, Effective)) -> Self {
        let Limits { timeout_ms, memory_bytes, output_bytes, log_bytes } = effective.limits;
        let (concurrency, weight) = (effective.concurrency, effective.weight);
        Self {
            kind: kind.as_str(),
            limits: LimitsOut { timeout_ms, memory_bytes, output_bytes, log_bytes, concurrency, weight },
            max_attempts: effective.max_attempts,
            grants: GrantsOut::from(&effective.grants),
            notes: &effective.notes,
            grants_in_short: in_short(&effective.grants),
        }
    }
}

/// What compiling it took here, and what each job takes of a runner's pool.
#[derive(Debug, Serialize)]
struct NeedsOut {
    compile_ms: u64,
    memories: u32,
    tables: u32,
    table_elements: u64,
}

impl From<&Build> for NeedsOut {
    fn from(build: &Build) -> Self {
        let Build { compile_ms, memories, tables, table_elements } = *build;
        // A check has no cache to take it from.
        Self { compile_ms: compile_ms.unwrap_or_default(), memories, tables, table_elements }
    }
}

/// What a module declares of a handler; `null` is left to the defaults.
#[derive(Debug, Serialize)]
struct DeclaredOut<'a> {
    kind: &'a str,
    timeout_ms: Option<u64>,
    max_attempts: Option<u32>,
    backoff_base_ms: Option<u64>,
    backoff_max_ms: Option<u64>,
    keep_results: bool,
    asks: AsksOut<'a>,
}

/// What it wants to reach; `null` where it does not say.
#[derive(Debug, Serialize)]
struct AsksOut<'a> {
    memory_bytes: Option<u64>,
    http: Option<Vec<String>>,
    env: Option<&'a [String]>,
    secrets: Option<&'a [String]>,
    state: Option<bool>,
    enqueue: Option<&'a [String]>,
}

impl<'a> From<&'a Asks> for AsksOut<'a> {
    fn from(asks: &'a Asks) -> Self {
        Self {
            memory_bytes: asks.memory_bytes,
            http: asks.http.as_ref().map(|http| http.iter().map(ToString::to_string).collect()),
            env: asks.env.as_deref(),
            secrets: asks.secrets.as_deref(),
            state: asks.state,
            enqueue: asks.enqueue.as_deref(),
        }
    }
}

impl AsksOut<'_> {
    /// In one line; empty where it says nothing.
    fn in_short(&self) -> String {
        let list = |key: &str, of: &[String]| format!("{key} {}", of.join(", "));
        let parts = [
            self.memory_bytes.map(|bytes| format!("memory {} MiB", bytes >> 20)),
            self.http.as_deref().map(|http| list("http", http)),
            self.env.map(|env| list("env", env)),
            self.secrets.map(|secrets| list("secrets", secrets)),
            self.state.map(|state| if state { "state" } else { "no state" }.to_owned()),
            self.enqueue.map(|kinds| list("enqueue", kinds)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

impl<'a> From<&'a Declared> for DeclaredOut<'a> {
    fn from(declared: &'a Declared) -> Self {
        Self {
            kind: declared.kind.as_str(),
            timeout_ms: declared.timeout_ms,
            max_attempts: declared.max_attempts,
            backoff_base_ms: declared.backoff.map(|b| b.base_ms),
            backoff_max_ms: declared.backoff.map(|b| b.max_ms),
            keep_results: declared.keep_results,
            asks: AsksOut::from(&declared.asks),
        }
    }
}

/// Checks a module. One that a runner would refuse is invalid input.
pub(super) fn check(context: &mut Context, file: &Path) -> Result<Code, Fault> {
    let bytes = read(file)?;
    let settings = context.layers.operator();
    let operator = crate::app::operator_without_secrets(settings);
    let Verdict { inspection, kinds, effective, refusal: error } =
        verdict(file, &bytes, &operator, crate::app::memory_bytes_max(settings));
    let answer = CheckOut {
        file: file.display().to_string(),
        ok: error.is_none(),
        error,
        sha256: &inspection.sha256,
        size_bytes: inspection.size_bytes,
        form: inspection.form.map(|form| match form {
            Form::Core => "core",
            Form::Component => "component",
        }),
        role: inspection.role.map(|role| match role {
            Role::Handler => "handler",
            Role::Command => "command",
        }),
        interface: inspection.interface.as_deref(),
        kinds: kinds.iter().map(ToString::to_string).collect(),
        handlers: inspection.declared.iter().map(DeclaredOut::from).collect(),
        gets: effective.iter().map(GetsOut::from).collect(),
        memory_bytes_initial: inspection.memory_bytes_initial,
        needs: inspection.build.as_ref().map(NeedsOut::from),
        imports: &inspection.imports,
        exports: &inspection.exports,
        producers: &inspection.producers,
    };
    if context.out.json() {
        context.out.value(&answer);
    } else {
        show(&mut context.out, &answer);
    }
    match &answer.error {
        None => Ok(Code::Done),
        Some(error) => {
            note(&format!("error: {}: {}", plain(&answer.file), plain(error)));
            Ok(Code::Usage)
        }
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Fault> {
    let shown = file.display();
    let unreadable = |error: std::io::Error| Fault::usage(format!("cannot read {shown}: {error}"));
    let facts = std::fs::metadata(file).map_err(unreadable)?;
    if !facts.is_file() {
        return Err(Fault::usage(format!("cannot read {shown}: it is not a file")));
    }
    let bytes_max = RegistryConfig::new(Default::default()).module_bytes_max;
    if facts.len() > bytes_max {
        let message = format!("{shown}: expected at most {bytes_max} bytes (64 MiB), got {}", facts.len());
        return Err(Fault::usage(message));
    }
    std::fs::read(file).map_err(unreadable)
}

fn runs_as(answer: &CheckOut<'_>) -> String {
    match (answer.role, answer.interface) {
        (Some("command"), _) => "command (payload on stdin, result on stdout, exit code)".to_owned(),
        (_, Some(version)) => format!("handler of hourhand:job@{version}"),
        _ => "nothing".to_owned(),
    }
}

fn show(out: &mut Out, answer: &CheckOut<'_>) {
    let mut fields = vec![
        ("file", answer.file.clone()),
        ("loads", if answer.ok { "yes" } else { "no" }.to_owned()),
        ("kinds", answer.kinds.join(", ")),
        ("form", answer.form.unwrap_or("not WebAssembly").to_owned()),
        ("runs as", runs_as(answer)),
        ("size", format!("{} bytes", answer.size_bytes)),
        ("sha256", answer.sha256.to_owned()),
    ];
    if let Some(bytes) = answer.memory_bytes_initial {
        fields.push(("memory", format!("{} KiB at the start", bytes >> 10)));
    }
    if let Some(NeedsOut { compile_ms, memories, tables, table_elements }) = &answer.needs {
        let in_pool = format!("{memories} memories, {tables} tables, {table_elements} table elements");
        fields.push(("pool", in_pool));
        fields.push(("compiled in", format!("{compile_ms} ms")));
    }
    for handler in &answer.handlers {
        let or_default = |value: Option<String>| value.unwrap_or_else(|| "default".to_owned());
        fields.push((
            "handler",
            format!(
                "{}: timeout {}, attempts {}",
                handler.kind,
                or_default(handler.timeout_ms.map(|ms| format!("{ms} ms"))),
                or_default(handler.max_attempts.map(|n| n.to_string()))
            ),
        ));
        let asks = handler.asks.in_short();
        if !asks.is_empty() {
            fields.push(("asks for", asks));
        }
    }
    for gets in &answer.gets {
        let LimitsOut { timeout_ms, memory_bytes, .. } = gets.limits;
        let reach = if gets.grants_in_short.is_empty() { "nothing" } else { &gets.grants_in_short };
        fields.push((
            "gets",
            format!(
                "{}: timeout {timeout_ms} ms, memory {} MiB, attempts {}; reaches {reach}",
                gets.kind,
                memory_bytes >> 20,
                gets.max_attempts
            ),
        ));
        fields.extend(gets.notes.iter().map(|text| ("note", text.clone())));
    }
    for (name, list) in
        [("producers", answer.producers), ("imports", answer.imports), ("exports", answer.exports)]
    {
        if !list.is_empty() {
            fields.push((name, list.join(", ")));
        }
    }
    for (name, text) in fields {
        out.line(format!("{name:11} {}", plain(&text)).trim_end());
    }
}
