//! What is to be measured, checked before anything is made.

use std::path::Path;

use bytes::Bytes;

use crate::cli::args_bench::{BenchArgs, Part};
use crate::cli::context::{Context, flag};
use crate::cli::exit::Fault;
use crate::cli::local::stage::{Artifact, Stage, check_module};
use crate::cli::no_op::NO_OP;
use crate::cli::payload;
use crate::names::Name;

use super::dice::Dice;

/// The kind of the handlers that are built in.
const KIND: &str = "bench";
/// Payloads that jobs have in turns: making one for each would be a part of what is measured.
const PAYLOADS: usize = 1_024;
/// The parts in the order in which they run: the later ones know what the first has measured.
const ORDER: [Part; 7] = [
    Part::Throughput,
    Part::Lateness,
    Part::Backlog,
    Part::Memory,
    Part::Recovery,
    Part::Duplicates,
    Part::Reload,
];

/// What is measured, and with what.
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    /// Jobs of a round.
    pub(super) jobs: usize,
    pub(super) backlog: usize,
    pub(super) rounds: u32,
    /// How long throughput runs, in seconds; as long as the jobs take when `None`.
    pub(super) seconds: Option<u32>,
    pub(super) seed: u64,
    pub(super) handler: Measured,
    /// What jobs carry, in turns.
    pub(super) payloads: Vec<Bytes>,
}

/// The handler that is measured.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) kind: Name,
    /// The file's name, without `.wasm`.
    pub(super) stem: String,
    pub(super) module: Vec<u8>,
    /// The text of the manifest beside it.
    pub(super) manifest: Option<Vec<u8>>,
    /// The first 12 hex digits of its hash, as records of runs have them.
    pub(super) hash: String,
    /// Whether it comes with this binary.
    pub(super) built_in: bool,
}

impl Plan {
    /// Checks all that was said. Loads the handler.
    ///
    /// # Errors
    /// What was expected and what came.
    pub(super) async fn new(context: &Context, args: &BenchArgs) -> Result<Self, Fault> {
        let is_wanted = |part: &Part| {
            args.parts.is_empty() || args.parts.contains(part) || args.parts.contains(&Part::All)
        };
        let parts: Vec<Part> = ORDER.into_iter().filter(is_wanted).collect();
        if args.seconds.is_some() && !parts.contains(&Part::Throughput) {
            return Err(flag(
                "--seconds",
                "only throughput takes so long as it is told: name it, or no part",
            ));
        }
        let seed = args.seed.map_or_else(drawn, Ok)?;
        let handler = Measured::load(context, args.handler.as_deref(), args.kind.as_ref()).await?;
        let payloads = match &args.payload_file {
            Some(file) => vec![payload::read(None, Some(file))?],
            None => payloads(&mut Dice::new(seed), args.payload as usize),
        };
        Ok(Self {
            parts,
            jobs: args.jobs as usize,
            backlog: args.backlog as usize,
            rounds: args.rounds,
            seconds: args.seconds,
            seed,
            handler,
            payloads,
        })
    }

    /// Bytes of the largest payload.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payloads.iter().map(Bytes::len).max().unwrap_or(0)
    }
}

impl Measured {
    async fn load(context: &Context, file: Option<&Path>, kind: Option<&Name>) -> Result<Self, Fault> {
        let Some(file) = file else { return Self::built_in(NO_OP.to_vec()) };
        check_module(file)?;
        let artifact = Artifact::with_manifest_in(file.to_owned(), file.parent().unwrap_or(Path::new("")));
        let stage = Stage::load(context, std::slice::from_ref(&artifact)).await?;
        let handler = stage.handler(kind).map_err(|message| flag("--kind", &message))?;
        let read = |path: &Path| {
            let read = std::fs::read(path);
            read.map_err(|error| Fault::usage(format!("cannot read {}: {error}", path.display())))
        };
        Ok(Self {
            kind: handler.kind.clone(),
            stem: artifact.stem(),
            module: read(file)?,
            manifest: artifact.manifest.as_deref().map(read).transpose()?,
            hash: handler.hash.clone(),
            built_in: false,
        })
    }

    /// One that comes with this binary.
    pub(super) fn built_in(module: Vec<u8>) -> Result<Self, Fault> {
        let kind = Name::new(KIND).map_err(|error| Fault::failed(error.to_string()))?;
        let hash = crate::registry::sha256_of(&module).chars().take(12).collect();
        Ok(Self { kind, stem: KIND.to_owned(), module, manifest: None, hash, built_in: true })
    }
}

/// A seed that nobody has chosen. Short, to be typed again.
fn drawn() -> Result<u64, Fault> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::failed(format!("no randomness from the system: {error}")))?;
    Ok(u32::from_le_bytes(bytes).into())
}

/// JSON of exactly so many bytes.
fn payloads(dice: &mut Dice, bytes: usize) -> Vec<Bytes> {
    let one = |n: usize| {
        let mut text = format!(r#"{{"n":{n},"text":""#);
        while text.len() + 2 < bytes {
            text.push(char::from(b'a' + dice.below(26) as u8));
        }
        Bytes::from(text + "\"}")
    };
    // Large ones are fewer: together they have at most 16 MiB.
    let count = PAYLOADS.min((16 << 20) / bytes.max(1)).max(1);
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_json_of_the_size_that_was_asked_for_and_follow_from_the_seed() {
        for bytes in [32, 150, 1 << 20] {
            let all = payloads(&mut Dice::new(7), bytes);
            for payload in &all {
                assert_eq!(payload.len(), bytes);
                let value: serde_json::Value = serde_json::from_slice(payload).expect("JSON");
                assert!(value["n"].is_u64() && value["text"].is_string());
            }
            assert_eq!(all, payloads(&mut Dice::new(7), bytes));
            assert_ne!(all, payloads(&mut Dice::new(8), bytes));
        }
    }
}
