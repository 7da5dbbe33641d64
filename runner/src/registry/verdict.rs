//! Whether a runner serves a file: by its name, its length, and what its module says.
//!
//! The one place that decides it, for the folder that a runner watches and for `handler check`. What the
//! bytes themselves must be is the sandbox's to say.

use std::path::Path;

use crate::config::Problems;
use crate::manifest::{self, Effective, Manifest, Operator};
use crate::names::Name;
use crate::sandbox::{Inspection, declared_in, inspect_within};

use super::RegistryConfig;
use super::manifests::manifest_beside;

/// What a runner would make of a module file.
#[derive(Debug)]
pub struct Verdict {
    /// What the module is.
    pub inspection: Inspection,
    /// The kinds that it serves, or would if nothing else stood against it.
    pub kinds: Vec<Name>,
    /// What each of them gets: module, manifest and ceiling together. Empty where they do not agree.
    pub effective: Vec<(Name, Effective)>,
    /// Why a runner does not serve it.
    pub refusal: Option<String>,
}

/// Looks at the file `path` with these bytes, and at the manifest beside it, as a runner of `operator` would, whose handlers
/// may have `memory_bytes_max`; without running anything. Blocking: it compiles the module.
pub fn verdict(path: &Path, bytes: &[u8], operator: &Operator, memory_bytes_max: u64) -> Verdict {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let looked_at = stem(&name);
    let stem = looked_at.unwrap_or(&name);
    let inspection = inspect_within(stem, bytes, memory_bytes_max);
    let bytes_max = RegistryConfig::new(Default::default()).module_bytes_max;
    let by_name = refused_unread(stem, bytes.len() as u64, bytes_max);
    let unseen = || "a runner looks at *.wasm only, and at no file whose name begins with a dot".to_owned();
    let refused = by_name
        .or_else(|| inspection.refusal.as_ref().map(ToString::to_string))
        .or_else(|| looked_at.is_none().then(unseen));
    let nothing = |refusal| Verdict {
        kinds: Vec::new(),
        effective: Vec::new(),
        refusal,
        inspection: inspection.clone(),
    };
    if is_reserved(stem) {
        return nothing(refused);
    }
    let manifest = match manifest_beside(path) {
        Ok(manifest) => manifest,
        Err(problems) => return nothing(refused.or(Some(problems.to_string()))),
    };
    let kinds = match manifest::kinds(stem, &inspection.declared, manifest.as_ref()) {
        Ok(kinds) => kinds,
        Err(no_kind) => return nothing(refused.or(Some(no_kind.to_string()))),
    };
    match effective(&kinds, &inspection, manifest.as_ref(), operator) {
        Ok(effective) => Verdict { inspection, kinds, effective, refusal: refused },
        Err(problems) => {
            let refusal = refused.or(Some(problems.to_string()));
            Verdict { inspection, kinds, effective: Vec::new(), refusal }
        }
    }
}

fn effective(
    kinds: &[Name],
    inspection: &Inspection,
    manifest: Option<&Manifest>,
    operator: &Operator,
) -> Result<Vec<(Name, Effective)>, Problems> {
    let of = |kind: &Name| {
        let declared = inspection.declared.iter().find(|declared| declared.kind == *kind);
        Ok((kind.clone(), manifest::effective(kind, declared, manifest, operator)?))
    };
    kinds.iter().map(of).collect()
}

/// The stem of a module file's name, or `None` for a file that a runner does not look at.
pub fn stem(name: &str) -> Option<&str> {
    name.strip_suffix(".wasm").filter(|_| !name.starts_with('.'))
}

fn is_reserved(stem: &str) -> bool {
    stem.ends_with(".next") || stem == "schedules"
}

/// What is wrong with a file whose contents need not be read to know.
pub(super) fn refused_unread(stem: &str, len: u64, bytes_max: u64) -> Option<String> {
    if is_reserved(stem) {
        Some(format!("the name {stem:?} is reserved"))
    } else if len > bytes_max {
        Some(format!(
            "it is over the module limit of {bytes_max} bytes; build it with strip = true and lto = true"
        ))
    } else {
        None
    }
}

/// The kinds that the module `path` with these bytes would serve, by what it declares, by the manifest beside it and by
/// its name. Nothing is compiled: whether it loads is another question.
///
/// # Errors
/// Why it serves none.
pub fn kinds_of(path: &Path, bytes: &[u8]) -> Result<Vec<Name>, String> {
    let declared = declared_in(bytes).map_err(|error| error.to_string())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let manifest = super::manifest_beside(path).ok().flatten();
    manifest::kinds(stem(&name).unwrap_or(&name), &declared, manifest.as_ref())
        .map_err(|error| error.to_string())
}
