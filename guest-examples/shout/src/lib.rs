//! `shout`: prints a line over and over, to stdout and stderr in turns, and then completes.
//!
//! `{"bytes": n}` of output, 1 MiB if nothing is said.

use std::io::Write;

use hourhand_sdk::prelude::*;

const LINE: &[u8] = b"ALL WORK AND NO PLAY MAKES JACK A DULL BOY, and Zo\xc3\xab too: \xe2\x82\xac 0\n";

#[derive(Deserialize)]
struct Shout {
    #[serde(default = "default_bytes")]
    bytes: u64,
}

fn default_bytes() -> u64 {
    1 << 20
}

#[handler(timeout = "5m")]
fn shout(shout: Option<Shout>) -> std::io::Result<u64> {
    let bytes = shout.map_or_else(default_bytes, |shout| shout.bytes);
    let chunk = LINE.repeat(64);
    let mut left = bytes;
    let mut to_stdout = true;
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        if to_stdout {
            std::io::stdout().write_all(&chunk[..len])?;
        } else {
            std::io::stderr().write_all(&chunk[..len])?;
        }
        to_stdout = !to_stdout;
        left -= len as u64;
    }
    std::io::stdout().flush()?;
    Ok(bytes)
}
