//! Prints the SDK's bindings: what wit-bindgen makes of a world in the folder of WIT files that it is given.

use std::error::Error;
use std::io::{Write, stdout};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: bindgen WIT_FOLDER WORLD";
    let mut args = std::env::args().skip(1);
    let (wit, world) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some(&world))?;
    let mut files = Files::default();
    let runtime_path = Some("crate::rt".to_owned());
    // Interfaces of other packages too.
    let generate_all = true;
    wit_bindgen_rust::Opts { runtime_path, generate_all, ..Default::default() }.build().generate(
        &mut resolve,
        world,
        &mut files,
    )?;
    for (_, text) in files.iter() {
        stdout().write_all(text)?;
    }
    Ok(())
}
