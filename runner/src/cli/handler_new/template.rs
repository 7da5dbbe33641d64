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

/// Paths below the project's folder, with what is to be in them.
pub(super) fn files(lang: Lang, values: &Values<'_>) -> Vec<(String, String)> {
    let crate_name = &values.names.identifier;
    let mut files = match lang {
        Lang::Rust => vec![
            ("Cargo.toml".to_owned(), template!("rust/Cargo.toml")),
            (".cargo/config.toml".to_owned(), template!("rust/config.toml")),
            ("src/lib.rs".to_owned(), template!("rust/lib.rs")),
            ("README.md".to_owned(), template!("rust/README.md")),
            ("fixtures/hello.toml".to_owned(), template!("rust/hello.toml")),
            ("fixtures/nobody.toml".to_owned(), template!("rust/nobody.toml")),
            ("fixtures/wrong_payload.toml".to_owned(), template!("rust/wrong_payload.toml")),
        ],
        Lang::Plain => vec![
            ("Cargo.toml".to_owned(), template!("plain/Cargo.toml")),
            (".cargo/config.toml".to_owned(), template!("rust/config.toml")),
            ("src/main.rs".to_owned(), template!("plain/main.rs")),
            ("README.md".to_owned(), template!("plain/README.md")),
            ("fixtures/hello.toml".to_owned(), template!("plain/hello.toml")),
            ("fixtures/nobody.toml".to_owned(), template!("plain/nobody.toml")),
        ],
        Lang::Js | Lang::Python => Vec::new(),
    };
    files.push((".gitignore".to_owned(), template!("common/gitignore")));
    files.push((format!("{crate_name}.toml"), template!("common/manifest.toml")));
    files.into_iter().map(|(path, text)| (path, filled(text, lang, values))).collect()
}

fn filled(text: &str, lang: Lang, values: &Values<'_>) -> String {
    let names = values.names;
    let kind_setting = if names.are_one() { String::new() } else { format!("kind = \"{}\", ", names.kind) };
    // A module of Rust with the SDK says itself which kind it serves; any other serves the one that its file is named for.
    let by_file = lang == Lang::Plain && !names.are_one();
    let kinds_line = if by_file { format!("kinds = [\"{}\"]\n", names.kind) } else { String::new() };
    text.replace("{{kinds_line}}\n", &kinds_line)
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
