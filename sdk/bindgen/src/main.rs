//! Prints the SDK's bindings: what wit-bindgen makes of the folder of WIT files that it is given.

use std::error::Error;
use std::io::{Write, stdout};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

fn main() -> Result<(), Box<dyn Error>> {
    let wit = std::env::args().nth(1).ok_or("usage: bindgen WIT_FOLDER")?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some("job-handler"))?;
    let mut files = Files::default();
    let runtime_path = Some("crate::rt".to_owned());
    wit_bindgen_rust::Opts { runtime_path, ..Default::default() }.build().generate(
        &mut resolve,
        world,
        &mut files,
    )?;
    for (_, text) in files.iter() {
        stdout().write_all(text)?;
    }
    Ok(())
}
