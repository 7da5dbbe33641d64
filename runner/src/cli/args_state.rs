//! The arguments of `state`.

use std::ffi::OsString;

use clap::Subcommand;

use crate::names::Name;

/// What can be done with state.
#[derive(Debug, Subcommand)]
pub(super) enum StateCommand {
    /// List the buckets, or the entries of one
    List {
        /// Which bucket
        bucket: Option<Name>,
    },
    /// Write an entry's value to stdout, byte for byte
    Get {
        /// Which bucket
        bucket: Name,
        /// Which entry
        key: String,
    },
    /// Set an entry, whatever is there
    Set {
        /// Which bucket
        bucket: Name,
        /// Which entry
        key: String,
        /// Its value: text, @FILE or - for stdin
        #[arg(value_name = "VALUE|@FILE|-", allow_hyphen_values = true)]
        value: OsString,
    },
    /// Delete an entry, or a whole bucket
    Delete {
        /// Which bucket
        bucket: Name,
        /// Which entry; all when none is named
        key: Option<String>,
        /// Do not ask before a whole bucket goes
        #[arg(long)]
        yes: bool,
    },
}
