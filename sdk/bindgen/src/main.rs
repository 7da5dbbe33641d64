//! Prints the SDK's bindings: what wit-bindgen makes of a world in the folder of WIT files that it is given.

use std::error::Error;
use std::io::{Write, stdout};

use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: bindgen WIT_FOLDER WORLD";
    let mut args = std::env::args().skip(1);
    let (wit, world_name) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(wit)?;
    let world = resolve.select_world(&[package], Some(&world_name))?;
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
        let text = std::str::from_utf8(text)?;
        // Every module would carry the section with this world, whether it sends requests or not, and the runner knows it anyway.
        let text = if world_name == "http-client" { without_section(text)? } else { text.to_owned() };
        stdout().write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Bindings without the static that becomes a custom section of each module.
fn without_section(text: &str) -> Result<String, &'static str> {
    const BEGIN: &str = "#[cfg(target_arch = \"wasm32\")]\n#[unsafe(link_section = ";
    const END: &str = "\";\n";
    let begin = text.find(BEGIN).ok_or("the bindings have no section")?;
    let end = begin + text[begin..].find(END).ok_or("the section has no end")? + END.len();
    Ok(format!("{}{}", &text[..begin], &text[end..]))
}
