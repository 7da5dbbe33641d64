//! Leaves traces wherever it can, and looks for those that another job has left, for the proof that there are none.
//!
//! The payload is a mark that no other job has; the result says where the marks of other jobs were found. With `panics` the job ends by a
//! panic, with all its borrows taken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hourhand_sdk::prelude::*;

/// What every mark begins with. Put together at run time, so that the module itself has it nowhere.
fn mark(number: u64) -> [u64; 2] {
    [std::hint::black_box(0x7ace_0f00_0000_0000_u64).rotate_left(8) ^ 0x5eed, number]
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static KEPT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static BORROWED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Deserialize)]
struct Job {
    number: u64,
    #[serde(default)]
    panics: bool,
    /// A folder that it may write to, if it has one.
    scratch: Option<String>,
}

/// Where something of another job was found.
#[derive(Serialize, Deserialize, Default, Debug, PartialEq, Eq)]
struct Found {
    statics: bool,
    borrowed: bool,
    /// Marks of others in the memory that this instance has or was given.
    in_memory: u64,
    /// Bytes in memory that was grown just now and are not 0.
    grown_dirty: u64,
    environment: BTreeMap<String, String>,
    arguments: usize,
    /// What others left in the folder that this job was granted.
    scratch: Vec<String>,
}

#[handler(timeout = "10s", max_attempts = 1)]
fn residue(ctx: &Context, job: Job) -> Result<Found, Failure> {
    let mut found = Found {
        statics: COUNT.load(Relaxed) != 0
            || LAST.load(Relaxed) != 0
            || KEPT.with_borrow(|kept| !kept.is_empty()),
        borrowed: BORROWED.get() || KEPT.with(|kept| kept.try_borrow_mut().is_err()),
        environment: std::env::vars().collect(),
        arguments: std::env::args().count(),
        ..Found::default()
    };
    look_through_memory(job.number, &mut found);
    if let Some(folder) = &job.scratch {
        for entry in fs::read_dir(folder)? {
            found.scratch.push(entry?.file_name().to_string_lossy().into_owned());
        }
        fs::write(format!("{folder}/{}", job.number), ctx.id())?;
    }
    leave_traces(job.number, job.panics);
    Ok(found)
}

#[cfg(target_family = "wasm")]
fn look_through_memory(number: u64, found: &mut Found) {
    const PAGE: usize = 64 << 10;
    let [tag, _] = mark(number);
    let had = core::arch::wasm32::memory_size(0) * PAGE;
    let grown = core::arch::wasm32::memory_grow(0, 16);
    let end = if grown == usize::MAX { had } else { (grown + 16) * PAGE };
    // Word by word, without a reference: it is all ours to look at, whoever has it.
    for at in (8..end - 16).step_by(8) {
        // SAFETY: within the instance's memory, aligned.
        let (word, next) = unsafe {
            (std::ptr::read_volatile(at as *const u64), std::ptr::read_volatile((at + 8) as *const u64))
        };
        if word == tag && next != number {
            found.in_memory += 1;
        }
        if at >= had && word != 0 {
            found.grown_dirty += 1;
        }
    }
}

#[cfg(not(target_family = "wasm"))]
fn look_through_memory(_number: u64, _found: &mut Found) {}

/// In statics, in a borrow that is never given back, and all over the heap.
fn leave_traces(number: u64, panics: bool) {
    COUNT.fetch_add(1, Relaxed);
    LAST.store(number, Relaxed);
    BORROWED.set(true);
    let marks = mark(number).repeat(8_192);
    KEPT.with_borrow_mut(|kept| {
        kept.extend_from_slice(&marks);
        std::mem::forget(marks);
        assert!(!panics, "with the borrow taken");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_was_left_where_nothing_cleans_up() {
        let job = |number: u64| format!(r#"{{"number":{number}}}"#);
        let first: Found = TestHost::new().run::<residue>(job(1)).result();
        assert!(!first.statics && !first.borrowed);
        let second: Found = TestHost::new().run::<residue>(job(2)).result();
        assert!(second.statics && second.borrowed, "natively nobody cleans up: {second:?}");
    }
}
