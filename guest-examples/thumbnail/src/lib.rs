//! `thumbnail`: a PNG or JPEG, scaled down to fit into 256 by 256 pixels, as PNG.
//!
//! The payload is the picture's bytes, and so is the result. [`scaled`] has no part in jobs: the same
//! code makes the same bytes on every machine, which a test of the runner relies on.

use std::io::Cursor;

use hourhand_sdk::prelude::*;
use image::imageops::FilterType;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};

/// The longest side of a thumbnail, in pixels.
const SIDE_MAX: u32 = 256;
/// What a decoded picture may take, in bytes: the handler has 128 MiB unless its operator grants more.
const DECODED_BYTES_MAX: u64 = 80 << 20;

#[handler(timeout = "30s", keep_results = true)]
fn thumbnail(picture: &[u8]) -> Result<Raw, Failure> {
    match scaled(picture) {
        Ok(png) => Ok(Raw(png)),
        // The picture will not be better next time.
        Err(ImageError::Limits(error)) => Err(Failure::permanent(error)),
        Err(error) => Err(Failure::decode(error)),
    }
}

/// `picture` scaled down to fit, upright, as PNG with 8 bits a channel. A small one keeps its size.
///
/// # Errors
/// When it is neither PNG nor JPEG, is broken, or is too large.
pub fn scaled(picture: &[u8]) -> Result<Vec<u8>, ImageError> {
    let mut reader = ImageReader::new(Cursor::new(picture)).with_guessed_format()?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let orientation = decoder.orientation()?;
    let mut image = DynamicImage::from_decoder(decoder)?;
    if image.width() > SIDE_MAX || image.height() > SIDE_MAX {
        // Sums of products only, no sines: the same bits everywhere.
        image = image.resize(SIDE_MAX, SIDE_MAX, FilterType::Triangle);
    }
    image.apply_orientation(orientation);
    let image: DynamicImage =
        if image.color().has_alpha() { image.into_rgba8().into() } else { image.into_rgb8().into() };
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png)?;
    Ok(png.into_inner())
}
