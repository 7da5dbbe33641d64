//! Keeps a store's password out of the list of processes.
//!
//! What stands on a command line can be read by every user of the machine for as long as the process lives. So
//! a process that was given a URL with a password replaces itself by the same command with the URL in its
//! environment, which only its own user can read.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use super::args::{COPY_FROM, COPY_TO, without};
use super::dev::STORE_VARIABLE;
use crate::config::{StoreUrl, layers};

/// Replaces this process if its arguments hold a store's password; otherwise, or when that cannot
/// be done, returns.
pub(super) fn hide(args: &[OsString]) {
    let Some((program, args, variables)) = replacement(args) else { return };
    let Ok(binary) = std::env::current_exe() else { return };
    let mut command = std::process::Command::new(binary);
    command.arg0(program).args(args).envs(variables);
    // It returns only when it fails, and then the command runs all the same.
    drop(command.exec());
}

/// Variables, with what they are set to.
type Variables = Vec<(String, OsString)>;

/// Program name, arguments and variables of the process to become.
fn replacement(args: &[OsString]) -> Option<(OsString, Vec<OsString>, Variables)> {
    let mut kept = args.to_vec();
    let mut variables = Vec::new();
    let flags =
        [("--store", layers::variable_of("store")), ("--from", COPY_FROM.into()), ("--to", COPY_TO.into())];
    for (flag, variable) in flags {
        let (rest, value) = without(flag, &kept);
        let secret = |url: &OsString| StoreUrl::new(url.to_str()?).ok().filter(StoreUrl::has_secret);
        if let Some(value) = value.filter(|url| secret(url).is_some()) {
            kept = rest;
            if flag == "--store" {
                // Of `dev`, which does not go by the store of other commands.
                variables.push((STORE_VARIABLE.into(), value.clone()));
            }
            variables.push((variable, value));
        }
    }
    if kept.is_empty() || variables.is_empty() {
        return None;
    }
    let program = kept.remove(0);
    Some((program, kept, variables))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn only_a_url_with_a_secret_is_moved() {
        let url = "redis://:pw@h";
        let moved = replacement(&os(&["hourhand", "run", "--store", url, "--lease", "3s"]));
        let store = ("HOURHAND_STORE".to_owned(), url.into());
        let dev_store = (STORE_VARIABLE.to_owned(), url.into());
        assert_eq!(moved, Some(("hourhand".into(), os(&["run", "--lease", "3s"]), vec![dev_store, store])));
        let moved = replacement(&os(&["h", "store", "copy", "--from", "sqlite://x", "--to=redis://:pw@h"]));
        let to = ("HOURHAND_COPY_TO".to_owned(), url.into());
        assert_eq!(moved, Some(("h".into(), os(&["store", "copy", "--from", "sqlite://x"]), vec![to])));
        for args in
            [&["hourhand", "run", "--store", "redis://h"][..], &["hourhand", "run"], &["h", "--store"]]
        {
            assert_eq!(replacement(&os(args)), None, "{args:?}");
        }
    }

    #[test]
    fn what_replaces_a_process_is_not_replaced_again() {
        let (program, mut args, _) =
            replacement(&os(&["h", "--store=redis://:pw@h", "stats"])).expect("moved");
        args.insert(0, program);
        assert_eq!(replacement(&args), None);
    }
}
