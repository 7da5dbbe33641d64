//! `handler versions`, `rollback`, `pin` and `unpin`: which version of a module serves, whatever lies in the folder.
//!
//! They read and write files only, and no runner need run: a pin lies in the handlers folder, and runners see it
//! there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::args::VersionArgs;
use super::context::Context;
use super::exit::{Code, Fault};
use super::listing;
use super::output::note;
use super::table::Table;
use crate::config;
use crate::names::Name;
use crate::registry::{RegistryConfig, Version, Versions, kinds_of, pins, stem, verdict};
use crate::wire::units::rfc3339;

/// The module that serves a kind, and what is known of its versions.
struct Subject {
    dir: PathBuf,
    stem: String,
    /// The folder's file, if there is one.
    folder: Option<Found>,
    pin: Option<pins::Pin>,
    /// Where they are kept; nowhere when the cache is off.
    versions: Option<Versions>,
    /// Those that are kept, the last one first.
    kept: Vec<Version>,
}

/// Bytes of a version, with their hash.
struct Found {
    sha256: String,
    bytes: Vec<u8>,
}

/// A line of `handler versions`.
#[derive(Debug, Serialize)]
struct VersionOut {
    sha256: String,
    /// When it was last loaded after another one.
    loaded_at: Option<String>,
    size_bytes: u64,
    in_folder: bool,
    pinned: bool,
    kept: bool,
}

/// What a pin or its end has led to.
#[derive(Debug, Serialize)]
struct PinnedOut<'a> {
    kind: &'a str,
    file: String,
    pin: Option<&'a str>,
    was: Option<String>,
    folder_sha256: Option<&'a str>,
}

/// Lists the versions of a kind's module.
pub(super) fn list(context: &mut Context, of: &VersionArgs) -> Result<Code, Fault> {
    let subject = Subject::find(context, &of.kind)?;
    let versions = subject.all();
    if context.out.json() {
        listing::whole(context, versions);
        return Ok(Code::Done);
    }
    let mut table = Table::new(&["sha256", "loaded", "size", "where"]);
    for version in versions {
        let places = [(version.pinned, "pinned"), (version.in_folder, "folder"), (version.kept, "kept")];
        table.row([
            version.sha256[..12].to_owned(),
            version.loaded_at.unwrap_or_default(),
            format!("{} bytes", version.size_bytes),
            places.iter().filter(|(is, _)| *is).map(|(_, place)| *place).collect::<Vec<_>>().join(", "),
        ]);
    }
    table.print(&mut context.out, "no versions");
    Ok(Code::Done)
}

/// Pins a kind's module to the version before, or to the one that is named.
pub(super) fn rollback(context: &mut Context, of: &VersionArgs, to: Option<&str>) -> Result<Code, Fault> {
    let subject = Subject::find(context, &of.kind)?;
    let sha256 = match to {
        Some(hash) => subject.named(hash)?,
        None => subject.before(&of.kind)?,
    };
    subject.pin_to(context, &of.kind, &sha256)
}

/// Pins a kind's module to a version, or to what lies in the folder.
pub(super) fn pin(context: &mut Context, of: &VersionArgs, hash: Option<&str>) -> Result<Code, Fault> {
    let subject = Subject::find(context, &of.kind)?;
    let sha256 = match (hash, &subject.folder) {
        (Some(hash), _) => subject.named(hash)?,
        (None, Some(folder)) => folder.sha256.clone(),
        (None, None) => {
            let file = subject.file();
            return Err(Fault::not_found(format!("{} is not there: name a version", file.display())));
        }
    };
    subject.pin_to(context, &of.kind, &sha256)
}

/// Lets what lies in the folder serve again.
pub(super) fn unpin(context: &mut Context, of: &VersionArgs) -> Result<Code, Fault> {
    let subject = Subject::find(context, &of.kind)?;
    let removed = pins::remove(&subject.dir, &subject.stem).map_err(|e| subject.unwritable(&e))?;
    if !removed {
        note(&format!("{} was not pinned", of.kind));
    }
    subject.answer(context, &of.kind, None);
    Ok(Code::Done)
}

impl Subject {
    /// The module of a kind: the one in the folder, else one that served it.
    fn find(context: &Context, kind: &Name) -> Result<Self, Fault> {
        let (dir, cache_dir) = config::handlers(&context.layers, &context.machine)?;
        crate::app::check_handlers_dir(&dir).map_err(|e| Fault::usage(format!("{e:#}")))?;
        let versions = cache_dir.map(|cache| Versions::of_folder(&cache, &dir).read_only());
        let mut modules = modules(&dir)?;
        let serves = |stem: &str, bytes: &[u8]| {
            kinds_of(&file_of(&dir, stem), bytes).is_ok_and(|kinds| kinds.contains(kind))
        };
        modules.sort_by_key(|(stem, _)| (stem != kind.as_str(), stem.clone()));
        let in_folder = modules.iter().position(|(stem, found)| serves(stem, &found.bytes));
        let kept_stem = || {
            let versions = versions.as_ref()?;
            let mut stems = versions.stems().ok()?;
            stems.sort_by_key(|stem| (stem != kind.as_str(), stem.clone()));
            stems.into_iter().find(|stem| {
                let last = versions.list(stem).ok().and_then(|all| all.into_iter().next());
                last.and_then(|last| versions.bytes(stem, &last.sha256).ok()?)
                    .is_some_and(|bytes| serves(stem, &bytes))
            })
        };
        let (stem, folder) = if let Some(at) = in_folder {
            let (stem, found) = modules.swap_remove(at);
            (stem, Some(found))
        } else if let Some(stem) = kept_stem() {
            let at = modules.iter().position(|(of_folder, _)| *of_folder == stem);
            (stem, at.map(|at| modules.swap_remove(at).1))
        } else if pins::read(&dir, kind.as_str()).is_some() {
            (kind.to_string(), None)
        } else {
            return Err(unknown(kind, &dir, &modules));
        };
        let kept = match &versions {
            Some(versions) => versions.list(&stem).map_err(|error| unreadable(versions, &error))?,
            None => Vec::new(),
        };
        let pin = pins::read(&dir, &stem);
        Ok(Self { dir, stem, folder, pin, versions, kept })
    }

    fn file(&self) -> PathBuf {
        file_of(&self.dir, &self.stem)
    }

    /// What is pinned, where it is whole hash or a beginning of one that is known.
    fn pinned(&self) -> Option<String> {
        let wanted = self.pin.as_ref()?.wanted.as_ref().ok()?;
        Some(self.hashes().find(|sha256| sha256.starts_with(wanted.as_str())).unwrap_or(wanted).to_owned())
    }

    fn hashes(&self) -> impl Iterator<Item = &str> {
        let kept = self.kept.iter().map(|version| version.sha256.as_str());
        let folder = self.folder.as_ref().map(|folder| folder.sha256.as_str());
        folder
            .filter(|sha256| self.kept.iter().all(|version| version.sha256 != *sha256))
            .into_iter()
            .chain(kept)
    }

    fn all(&self) -> Vec<VersionOut> {
        let pinned = self.pinned();
        let of = |sha256: &str| {
            let kept = self.kept.iter().find(|version| version.sha256 == sha256);
            let folder = self.folder.as_ref().filter(|folder| folder.sha256 == sha256);
            VersionOut {
                sha256: sha256.to_owned(),
                loaded_at: kept.map(|version| rfc3339(version.since_ms)),
                size_bytes: kept
                    .map_or_else(|| folder.map_or(0, |f| f.bytes.len() as u64), |version| version.size_bytes),
                in_folder: folder.is_some(),
                pinned: pinned.as_deref() == Some(sha256),
                kept: kept.is_some(),
            }
        };
        self.hashes().map(of).collect()
    }

    /// The one version whose hash begins so.
    fn named(&self, hash: &str) -> Result<String, Fault> {
        let wanted = pins::wanted(hash).map_err(Fault::usage)?;
        let found: Vec<&str> = self.hashes().filter(|sha256| sha256.starts_with(&wanted)).collect();
        match found[..] {
            [one] => Ok(one.to_owned()),
            // The copy beside the pin is all that is left of some.
            [] if self.copy_of(&wanted).is_some() => {
                Ok(self.copy_of(&wanted).map(|found| found.sha256).unwrap_or_default())
            }
            [] => Err(Fault::not_found(format!(
                "{} has no version {hash}; {}",
                self.file().display(),
                self.existing()
            ))),
            _ => Err(Fault::conflict(format!("{hash} is the beginning of {}", found.join(" and of ")))),
        }
    }

    /// The version before what serves: before the pinned one, else before the folder's.
    fn before(&self, kind: &Name) -> Result<String, Fault> {
        let now = self.pinned().or_else(|| self.folder.as_ref().map(|folder| folder.sha256.clone()));
        let place = self.kept.iter().position(|version| Some(&version.sha256) == now.as_ref());
        let before = place.map_or(0, |place| place + 1);
        let before = self.kept.get(before);
        before.map(|version| version.sha256.clone()).ok_or_else(|| {
            let why = match &self.versions {
                None => "no versions are kept, because cache_dir is off".to_owned(),
                Some(versions) => format!("{} (kept in {})", self.existing(), versions.dir().display()),
            };
            Fault::not_found(format!("there is no version of {kind} before the one that serves; {why}"))
        })
    }

    fn existing(&self) -> String {
        let all: Vec<&str> = self.hashes().map(|sha256| &sha256[..12]).collect();
        if all.is_empty() { "there is none".to_owned() } else { format!("there are: {}", all.join(", ")) }
    }

    fn copy_of(&self, wanted: &str) -> Option<Found> {
        read(&pins::copy_file(&self.dir, &self.stem)).ok().filter(|found| found.sha256.starts_with(wanted))
    }

    fn bytes_of(&self, sha256: &str) -> Result<Vec<u8>, Fault> {
        if let Some(folder) = self.folder.as_ref().filter(|folder| folder.sha256 == sha256) {
            return Ok(folder.bytes.clone());
        }
        if let Some(versions) = &self.versions
            && let Some(bytes) =
                versions.bytes(&self.stem, sha256).or_else(gone).map_err(|e| unreadable(versions, &e))?
        {
            return Ok(bytes);
        }
        self.copy_of(sha256).map(|found| found.bytes).ok_or_else(|| {
            Fault::failed(format!("version {} is damaged or gone; {}", &sha256[..12], self.existing()))
        })
    }

    fn pin_to(&self, context: &mut Context, kind: &Name, sha256: &str) -> Result<Code, Fault> {
        let bytes = self.bytes_of(sha256)?;
        // What was kept has loaded once; what only lies in the folder may not load at all.
        let kept = self.kept.iter().any(|version| version.sha256 == sha256);
        let settings = context.layers.operator();
        let operator = crate::app::operator_without_secrets(settings);
        let memory_bytes_max = crate::app::memory_bytes_max(settings);
        let verdict = || verdict(&self.file(), &bytes, &operator, memory_bytes_max);
        let refusal = if kept { None } else { verdict().refusal };
        if let Some(refusal) = refusal {
            return Err(Fault::usage(format!("version {} would not load: {refusal}", &sha256[..12])));
        }
        let kinds = kinds_of(&self.file(), &bytes).map_err(Fault::failed)?;
        if !kinds.contains(kind) {
            let served: Vec<&str> = kinds.iter().map(Name::as_str).collect();
            let served = served.join(", ");
            return Err(Fault::conflict(format!(
                "version {} does not serve {kind}, but {served}",
                &sha256[..12]
            )));
        }
        pins::write(&self.dir, &self.stem, &bytes).map_err(|e| self.unwritable(&e))?;
        if let Some(folder) = &self.folder {
            let lost = kinds_of(&self.file(), &folder.bytes).unwrap_or_default();
            for lost in lost.iter().filter(|lost| !kinds.contains(lost)) {
                note(&format!(
                    "nothing serves {lost} until it is unpinned: version {} does not",
                    &sha256[..12]
                ));
            }
        }
        self.answer(context, kind, Some(sha256));
        Ok(Code::Done)
    }

    fn answer(&self, context: &mut Context, kind: &Name, pin: Option<&str>) {
        let folder = self.folder.as_ref().map(|folder| folder.sha256.as_str());
        if context.out.json() {
            context.out.value(&PinnedOut {
                kind: kind.as_str(),
                file: self.file().display().to_string(),
                pin,
                was: self.pinned(),
                folder_sha256: folder,
            });
            return;
        }
        let in_folder = folder.map_or("nothing", |sha256| &sha256[..12]);
        let line = match pin {
            Some(pin) => format!("{kind} is pinned to {}; the folder holds {in_folder}", &pin[..12]),
            None => format!("{kind} is not pinned; the folder holds {in_folder}"),
        };
        context.out.line(&line);
    }

    fn unwritable(&self, error: &io::Error) -> Fault {
        Fault::failed(format!(
            "cannot write into {}: {error}; a pin is a file beside the module: whoever writes that folder puts the \
             hash into {}",
            self.dir.display(),
            pins::pin_file(Path::new(""), &self.stem).display()
        ))
    }
}

fn file_of(dir: &Path, stem: &str) -> PathBuf {
    dir.join(format!("{stem}.wasm"))
}

/// All modules of the folder that can be read, by stem.
fn modules(dir: &Path) -> Result<Vec<(String, Found)>, Fault> {
    let unreadable = |error| Fault::usage(format!("cannot read {}: {error}", dir.display()));
    let mut modules = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let name = name.to_string_lossy();
        let Some(stem) = stem(&name) else { continue };
        // One that is too large or cannot be read serves nothing.
        if let Ok(found) = read(&dir.join(&*name)) {
            modules.push((stem.to_owned(), found));
        }
    }
    Ok(modules)
}

fn read(path: &Path) -> io::Result<Found> {
    let bytes_max = RegistryConfig::new(PathBuf::new()).module_bytes_max;
    if fs::metadata(path)?.len() > bytes_max {
        return Err(io::Error::other("too large for a module"));
    }
    let bytes = fs::read(path)?;
    Ok(Found { sha256: crate::registry::sha256_of(&bytes), bytes })
}

fn gone<T>(error: io::Error) -> io::Result<Option<T>> {
    if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
}

fn unknown(kind: &Name, dir: &Path, modules: &[(String, Found)]) -> Fault {
    let mut kinds: Vec<String> = modules
        .iter()
        .flat_map(|(stem, found)| kinds_of(&file_of(dir, stem), &found.bytes).unwrap_or_default())
        .map(|kind| kind.to_string())
        .collect();
    kinds.sort();
    kinds.dedup();
    let there = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    Fault::not_found(format!("no module in {} serves {kind}; served are: {there}", dir.display()))
}

fn unreadable(versions: &Versions, error: &io::Error) -> Fault {
    Fault::failed(format!(
        "cannot read the versions in {}: {error}; run this as the user of the runner, and with its cache_dir",
        versions.dir().display()
    ))
}
