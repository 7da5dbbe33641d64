//! `handler new`: a project that builds, whose tests pass, and that says what to do next.

mod names;
mod sdk;
mod template;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::args_local::{Lang, NewArgs};
use super::context::Context;
use super::exit::{Code, Fault};
use super::output::note;

use names::Names;
use template::{Values, files};

/// Makes the project.
pub(super) fn run(context: &mut Context, args: &NewArgs) -> Result<Code, Fault> {
    let names = Names::of(&args.name).map_err(Fault::usage)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(args.name.as_str()));
    let taken = |what: &str| Fault::conflict(format!("{}: {what}: nothing was written", dir.display()));
    match fs::read_dir(&dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(taken("it is there and not empty")),
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(taken(&error.to_string())),
    }
    let sdk = match (args.lang, &args.sdk) {
        (Lang::Rust, path) => Some(sdk::choose(path.as_deref(), &dir)?),
        (_, None) => None,
        (_, Some(_)) => return Err(Fault::usage("--sdk: only a handler in Rust (--lang rust) uses the SDK")),
    };
    let values = Values { names: &names, sdk: sdk.as_ref().map(|sdk| sdk.dependency.as_str()) };
    let files = files(args.lang, &values);
    for (path, text) in &files {
        write_new(&dir.join(path), text)
            .map_err(|error| Fault::failed(format!("cannot write {}: {error}", dir.join(path).display())))?;
    }
    if context.out.json() {
        let names: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        let sdk = sdk.as_ref().map(|sdk| &sdk.dependency);
        context.out.value(&json!({
            "kind": args.name.as_str(), "dir": dir.display().to_string(), "files": names, "sdk": sdk
        }));
        return Ok(Code::Done);
    }
    context.out.line(&dir.display().to_string());
    context.out.flush();
    if let Some(sdk) = &sdk {
        note(&format!("hourhand-sdk: {}", sdk.said));
    }
    say_next(args.lang, &dir);
    Ok(Code::Done)
}

fn say_next(lang: Lang, dir: &Path) {
    let prepare = match lang {
        Lang::Rust | Lang::Plain => "rustup target add wasm32-wasip1   # once",
        Lang::Js => "npm ci                            # once",
        // Its build script gets what it needs.
        Lang::Python => "",
    };
    note("next:");
    note(&format!("  cd {}", dir.display()));
    if !prepare.is_empty() {
        note(&format!("  {prepare}"));
    }
    note("  hourhand handler test             # builds it, and runs the cases in fixtures/");
    note("  hourhand dev                      # builds and runs it whenever a file changes");
}

/// Writes a file that is not there yet, with the folders that it is in.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create_new(path)?.write_all(text.as_bytes())
}
