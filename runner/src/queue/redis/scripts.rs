//! The Lua scripts, embedded in the binary: one command a file in lua/, what they share in
//! lua/includes/. A line `--- @include name` is replaced by that include, once a script.

/// A script as Redis gets it, and the digest by which it is called.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) body: String,
    pub(super) sha: String,
}

/// A deliberate change of one Lua file, for the tests that prove that the conformance suite notices faults
/// (tests/mutants). No setting reaches it.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct ScriptEdit {
    /// The file's name below lua/, without `.lua`: `settle`, `includes/past`.
    pub file: String,
    /// What to replace; it must occur.
    pub find: String,
    /// What to put there.
    pub replace: String,
}

/// Why the scripts could not be put together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScriptError {
    /// Nothing has this name.
    #[error("include {0:?} is missing")]
    Missing(String),
    /// It includes itself, by way of others.
    #[error("include {0:?} includes itself")]
    Circular(String),
    /// An edit does not apply.
    #[error("the edit of {0:?} does not apply: its text does not occur there")]
    Edit(String),
}

macro_rules! lua {
    ($($name:ident),*) => {
        /// Every script by its command's name.
        #[derive(Debug)]
        pub(super) struct Scripts { $(pub(super) $name: Script),* }

        impl Scripts {
            pub(super) fn load(edits: &[ScriptEdit]) -> Result<Self, ScriptError> {
                let mut files: Vec<(String, String)> = vec![
                    $((stringify!($name).to_owned(),
                       include_str!(concat!("../../../../lua/", stringify!($name), ".lua")).to_owned())),*];
                files.extend(INCLUDES.iter().map(|(name, text)| (format!("includes/{name}"), (*text).to_owned())));
                apply(edits, &mut files)?;
                Ok(Self { $($name: Script::new(stringify!($name), &files)?),* })
            }

            /// What Redis gets of each.
            #[cfg(test)]
            pub(super) fn bodies(&self) -> Vec<&str> {
                vec![$(&self.$name.body),*]
            }
        }
    };
}

lua!(
    aside,
    cancel,
    census,
    claim,
    commit,
    complete,
    counts,
    delete,
    enqueue,
    examine,
    export,
    floors,
    heartbeat,
    identity,
    import,
    locate,
    log,
    offer,
    page,
    pause,
    permits,
    prune,
    purge,
    recall,
    reclaim,
    requeue,
    reschedule,
    resume,
    settle,
    sift,
    state_delete,
    state_read,
    state_set,
    types,
    view,
    walk
);

macro_rules! includes {
    ($($name:literal),*) => {
        const INCLUDES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../lua/includes/", $name, ".lua")))),*];
    };
}

includes!(
    "clock", "finding", "finish", "globals", "job", "lanes", "lease", "member", "past", "record", "stage",
    "state", "waiting"
);

impl Script {
    fn new(name: &'static str, files: &[(String, String)]) -> Result<Self, ScriptError> {
        let mut body = String::with_capacity(32 << 10);
        let source = lookup(name, files).ok_or_else(|| ScriptError::Missing(name.to_owned()))?;
        expand(source, files, &mut Vec::new(), &mut Vec::new(), &mut body)?;
        let sha = redis::Script::new(&body).get_hash().to_owned();
        Ok(Self { name, body, sha })
    }
}

fn apply(edits: &[ScriptEdit], files: &mut [(String, String)]) -> Result<(), ScriptError> {
    for edit in edits {
        let text = files.iter_mut().find(|(name, _)| *name == edit.file).map(|(_, text)| text);
        match text {
            Some(text) if text.contains(&edit.find) => *text = text.replace(&edit.find, &edit.replace),
            _ => return Err(ScriptError::Edit(edit.file.clone())),
        }
    }
    Ok(())
}

fn lookup<'a>(name: &str, files: &'a [(String, String)]) -> Option<&'a str> {
    files.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
}

/// Appends `source` to `body` with every include in its place; a second mention of one is dropped.
fn expand<'a>(
    source: &'a str,
    files: &'a [(String, String)],
    open: &mut Vec<&'a str>,
    seen: &mut Vec<&'a str>,
    body: &mut String,
) -> Result<(), ScriptError> {
    for line in source.lines() {
        let Some(name) = line.strip_prefix("--- @include ").map(str::trim) else {
            body.push_str(line);
            body.push('\n');
            continue;
        };
        if open.contains(&name) {
            return Err(ScriptError::Circular(name.to_owned()));
        }
        if seen.contains(&name) {
            continue;
        }
        let text = lookup(&format!("includes/{name}"), files)
            .ok_or_else(|| ScriptError::Missing(name.to_owned()))?;
        seen.push(name);
        open.push(name);
        expand(text, files, open, seen, body)?;
        open.pop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(source: &str, includes: &[(&str, &str)]) -> Result<String, ScriptError> {
        let files: Vec<_> =
            includes.iter().map(|(n, t)| (format!("includes/{n}"), (*t).to_owned())).collect();
        let mut body = String::new();
        expand(source, &files, &mut Vec::new(), &mut Vec::new(), &mut body).map(|()| body)
    }

    #[test]
    fn every_embedded_script_resolves() {
        let scripts = Scripts::load(&[]).expect("they resolve");
        assert!(scripts.claim.body.starts_with("#!lua"), "the shebang stays the first line");
        assert!(!scripts.settle.body.contains("@include"));
    }

    #[test]
    fn outsiders_need_no_other_file_to_enqueue() {
        assert!(!include_str!("../../../../lua/enqueue.lua").contains("@include"));
    }

    #[test]
    fn an_include_is_put_in_once() {
        let includes = [("a", "--- @include b\nA"), ("b", "B")];
        assert_eq!(resolve("--- @include b\n--- @include a\nx", &includes).as_deref(), Ok("B\nA\nx\n"));
    }

    #[test]
    fn a_missing_and_a_circular_include_are_errors() {
        let includes = [("a", "--- @include b"), ("b", "--- @include a")];
        assert_eq!(resolve("--- @include c", &includes), Err(ScriptError::Missing("c".to_owned())));
        assert_eq!(resolve("--- @include a", &includes), Err(ScriptError::Circular("a".to_owned())));
    }

    #[test]
    fn an_edit_that_does_not_apply_is_an_error() {
        let edit =
            ScriptEdit { file: "settle".to_owned(), find: "no such text".to_owned(), replace: String::new() };
        assert!(matches!(Scripts::load(&[edit]), Err(ScriptError::Edit(_))));
    }
}
