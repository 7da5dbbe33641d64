//! Keeps a store's password out of the list of processes.
//!
//! What stands on a command line can be read by every user of the machine for as long as the process lives. So
//! a process that was given a URL with a password replaces itself by the same command with the URL in its
//! environment, which only its own user can read.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use super::args::without_store;
use crate::config::{StoreUrl, layers};

/// Replaces this process if its arguments hold a store's password; otherwise, or when that cannot
/// be done, returns.
pub(super) fn hide(args: &[OsString]) {
    let Some((program, args, store)) = replacement(args) else { return };
    let Ok(binary) = std::env::current_exe() else { return };
    let mut command = std::process::Command::new(binary);
    command.arg0(program).args(args).env(layers::variable_of("store"), store);
    // It returns only when it fails, and then the command runs all the same.
    drop(command.exec());
}

/// Program name, arguments and store of the process to become.
fn replacement(args: &[OsString]) -> Option<(OsString, Vec<OsString>, OsString)> {
    let (mut kept, store) = without_store(args);
    let store = store?;
    if kept.is_empty() || !StoreUrl::new(store.to_str()?).is_ok_and(|url| url.has_secret()) {
        return None;
    }
    let program = kept.remove(0);
    Some((program, kept, store))
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
        assert_eq!(moved, Some(("hourhand".into(), os(&["run", "--lease", "3s"]), url.into())));
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
