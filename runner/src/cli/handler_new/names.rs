//! What a new handler's crate, function and file are called: as its kind, as far as the language lets them.

use crate::names::Name;

/// The names of a new handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The kind.
    pub(super) kind: String,
    /// The kind as an identifier: of the crate, of the function, and of what cargo makes of it.
    pub(super) identifier: String,
}

/// Longest identifier: names of files have room for little more.
const IDENTIFIER_BYTES_MAX: usize = 100;

/// What no function or crate may be called, or what would hide something in the project.
const TAKEN: [&str; 83] = [
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "bool",
    "box",
    "break",
    "build",
    "char",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "f32",
    "f64",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "handler",
    "hourhand_sdk",
    "i128",
    "i16",
    "i32",
    "i64",
    "i8",
    "if",
    "impl",
    "in",
    "incremental",
    "isize",
    "let",
    "loop",
    "macro",
    "main",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "static",
    "std",
    "str",
    "struct",
    "super",
    "test",
    "tests",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "u128",
    "u16",
    "u32",
    "u64",
    "u8",
    "union",
    "unsafe",
    "unsized",
    "use",
    "usize",
    "virtual",
    "where",
    "while",
    "yield",
];

impl Names {
    /// The names for a kind.
    ///
    /// # Errors
    /// When no file of a handlers folder may have the name.
    pub(super) fn of(kind: &Name) -> Result<Self, String> {
        let kind = kind.as_str();
        if kind.ends_with(".next") || kind == "schedules" {
            return Err(format!("the name {kind:?} is reserved in a handlers folder: choose another"));
        }
        let mut identifier: String = kind
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
            .collect();
        let bad_start = identifier.starts_with(|c: char| c.is_ascii_digit());
        if bad_start || TAKEN.contains(&identifier.as_str()) || identifier.bytes().all(|b| b == b'_') {
            identifier.insert_str(0, "on_");
        }
        if identifier.len() > IDENTIFIER_BYTES_MAX {
            return Err(format!(
                "expected a name of at most {IDENTIFIER_BYTES_MAX} characters, got {}",
                identifier.len()
            ));
        }
        Ok(Self { kind: kind.to_owned(), identifier })
    }

    /// Whether something named by the identifier serves the kind without being told.
    pub(super) fn are_one(&self) -> bool {
        self.kind == self.identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_becomes_an_identifier() {
        for (kind, identifier) in [
            ("order_close", "order_close"),
            ("order.close", "order_close"),
            ("Send-Mail", "send_mail"),
            ("7up", "on_7up"),
            ("match", "on_match"),
            ("tests", "on_tests"),
            ("_", "on__"),
        ] {
            let names = Names::of(&Name::new(kind).expect("a name")).expect("names");
            assert_eq!((names.identifier.as_str(), names.are_one()), (identifier, kind == identifier));
        }
    }

    #[test]
    fn what_no_handlers_folder_takes_is_refused() {
        for kind in ["schedules", "a.next", &"x".repeat(101)] {
            assert!(Names::of(&Name::new(kind).expect("a name")).is_err(), "{kind}");
        }
    }

    #[test]
    fn the_list_of_taken_names_is_in_order() {
        assert!(TAKEN.is_sorted());
    }
}
