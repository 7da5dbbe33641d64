//! Bounds on what is handed to the compiler at all, read from the module's sections.
//!
//! Compiling a function takes more than in proportion to its length. No toolchain writes functions as long as
//! this; the process that compiles has bounds of its own for what is below.

use wasmparser::{Parser, Payload};

use super::{LoadError, size};

/// The longest function, in bytes of its body. The longest that we met is of Python's interpreter, with 420 KiB.
const FUNCTION_BYTES_MAX: u64 = 2 << 20;
/// Functions of all core modules together. Python and JavaScript with their libraries have up to 20,000.
const FUNCTIONS_MAX: u64 = 250_000;

/// Refuses what would keep the compiler busy for too long.
pub(super) fn check(bytes: &[u8]) -> Result<(), LoadError> {
    check_with(bytes, FUNCTION_BYTES_MAX, FUNCTIONS_MAX)
}

fn check_with(bytes: &[u8], function_bytes_max: u64, functions_max: u64) -> Result<(), LoadError> {
    let mut functions = 0;
    let mut longest = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload {
            Ok(Payload::CodeSectionStart { count, .. }) => functions += u64::from(count),
            Ok(Payload::CodeSectionEntry(body)) => longest = longest.max(body.range().len() as u64),
            Ok(_) => {}
            // What is malformed is said by whoever reads the rest.
            Err(_) => break,
        }
    }
    if longest > function_bytes_max {
        return Err(LoadError::Refused(format!(
            "it has a function of {}, and at most {} are compiled: split it, or generate data in its place",
            size(longest),
            size(function_bytes_max)
        )));
    }
    if functions > functions_max {
        return Err(LoadError::Refused(format!(
            "it has {functions} functions, and at most {functions_max} are compiled: split it into several handlers"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wasm_encoder::{CodeSection, Function, FunctionSection, Instruction, Module, TypeSection};

    use super::*;

    fn module(functions: u32, nops: usize) -> Vec<u8> {
        let (mut types, mut section, mut code) =
            (TypeSection::new(), FunctionSection::new(), CodeSection::new());
        types.ty().function([], []);
        for _ in 0..functions {
            section.function(0);
            let mut function = Function::new([]);
            for _ in 0..nops {
                function.instruction(&Instruction::Nop);
            }
            function.instruction(&Instruction::End);
            code.function(&function);
        }
        let mut module = Module::new();
        module.section(&types).section(&section).section(&code);
        module.finish()
    }

    #[test]
    fn what_is_at_the_bounds_passes_and_what_is_over_them_is_said() {
        // Its locals' count and its end are two bytes of a body.
        assert_eq!(check_with(&module(3, 98), 100, 3), Ok(()));
        let long = check_with(&module(1, 99), 100, 3).unwrap_err().to_string();
        assert!(long.contains("a function of 101 bytes") && long.contains("100 bytes"), "{long}");
        let many = check_with(&module(4, 1), 100, 3).unwrap_err().to_string();
        assert!(many.contains("4 functions"), "{many}");
        assert!(check(&module(1, 3 << 20)).is_err());
        assert_eq!(check(&module(20_000, 1)), Ok(()));
    }
}
