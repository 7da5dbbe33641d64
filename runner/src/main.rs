//! The binary `hourhand`: everything is in the library.

/// A job makes and drops some dozens of small things on two kinds of threads: docs/performance.md says what this saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    hourhand::cli::main()
}
