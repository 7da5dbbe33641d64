//! `handler test`: a folder of cases, each run on the true module with its real limits.

mod bless;
mod case;
mod judge;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args_local::TestArgs;
use super::context::Context;
use super::exit::{Code, Fault};
use super::local::project::{BuildError, BuildStop, Project, WHAT_IS_ONE};
use super::local::report;
use super::local::stage::{Artifact, Stage};
use super::local::trial::{self, Trial};
use super::output::{Out, note, plain};
use super::table::Table;

use case::Case;
use judge::{Difference, differences};

/// Where the cases are unless somebody says otherwise.
const FIXTURES: &str = "fixtures";

/// A case that has run.
struct Ran {
    case: Case,
    trial: Trial,
    differences: Vec<Difference>,
    blessed: bool,
}

/// Runs the cases of a project or a module.
pub(super) async fn run(context: &mut Context, args: &TestArgs) -> Result<Code, Fault> {
    let path = args.path.clone().unwrap_or_else(|| PathBuf::from("."));
    // The cases first: a build may take minutes.
    let cases = read_cases(&fixtures(&path, args), args.only.as_deref())?;
    let artifacts = artifacts(&path)?;
    let stage = Stage::load(context, &artifacts).await?;
    let mut all = Vec::new();
    for case in cases {
        all.push(run_case(&stage, case, args.bless).await?);
    }
    if context.out.json() {
        context.out.value(&answer(&all));
    } else {
        show(&mut context.out, &all);
    }
    Ok(if all.iter().all(Ran::passed) { Code::Done } else { Code::Failed })
}

fn fixtures(path: &Path, args: &TestArgs) -> PathBuf {
    let beside = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let beside = if beside == Path::new(".") { Path::new("") } else { beside };
    args.fixtures.clone().unwrap_or_else(|| beside.join(FIXTURES))
}

/// All cases of the folder, by name; what is wrong with any of them is said of all.
fn read_cases(folder: &Path, only: Option<&str>) -> Result<Vec<Case>, Fault> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder).map_err(|error| {
        Fault::usage(format!("cannot read the cases in {shown}: {error}: --fixtures names another folder"))
    })?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml") && file.is_file())
        .filter(|file| {
            only.is_none_or(|part| file.file_stem().unwrap_or_default().to_string_lossy().contains(part))
        })
        .collect();
    files.sort();
    if files.is_empty() {
        let which = only.map(|part| format!(" whose name contains {part:?}")).unwrap_or_default();
        return Err(Fault::usage(format!("there is no case (*.toml){which} in {shown}")));
    }
    let (cases, problems): (Vec<_>, Vec<_>) =
        files.iter().map(|file| Case::read(file)).partition(Result::is_ok);
    let problems: Vec<String> = problems.into_iter().filter_map(Result::err).collect();
    if !problems.is_empty() {
        return Err(Fault::usage(problems.join("\n")));
    }
    Ok(cases.into_iter().filter_map(Result::ok).collect())
}

/// The modules to test: a file itself, or what is built from a project.
fn artifacts(path: &Path) -> Result<Vec<Artifact>, Fault> {
    if path.is_file() {
        let folder = path.parent().unwrap_or(Path::new(""));
        return Ok(vec![Artifact::with_manifest_in(path.to_owned(), folder)]);
    }
    let Some(project) = Project::find(path) else {
        return Err(Fault::usage(format!("{}: expected a module, or {WHAT_IS_ONE}", path.display())));
    };
    project.build(&BuildStop::default()).map_err(|error| match error {
        BuildError::NoTool { .. } | BuildError::NoModule(_) => Fault::usage(error.to_string()),
        BuildError::Failed { .. } | BuildError::Stopped => Fault::failed(error.to_string()),
    })
}

async fn run_case(stage: &Stage, case: Case, bless: bool) -> Result<Ran, Fault> {
    let wrong = |message: String| Fault::usage(format!("{}: {message}", case.file.display()));
    let handler = stage.handler(case.kind.as_ref()).map_err(|message| wrong(format!("kind: {message}")))?;
    case.job.validate(&handler.kind).map_err(wrong)?;
    let trial = trial::run(&stage.sandbox, handler, case.job.clone()).await.map_err(wrong)?;
    let mut differences = match &case.expect {
        Some(expect) => differences(expect, &trial),
        None => vec![Difference {
            what: "expect",
            expected: "a table [expect] in the case: write one, or let --bless do it".to_owned(),
            got: report::outcome_words(&trial.outcome),
        }],
    };
    let blessed = bless && !differences.is_empty();
    if blessed {
        let text = bless::blessed(&case, &trial).map_err(wrong)?;
        std::fs::write(&case.file, text).map_err(|error| wrong(format!("cannot be written: {error}")))?;
        differences.clear();
    }
    Ok(Ran { case, trial, differences, blessed })
}

impl Ran {
    fn passed(&self) -> bool {
        self.differences.is_empty()
    }

    fn word(&self) -> &'static str {
        match (self.blessed, self.passed()) {
            (true, _) => "blessed",
            (false, true) => "passed",
            (false, false) => "FAILED",
        }
    }
}

fn show(out: &mut Out, all: &[Ran]) {
    let mut table = Table::new(&["case", "", "outcome", "time", "memory"]);
    for ran in all {
        let (time, memory) = report::cost(&ran.trial);
        table.row([ran.case.name.as_str(), ran.word(), ran.trial.outcome.as_str(), &time, &memory]);
    }
    table.print(out, "no cases");
    for ran in all.iter().filter(|ran| !ran.passed()) {
        out.line("");
        out.line(&format!("{} ({})", plain(&ran.case.name), plain(&ran.case.file.display().to_string())));
        for difference in &ran.differences {
            out.line(&format!("  {:9} expected {}", difference.what, plain(&difference.expected)));
            out.line(&format!("  {:9} got      {}", "", plain(&difference.got)));
        }
        for line in ran.trial.log.lines() {
            out.line(&format!("  {:9} {}", "log", plain(line)));
        }
    }
    let failed = all.iter().filter(|ran| !ran.passed()).count();
    let blessed = all.iter().filter(|ran| ran.blessed).count();
    let passed = all.len() - failed - blessed;
    // In this order on a terminal.
    out.flush();
    let blessed = if blessed > 0 { format!(", {blessed} blessed") } else { String::new() };
    note(&format!("{passed} passed, {failed} failed{blessed}"));
}

fn answer(all: &[Ran]) -> Value {
    let cases: Vec<Value> = all
        .iter()
        .map(|ran| {
            json!({
                "name": ran.case.name,
                "file": ran.case.file.display().to_string(),
                "passed": ran.passed(),
                "blessed": ran.blessed,
                "differences": ran.differences,
                "run": report::value(&ran.trial),
            })
        })
        .collect();
    let failed = all.iter().filter(|ran| !ran.passed()).count();
    let blessed = all.iter().filter(|ran| ran.blessed).count();
    json!({ "passed": all.len() - failed, "failed": failed, "blessed": blessed, "cases": cases })
}
