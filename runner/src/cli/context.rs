//! What a command works with: its settings, its store and its way out.

use std::sync::Arc;

use super::args::Cli;
use super::exit::Fault;
use super::output::{Out, note};
use crate::app;
use crate::client::Client;
use crate::clock;
use crate::config::machine::Machine;
use crate::config::{Layers, SpoolSettings, StoreSettings};
use crate::job::Due;
use crate::queue::{Store, StoreError};
use crate::wire::units;

/// What a command works with.
pub(super) struct Context {
    /// Settings, from wherever they come.
    pub(super) layers: Layers,
    /// The answer.
    pub(super) out: Out,
    /// Facts of this machine.
    pub(super) machine: Machine,
}

impl Context {
    /// Reads flags, variables and file.
    ///
    /// # Errors
    /// All that is wrong with the settings file, or with a variable.
    pub(super) fn new(cli: &Cli) -> Result<Self, Fault> {
        let layers = Layers::new(cli.settings(), std::env::vars_os())?;
        let layers = layers.with_file(cli.common.config.as_deref(), std::path::Path::new(""))?;
        Ok(Self { layers, out: Out::stdout(cli.common.json), machine: Machine::read() })
    }

    /// The store of the settings, for a command that asks or changes what is in it. A Redis may turn out to be away
    /// only when it is asked; an embedded store that nobody has made holds nothing to ask for, and most likely is
    /// not the one that was meant.
    ///
    /// # Errors
    /// When the settings name no store that can be used.
    pub(super) fn store(&self) -> Result<Arc<dyn Store>, Fault> {
        let settings = StoreSettings::resolve(&self.layers)?;
        if let Some(file) = settings.missing_file() {
            return Err(Fault::from(StoreError::Unreachable(format!(
                "{}: there is no such file: run and enqueue make it, and --store names another",
                file.display()
            ))));
        }
        Ok(app::open_store(&settings)?)
    }

    /// As [`store`](Self::store), for a command that puts the first thing into it: the file of an embedded store is
    /// made when it is missing, and that is said.
    ///
    /// # Errors
    /// When the settings name no store that can be used.
    pub(super) fn store_or_new(&self) -> Result<Arc<dyn Store>, Fault> {
        let settings = StoreSettings::resolve(&self.layers)?;
        let missing = settings.missing_file();
        let store = app::open_store(&settings)?;
        if let Some(file) = missing {
            note(&format!("there is no store {} yet: making it", file.display()));
        }
        Ok(store)
    }
}

/// A client of a store, with the spool if the settings say so.
///
/// # Errors
/// All that is wrong with the settings.
pub(super) fn client(context: &Context, store: &Arc<dyn Store>) -> Result<Client, Fault> {
    let settings = SpoolSettings::resolve(&context.layers, &context.machine)?;
    let client = Client::new(Arc::clone(store));
    client.set_spool(settings.on.then(|| app::spool(&settings)));
    Ok(client)
}

/// When a job is due that `--delay` or `--at` describe, or neither.
///
/// # Errors
/// What was expected.
pub(super) fn due(delay: Option<&str>, at: Option<&str>) -> Result<Due, Fault> {
    let now_ms = clock::wall_ms();
    match (delay, at) {
        (Some(text), _) => units::delay_ms(text, now_ms).map(Due::In).map_err(|e| flag("--delay", &e)),
        (None, Some(text)) => units::due_instant_ms(text, now_ms).map(Due::At).map_err(|e| flag("--at", &e)),
        (None, None) => Ok(Due::NOW),
    }
}

/// The instant that `--since` describes, in milliseconds since 1970: an instant, or a duration back from now.
///
/// # Errors
/// What was expected.
pub(super) fn since(text: Option<&str>) -> Result<Option<u64>, Fault> {
    let Some(text) = text else { return Ok(None) };
    if let Ok(ms) = units::duration_ms(text) {
        return Ok(Some(clock::wall_ms().saturating_sub(ms)));
    }
    units::instant_ms(text).map(Some).map_err(|_| {
        Fault::usage(format!(
            "--since: expected an instant such as 2026-12-01T09:00:00Z or a duration such as 1h, got {text:?}"
        ))
    })
}

/// What is wrong with a flag.
pub(super) fn flag(flag: &str, message: &str) -> Fault {
    Fault::usage(format!("{flag}: {message}"))
}
