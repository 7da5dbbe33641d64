//! `handler run`: one job in the real sandbox, with no store, and all that came of it.

use std::path::Path;

use serde_json::Value;

use super::args_local::TryArgs;
use super::context::{Context, flag};
use super::exit::{Code, Fault};
use super::local::answers;
use super::local::report;
use super::local::stage::{Artifact, Stage, check_module};
use super::local::state::{self, Entries};
use super::local::trial::{self, TrialJob};
use super::output::note;
use super::payload;
use crate::outcome::Outcome;
use crate::wire::units;

/// Runs the job that the arguments describe.
pub(super) async fn run(context: &mut Context, args: &TryArgs) -> Result<Code, Fault> {
    let mut job = job(args)?;
    let stage = Stage::load(context, &[artifact(args)?]).await?;
    let handler = stage.handler(args.kind.as_ref()).map_err(|message| flag("--kind", &message))?;
    job.validate(&handler.kind).map_err(Fault::usage)?;
    // Last, so that nobody types a payload for a module that does not load.
    job.payload = payload::read(args.payload.as_deref(), args.payload_file.as_deref())?;
    let trial = trial::run(&stage.sandbox, handler, job).await.map_err(Fault::usage)?;
    if context.out.json() {
        context.out.value(&report::value(&trial));
    } else {
        report::show(&mut context.out, &trial);
    }
    Ok(if matches!(trial.outcome, Outcome::Completed { .. }) { Code::Done } else { Code::Failed })
}

fn artifact(args: &TryArgs) -> Result<Artifact, Fault> {
    check_module(&args.file)?;
    let folder = args.file.parent().unwrap_or(Path::new(""));
    let mut artifact = Artifact::with_manifest_in(args.file.clone(), folder);
    if let Some(manifest) = &args.manifest {
        if !manifest.is_file() {
            return Err(flag("--manifest", &format!("there is no file {}", manifest.display())));
        }
        artifact.manifest = Some(manifest.clone());
    }
    if let Some(manifest) = &artifact.manifest {
        note(&format!("with the manifest {}", manifest.display()));
    }
    Ok(artifact)
}

fn job(args: &TryArgs) -> Result<TrialJob, Fault> {
    let timeout_ms = args.timeout.as_deref().map(units::duration_ms).transpose();
    let due_ms = args.due.as_deref().map(units::instant_ms).transpose();
    Ok(TrialJob {
        id: args.id.clone(),
        queue: args.queue.clone(),
        attempt: args.attempt,
        max_attempts: args.max_attempts,
        timeout_ms: timeout_ms.map_err(|e| flag("--timeout", &e))?,
        due_ms: due_ms.map_err(|e| flag("--due", &e))?,
        meta: args.meta.clone(),
        payload: bytes::Bytes::new(),
        state: args.state.as_deref().map(read_state).transpose()?.unwrap_or_default(),
        http: args.http.as_deref().map(answers::read).transpose().map_err(|e| flag("--http", &e))?,
    })
}

/// Largest file of state, in bytes.
const STATE_FILE_BYTES_MAX: u64 = 64 << 20;

fn read_state(path: &Path) -> Result<Entries, Fault> {
    let wrong = |message: String| flag("--state", &format!("{}: {message}", path.display()));
    let facts = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if !facts.is_file() || facts.len() > STATE_FILE_BYTES_MAX {
        return Err(wrong(format!("expected a file of at most {STATE_FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("expected JSON: {error}")))?;
    let Value::Object(values) = value else {
        return Err(wrong("expected a JSON object, an entry of the state for each key".to_owned()));
    };
    state::entries(&values).map_err(wrong)
}
