//! The binary `hourhand`: everything is in the library.

fn main() -> std::process::ExitCode {
    hourhand::cli::main()
}
