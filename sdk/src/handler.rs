//! What `#[handler]` makes of a function, and how a module knows its handlers.
//!
//! In a module every handler puts itself into a list before the first call: the linker gathers the
//! functions that `#[handler]` places in `.init_array` (rustc and wasm-ld know that section) into one
//! start-up function, which the generated bindings call once per instance. So a crate may have any
//! number of handlers in any of its modules, and nobody has to name them a second time. Those of a
//! library crate count where that crate is linked, for which `use that_crate as _;` is enough.

use crate::{Context, Failure};

/// A handler as the runner sees it: a kind, and bytes to bytes. `#[handler] fn order_close` makes a type
/// of the same name that implements it.
pub trait Handler {
    /// The kind that it serves.
    const KIND: &'static str;

    /// Reads the payload, calls the function, and writes down what it returns.
    ///
    /// # Errors
    /// What the function returned, or [`Failure::Decode`] when the payload is not for it.
    fn run(ctx: &Context, payload: Vec<u8>) -> Result<Vec<u8>, Failure>;
}

#[cfg(target_family = "wasm")]
pub use listed::Entry;
#[cfg(target_family = "wasm")]
pub(crate) use listed::find;

#[cfg(target_family = "wasm")]
mod listed {
    use std::cell::Cell;

    use super::{Context, Failure, Handler};

    type Run = fn(&Context, Vec<u8>) -> Result<Vec<u8>, Failure>;

    /// One handler of this module: a link of the list.
    #[doc(hidden)]
    pub struct Entry {
        kind: &'static str,
        run: Run,
        next: Cell<Option<&'static Entry>>,
    }

    // A module has one thread.
    unsafe impl Sync for Entry {}

    struct Head(Cell<Option<&'static Entry>>);

    // A module has one thread.
    unsafe impl Sync for Head {}

    static HEAD: Head = Head(Cell::new(None));

    impl Entry {
        pub const fn new<H: Handler>() -> Self {
            Self { kind: H::KIND, run: H::run, next: Cell::new(None) }
        }

        /// Puts it into the list; called once, before the first job.
        pub fn register(&'static self) {
            self.next.set(HEAD.0.replace(Some(self)));
        }
    }

    /// What serves `kind`, or the kinds that there are. Two handlers of one kind do not link.
    pub(crate) fn find(kind: &str) -> Result<Run, Vec<&'static str>> {
        let entries = std::iter::successors(HEAD.0.get(), |entry| entry.next.get());
        let found = entries.clone().find(|entry| entry.kind == kind);
        found.map(|entry| entry.run).ok_or_else(|| entries.map(|entry| entry.kind).collect())
    }
}
