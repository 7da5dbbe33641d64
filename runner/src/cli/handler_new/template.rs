//! The files of a new project, by language.

use super::names::Names;
use crate::cli::args_local::Lang;

/// A file's text in the templates' folder.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("../../../templates/", $name, ".txt"))
    };
}

/// What the templates are filled with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    /// The handler's names.
    pub(super) names: &'a Names,
    /// What stands in Cargo.toml after `hourhand-sdk = `.
    pub(super) sdk: Option<&'a str>,
}

/// A file of the examples in other languages, which a new project shares.
macro_rules! example {
    ($name:literal) => {
        include_str!(concat!("../../../../examples/", $name))
    };
}

/// The interface between host and handler.
const WIT: &str = include_str!("../../../../wit/job.wit");
/// How the example in JavaScript names what it compiles, and itself.
const JS_EXAMPLE: &str = "receipt.js receipt_js.wasm";

/// A path below the project's folder, with what is to be in it.
type File = (&'static str, &'static str);

const RUST: [File; 7] = [
    ("Cargo.toml", template!("rust/Cargo.toml")),
    (".cargo/config.toml", template!("rust/config.toml")),
    ("src/lib.rs", template!("rust/lib.rs")),
    ("README.md", template!("rust/README.md")),
    ("fixtures/hello.toml", template!("common/hello.toml")),
    ("fixtures/nobody.toml", template!("common/nobody.toml")),
    ("fixtures/wrong_payload.toml", template!("rust/wrong_payload.toml")),
];

const PLAIN: [File; 6] = [
    ("Cargo.toml", template!("plain/Cargo.toml")),
    (".cargo/config.toml", template!("rust/config.toml")),
    ("src/main.rs", template!("plain/main.rs")),
    ("README.md", template!("plain/README.md")),
    ("fixtures/hello.toml", template!("plain/hello.toml")),
    ("fixtures/nobody.toml", template!("plain/nobody.toml")),
];

const JS: [File; 9] = [
    ("package.json", example!("javascript/package.json")),
    ("package-lock.json", example!("javascript/package-lock.json")),
    ("build.mjs", example!("javascript/build.mjs")),
    ("hourhand.js", example!("javascript/hourhand.js")),
    ("handler.js", template!("js/handler.js")),
    ("wit/job.wit", WIT),
    ("README.md", template!("js/README.md")),
    ("fixtures/hello.toml", template!("common/hello.toml")),
    ("fixtures/nobody.toml", template!("common/nobody.toml")),
];

const PYTHON: [File; 9] = [
    ("requirements.txt", example!("python/requirements.txt")),
    ("compile.sh", example!("python/build.sh")),
    ("hourhand.py", example!("python/hourhand.py")),
    ("job_handler.py", template!("python/job_handler.py")),
    ("build.sh", template!("python/build.sh")),
    ("wit/job.wit", WIT),
    ("README.md", template!("python/README.md")),
    ("fixtures/hello.toml", template!("common/hello.toml")),
    ("fixtures/nobody.toml", template!("common/nobody.toml")),
];

/// Paths below the project's folder, with what is to be in them.
pub(super) fn files(lang: Lang, values: &Values<'_>) -> Vec<(String, String)> {
    let files: &[File] = match lang {
        Lang::Rust => &RUST,
        Lang::Plain => &PLAIN,
        Lang::Js => &JS,
        Lang::Python => &PYTHON,
    };
    // Beside the module, and named as it is.
    let module = match lang {
        Lang::Rust | Lang::Plain => &values.names.identifier,
        Lang::Js | Lang::Python => &values.names.kind,
    };
    let manifest = format!("{module}.toml");
    let common =
        [(".gitignore", template!("common/gitignore")), (&manifest, template!("common/manifest.toml"))];
    let all = files.iter().copied().chain(common);
    all.map(|(path, text)| (path.to_owned(), filled(text, lang, values))).collect()
}

fn filled(text: &str, lang: Lang, values: &Values<'_>) -> String {
    let names = values.names;
    let kind_setting = if names.are_one() { String::new() } else { format!("kind = \"{}\", ", names.kind) };
    // A module of Rust with the SDK says itself which kind it serves; any other serves the one that its file is named for.
    let by_file = lang == Lang::Plain && !names.are_one();
    let kinds_line = if by_file { format!("kinds = [\"{}\"]\n", names.kind) } else { String::new() };
    text.replace("{{kinds_line}}\n", &kinds_line)
        .replace(JS_EXAMPLE, &format!("handler.js {}.wasm", names.kind))
        .replace("{{kind_setting}}", &kind_setting)
        .replace("{{kind}}", &names.kind)
        .replace("{{crate}}", &names.identifier)
        .replace("{{function}}", &names.identifier)
        .replace("{{sdk}}", values.sdk.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    #[test]
    fn a_project_in_javascript_builds_its_own_handler() {
        let names = Names::of(&Name::new("order.close").expect("a name")).expect("names");
        let files = files(Lang::Js, &Values { names: &names, sdk: None });
        let package = &files.iter().find(|(path, _)| path == "package.json").expect("a package.json").1;
        assert!(package.contains("\"node build.mjs handler.js order.close.wasm\""), "{package}");
    }

    #[test]
    fn nothing_is_left_to_fill_in_and_every_toml_is_one() {
        for kind in ["greet", "order.close"] {
            let names = Names::of(&Name::new(kind).expect("a name")).expect("names");
            let values = Values { names: &names, sdk: Some("\"0.1\"") };
            for lang in [Lang::Rust, Lang::Plain, Lang::Js, Lang::Python] {
                for (path, text) in files(lang, &values) {
                    assert!(!text.contains("{{"), "{lang:?} {path}: {text}");
                    assert!(text.ends_with('\n'), "{lang:?} {path}");
                    if path.ends_with(".toml") {
                        let parsed: Result<toml::Table, _> = toml::from_str(&text);
                        assert!(parsed.is_ok(), "{lang:?} {path}: {parsed:?}");
                    }
                }
            }
        }
    }
}
