//! The payload of a single job: text, a file or stdin, byte for byte and never more than may be enqueued.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;

use super::exit::Fault;
use crate::job::PAYLOAD_BYTES_MAX;

/// Reads what `PAYLOAD` (text, `@FILE` or `-`) or `--payload-file` name; nothing is an empty payload.
///
/// # Errors
/// When the source cannot be read or holds more than a payload may have. No more than that is read.
pub(super) fn read(payload: Option<&OsStr>, file: Option<&Path>) -> Result<Bytes, Fault> {
    if let Some(path) = file {
        return from_file(path);
    }
    match payload.map(OsStrExt::as_bytes) {
        None => Ok(Bytes::new()),
        Some(b"-") => bounded(io::stdin().lock(), "stdin"),
        Some([b'@', path @ ..]) if !path.is_empty() => from_file(Path::new(OsStr::from_bytes(path))),
        Some(text) => bounded(text, "PAYLOAD"),
    }
}

fn from_file(path: &Path) -> Result<Bytes, Fault> {
    let shown = path.display().to_string();
    let unreadable =
        |error: io::Error| Fault::usage(format!("cannot read the payload from {shown}: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if facts.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if facts.is_file() && facts.len() > PAYLOAD_BYTES_MAX as u64 {
        return Err(too_large(&shown, &format!("{} bytes", facts.len())));
    }
    bounded(file, &shown)
}

fn bounded(source: impl Read, shown: &str) -> Result<Bytes, Fault> {
    let mut bytes = Vec::new();
    source
        .take(PAYLOAD_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Fault::usage(format!("cannot read the payload from {shown}: {error}")))?;
    if bytes.len() > PAYLOAD_BYTES_MAX {
        return Err(too_large(shown, &format!("more than {PAYLOAD_BYTES_MAX} bytes")));
    }
    Ok(bytes.into())
}

fn too_large(shown: &str, got: &str) -> Fault {
    Fault::usage(format!(
        "payload from {shown}: expected at most {PAYLOAD_BYTES_MAX} bytes (1 MiB), got {got}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Code;

    #[test]
    fn bytes_arrive_as_they_are() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let bytes = b" \xff\x00[]\r\n\n";
        std::fs::write(file.path(), bytes).expect("written");
        let at = format!("@{}", file.path().display());
        assert_eq!(&read(Some(OsStr::new(&at)), None).expect("read")[..], bytes);
        assert_eq!(&read(None, Some(file.path())).expect("read")[..], bytes);
        assert_eq!(&read(Some(OsStr::from_bytes(bytes)), None).expect("read")[..], bytes);
        assert_eq!(&read(Some(OsStr::new("@")), None).expect("read")[..], b"@");
        assert!(read(None, None).expect("read").is_empty());
    }

    #[test]
    fn a_byte_too_many_is_refused_without_reading_the_rest() {
        struct Endless(usize);
        impl Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += buffer.len();
                assert!(self.0 <= 4 * PAYLOAD_BYTES_MAX, "reads on and on");
                Ok(buffer.len())
            }
        }
        assert_eq!(bounded(Endless(0), "x").expect_err("endless").code, Code::Usage);
        assert!(bounded(&vec![0; PAYLOAD_BYTES_MAX][..], "x").is_ok());
        let fault = read(None, Some(Path::new("/dev/zero"))).expect_err("endless");
        assert!(fault.message.contains("1 MiB"), "{fault}");
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.as_file().set_len(64 << 20).expect("a sparse file");
        let fault = read(None, Some(file.path())).expect_err("too large");
        assert!(fault.message.contains("got 67108864 bytes"), "{fault}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for path in ["/nowhere/at/all", "/"] {
            let fault = read(None, Some(Path::new(path))).expect_err("unreadable");
            assert!(fault.code == Code::Usage && fault.message.contains(path), "{fault}");
        }
    }
}
