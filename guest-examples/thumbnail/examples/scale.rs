//! Scales a picture natively, with the handler's own code: `scale PICTURE THUMBNAIL`.

use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<String> = env::args().skip(1).collect();
    let [picture, scaled] = paths.as_slice() else { return Err("usage: scale PICTURE THUMBNAIL".into()) };
    fs::write(scaled, thumbnail::scaled(&fs::read(picture)?)?)?;
    Ok(())
}
