//! Whether a runner serves a file: by its name, its length, and what its module says.
//!
//! The one place that decides it, for the folder that a runner watches and for `handler check`. What the
//! bytes themselves must be is the sandbox's to say.

use std::path::Path;

use crate::manifest;
use crate::names::Name;
use crate::sandbox::{Inspection, inspect};

use super::RegistryConfig;

/// What a runner would make of a module file.
#[derive(Debug)]
pub struct Verdict {
    /// What the module is.
    pub inspection: Inspection,
    /// The kinds that it serves, or would if nothing else stood against it.
    pub kinds: Vec<Name>,
    /// Why a runner does not serve it.
    pub refusal: Option<String>,
}

/// Looks at the file `path` with these bytes as a runner would, without running anything. Blocking: it
/// compiles the module.
pub fn verdict(path: &Path, bytes: &[u8]) -> Verdict {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let looked_at = stem(&name);
    let stem = looked_at.unwrap_or(&name);
    let inspection = inspect(stem, bytes);
    let bytes_max = RegistryConfig::new(Default::default()).module_bytes_max;
    let by_name = refused_unread(stem, bytes.len() as u64, bytes_max);
    let unseen = || "a runner looks at *.wasm only, and at no file whose name begins with a dot".to_owned();
    let refused = by_name
        .or_else(|| inspection.refusal.as_ref().map(ToString::to_string))
        .or_else(|| looked_at.is_none().then(unseen));
    let (kinds, refusal) = match manifest::kinds(stem, &inspection.declared, None) {
        Ok(_) if is_reserved(stem) => (Vec::new(), refused),
        Ok(kinds) => (kinds, refused),
        Err(no_kind) => (Vec::new(), refused.or(Some(no_kind.to_string()))),
    };
    Verdict { inspection, kinds, refusal }
}

/// The stem of a module file's name, or `None` for a file that a runner does not look at.
pub(super) fn stem(name: &str) -> Option<&str> {
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
