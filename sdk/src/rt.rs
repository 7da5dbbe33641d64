//! What the generated bindings need at run time, in the little that they need of it.
//!
//! It takes the place of the `wit-bindgen` crate, so that a handler's first build does not compile a
//! bindings generator.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error, realloc};

/// Gives the host memory to put a job into: the canonical ABI's `realloc`.
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, new_len: usize) -> *mut u8 {
    if new_len == 0 {
        return std::ptr::without_provenance_mut(align);
    }
    // SAFETY: the host passes a power of two as alignment, and as `old` nothing or what this function
    // returned for `old_len` bytes before.
    unsafe {
        let (layout, memory) = if old_len == 0 {
            let layout = Layout::from_size_align_unchecked(new_len, align);
            (layout, alloc(layout))
        } else {
            let layout = Layout::from_size_align_unchecked(old_len, align);
            (layout, realloc(old, layout, new_len))
        };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        memory
    }
}

/// Called by the bindings so that `cabi_realloc` is linked wherever they are.
pub(crate) fn maybe_link_cabi_realloc() {
    #[used]
    static LINKED: unsafe extern "C" fn(*mut u8, usize, usize, usize) -> *mut u8 = cabi_realloc;
}

/// Runs the module's start-up functions before its first call: libc's, and those that list the
/// handlers. Naming `__wasm_call_ctors` keeps the linker from wrapping each export in one more call
/// of it.
pub(crate) fn run_ctors_once() {
    use std::sync::atomic::{AtomicBool, Ordering};

    static RAN: AtomicBool = AtomicBool::new(false);
    unsafe extern "C" {
        fn __wasm_call_ctors();
    }
    if !RAN.swap(true, Ordering::Relaxed) {
        // SAFETY: the linker makes this function, and it is called once.
        unsafe { __wasm_call_ctors() };
    }
}

/// Memory for a list on its way to the host, given back when the call is over.
pub(crate) struct Cleanup {
    memory: *mut u8,
    layout: Layout,
}

impl Cleanup {
    /// Memory of this layout and who gives it back; of nothing, a null pointer and nobody.
    pub(crate) fn new(layout: Layout) -> (*mut u8, Option<Self>) {
        if layout.size() == 0 {
            return (std::ptr::null_mut(), None);
        }
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        (memory, Some(Self { memory, layout }))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and given back once.
        unsafe { dealloc(self.memory, self.layout) };
    }
}
