//! Loads modules as a runner would: through a registry, on a handlers folder of their own that goes with this process.
//!
//! So their manifests count, and so does everything else that a runner looks at.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::app;
use crate::cli::context::Context;
use crate::cli::exit::Fault;
use crate::config;
use crate::names::Name;
use crate::registry::{Handler, Registry, RegistryConfig, Snapshot, Status};
use crate::sandbox::{Sandbox, SandboxConfig};

/// A module, and the manifest that counts for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) struct Artifact {
    /// The module's file.
    pub(in crate::cli) module: PathBuf,
    /// The manifest's file.
    pub(in crate::cli) manifest: Option<PathBuf>,
}

impl Artifact {
    /// A module with the manifest that lies in `folder` under its name, if one does.
    pub(in crate::cli) fn with_manifest_in(module: PathBuf, folder: &Path) -> Self {
        let manifest = module.file_stem().map(|stem| folder.join(stem).with_extension_added("toml"));
        Self { module, manifest: manifest.filter(|manifest| manifest.is_file()) }
    }

    /// The name of its file in a handlers folder, without `.wasm`.
    pub(in crate::cli) fn stem(&self) -> String {
        self.module.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// `order.close` with `toml` is `order.close.toml`: a kind may have a point.
trait ExtensionAdded {
    fn with_extension_added(&self, extension: &str) -> PathBuf;
}

impl ExtensionAdded for PathBuf {
    fn with_extension_added(&self, extension: &str) -> PathBuf {
        let mut name = self.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(extension);
        self.with_file_name(name)
    }
}

/// Loaded modules.
pub(in crate::cli) struct Stage {
    /// Where they run.
    pub(in crate::cli) sandbox: Arc<Sandbox>,
    snapshot: Arc<Snapshot>,
    _registry: Registry,
    _dir: TempDir,
}

impl Stage {
    /// Loads these.
    ///
    /// # Errors
    /// When one of them does not load: each with its reason.
    pub(in crate::cli) async fn load(context: &Context, artifacts: &[Artifact]) -> Result<Self, Fault> {
        let (_, cache_dir) = config::handlers(&context.layers, &context.machine)?;
        let dir = tempfile::tempdir().map_err(|e| Fault::failed(format!("cannot make a folder: {e}")))?;
        for artifact in artifacts {
            place(artifact, dir.path())?;
        }
        let settings = context.layers.operator();
        let memory_bytes_max = app::memory_bytes_max(settings);
        let config =
            SandboxConfig { concurrency: 1, memory_bytes_max, cache_dir, ..SandboxConfig::default() };
        let sandbox = Sandbox::new(config).map_err(|e| Fault::failed(e.to_string()))?;
        let operator = Arc::new(app::operator(settings)?);
        let config = RegistryConfig { operator, ..RegistryConfig::new(dir.path().to_owned()) };
        let registry = Registry::start(config, Arc::clone(&sandbox));
        let registry = registry.map_err(|e| Fault::failed(e.to_string()))?;
        registry.settled().await;
        let snapshot = registry.snapshot();
        let broken = snapshot.files.iter().filter(|file| file.status == Status::Broken);
        let problems: Vec<String> = broken
            .map(|file| {
                let name = file.file.file_name().unwrap_or_default();
                let source = artifacts.iter().find(|a| a.module.file_name() == Some(name));
                let shown = source.map_or(&file.file, |source| &source.module).display();
                format!("{shown}: {}", file.error.as_deref().unwrap_or("it does not load"))
            })
            .collect();
        if !problems.is_empty() {
            // A manifest is named by its place in the folder, which is none of the user's.
            let place = format!("{}/", dir.path().display());
            return Err(Fault::usage(problems.join("\n").replace(&place, "")));
        }
        Ok(Self { sandbox, snapshot, _registry: registry, _dir: dir })
    }

    /// The handler of a kind; of the only one when none is named.
    ///
    /// # Errors
    /// Which kinds there are.
    pub(in crate::cli) fn handler(&self, kind: Option<&Name>) -> Result<&Arc<Handler>, String> {
        let handlers = &self.snapshot.handlers;
        let all = || handlers.keys().map(Name::as_str).collect::<Vec<_>>().join(", ");
        match kind {
            Some(kind) => handlers
                .get(kind)
                .ok_or_else(|| format!("there is no handler for {kind}: there is {}", all())),
            None if handlers.len() == 1 => Ok(handlers.values().next().expect("there is one")),
            None => Err(format!("there are several handlers, and a kind must be named: {}", all())),
        }
    }
}

/// Copies the module and its manifest into the folder. Their times are set far back: files that nobody is still
/// writing are taken, or refused, at once.
fn place(artifact: &Artifact, dir: &Path) -> Result<(), Fault> {
    let stem = artifact.stem();
    check_module(&artifact.module)?;
    let files = [(Some(&artifact.module), "wasm"), (artifact.manifest.as_ref(), "toml")];
    for (source, extension) in files {
        let Some(source) = source else { continue };
        let target = dir.join(format!("{stem}.{extension}"));
        let placed = fs::copy(source, &target).and_then(|_| {
            let file = File::options().write(true).open(&target)?;
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400))
        });
        placed.map_err(|error| Fault::usage(format!("cannot read {}: {error}", source.display())))?;
    }
    Ok(())
}

/// Refuses what a runner would not even look at.
///
/// # Errors
/// What is wrong with the file or its name.
pub(in crate::cli) fn check_module(file: &Path) -> Result<(), Fault> {
    let shown = file.display();
    let facts = fs::metadata(file).map_err(|error| Fault::usage(format!("cannot read {shown}: {error}")))?;
    if !facts.is_file() {
        return Err(Fault::usage(format!("cannot read {shown}: it is not a file")));
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".wasm") || name.starts_with('.') {
        return Err(Fault::usage(format!(
            "{shown}: a runner looks at *.wasm only, and at no file whose name begins with a dot"
        )));
    }
    Ok(())
}
