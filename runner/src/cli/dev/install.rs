//! Puts built modules and their manifests into the handlers folder, each as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::local::stage::Artifact;

/// A handlers folder that only its owner fills.
#[derive(Debug)]
pub(super) struct HandlersFolder {
    dir: PathBuf,
    /// The files of each project, by the project's number.
    files: BTreeMap<usize, BTreeSet<PathBuf>>,
    projects: usize,
}

impl HandlersFolder {
    /// The folder `dir`, which is there, for so many projects.
    pub(super) fn new(dir: PathBuf, projects: usize) -> Self {
        Self { dir, files: BTreeMap::new(), projects }
    }

    /// Puts in what a project has built, and takes out what it has not any more. The modules that are new or
    /// other than before, manifests among them.
    ///
    /// # Errors
    /// When a file cannot be read or written, or two projects make a module of the same name.
    pub(super) fn install(&mut self, project: usize, artifacts: &[Artifact]) -> io::Result<Vec<String>> {
        let mut files = BTreeSet::new();
        let mut changed = Vec::new();
        for artifact in artifacts {
            let stem = artifact.stem();
            let (module, manifest) =
                (self.dir.join(format!("{stem}.wasm")), self.dir.join(format!("{stem}.toml")));
            let others = self.files.iter().filter(|(owner, _)| **owner != project);
            if others.into_iter().any(|(_, theirs)| theirs.contains(&module)) || files.contains(&module) {
                return Err(io::Error::other(format!("two modules are called {stem}.wasm: rename a crate")));
            }
            // The manifest first: a new module is never loaded with the old one's grants.
            if let Some(source) = &artifact.manifest {
                if put(source, &manifest)? {
                    changed.push(format!("{stem}.toml"));
                }
                files.insert(manifest);
            }
            if put(&artifact.module, &module)? {
                changed.push(format!("{stem}.wasm"));
            }
            files.insert(module);
        }
        let before = self.files.insert(project, files).unwrap_or_default();
        for gone in before.difference(&self.files[&project]) {
            remove(gone)?;
        }
        if self.files.len() == self.projects {
            self.remove_strangers()?;
        }
        Ok(changed)
    }

    /// What an earlier session left of projects that are not there any more.
    fn remove_strangers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let ours = self.files.values().any(|files| files.contains(&path));
            let handler =
                path.extension().is_some_and(|extension| extension == "wasm" || extension == "toml");
            if handler && !ours {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Puts a file there by a rename, unless it is there already. Whether it did.
fn put(source: &Path, target: &Path) -> io::Result<bool> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
    let bytes = fs::read(source).map_err(named)?;
    if fs::read(target).is_ok_and(|there| there == bytes) {
        return Ok(false);
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let staged = target.with_file_name(format!(".{name}.staged"));
    fs::write(&staged, &bytes)?;
    fs::rename(&staged, target)?;
    Ok(true)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_folder_holds_what_the_projects_have_built_last() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let handlers = at("handlers");
        fs::create_dir(&handlers).expect("a folder");
        for (name, text) in [("a.wasm", "a"), ("b.wasm", "b"), ("a.toml", "t"), ("handlers/old.wasm", "o")] {
            fs::write(at(name), text).expect("a file");
        }
        let artifact = |name: &str| Artifact::with_manifest_in(at(name), dir.path());
        let mut folder = HandlersFolder::new(handlers.clone(), 2);
        assert_eq!(folder.install(0, &[artifact("a.wasm")]).expect("installed"), ["a.toml", "a.wasm"]);
        assert_eq!(names(&handlers), ["a.toml", "a.wasm", "old.wasm"], "the second project may have made it");
        assert_eq!(folder.install(1, &[artifact("b.wasm")]).expect("installed"), ["b.wasm"]);
        assert_eq!(names(&handlers), ["a.toml", "a.wasm", "b.wasm"]);
        assert_eq!(folder.install(0, &[artifact("a.wasm")]).expect("installed"), [] as [String; 0]);
        fs::remove_file(at("a.toml")).expect("removed");
        fs::write(at("a.wasm"), "other").expect("a file");
        assert_eq!(folder.install(0, &[artifact("a.wasm")]).expect("installed"), ["a.wasm"]);
        assert_eq!(names(&handlers), ["a.wasm", "b.wasm"]);
        let twins = folder.install(1, &[artifact("a.wasm")]).expect_err("the same name");
        assert!(twins.to_string().contains("two modules are called a.wasm"), "{twins}");
        assert_eq!(folder.install(1, &[]).expect("installed"), [] as [String; 0]);
        assert_eq!(names(&handlers), ["a.wasm"]);
    }
}
