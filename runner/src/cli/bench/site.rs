//! Where measurements take place: namespaces, or files, of their own on the store that the settings name, and a folder. All of
//! it goes at the end.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::plan::{Measured, Plan};
use crate::app;
use crate::cli::context::Context;
use crate::cli::exit::Fault;
use crate::cli::output::note;
use crate::cli::own_runner::OwnRunner;
use crate::clock::monotonic;
use crate::config::{RunSettings, StoreSettings, StoreUrl};
use crate::manifest::OperatorSettings;
use crate::names::Name;
use crate::queue::checks::random_text;
use crate::queue::examination::{Facts, Value};
use crate::queue::redis::{RedisOptions, RedisStore};
use crate::queue::{Store, StoreError};
use crate::worker::Onlooker;

/// How long jobs may take to end once their runner stops.
const GRACE: Duration = Duration::from_secs(1);
/// How long a store that is away is asked to delete what was made.
const ERASE_WITHIN: Duration = Duration::from_secs(10);
/// How long the server and the disk may take to have done with what was written.
const REST_WITHIN: Duration = Duration::from_secs(60);
/// What a job takes beside its payload, roughly and rather too much, in bytes.
const JOB_BYTES: u64 = 500;

/// The place of a whole run.
pub(super) struct Site {
    settings: RunSettings,
    /// What names of namespaces begin with.
    prefix: String,
    folder: TempDir,
    worlds: Cell<u32>,
    /// Namespaces of a Redis that are not deleted yet.
    made: RefCell<Vec<(Name, RedisStore)>>,
    /// How the store was when it all began.
    pub(super) facts: Facts,
}

/// A store that holds nothing but what one measurement puts into it.
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: StoreSettings,
    pub(super) dir: PathBuf,
    redis: Option<RedisStore>,
    runners: Cell<u32>,
}

impl Site {
    /// Says what will be used, and sees that the store is there.
    pub(super) async fn new(context: &Context, plan: &Plan) -> Result<Self, Fault> {
        let mut settings = RunSettings::resolve(&context.layers, &context.machine, false)?;
        settings.name = format!("{} (bench)", context.machine.runner_name());
        settings.kinds = None;
        settings.queues = None;
        settings.grace = GRACE;
        // What waits in the operator's spool is not for a namespace that goes.
        settings.spool.drained = false;
        if plan.handler.built_in {
            settings.operator = OperatorSettings::default();
        }
        let prefix = format!("{}-bench-{}-{}", settings.store.namespace, plan.seed, random_text(6)?);
        let folder = folder(&settings.store.url)?;
        let url = &settings.store.url;
        match url.file() {
            None => note(&format!("works in namespaces {prefix}-* of {url}, which are deleted at the end")),
            Some(_) => {
                note(&format!("works in {}, which is deleted at the end", folder.path().display()));
            }
        }
        note(&format!("seed {}", plan.seed));
        let mut site = Self {
            settings,
            prefix,
            folder,
            worlds: Cell::new(0),
            made: RefCell::default(),
            facts: Facts::default(),
        };
        match site.look().await {
            Ok(facts) => site.facts = facts,
            Err(fault) => return Err(site.clear().await.err().unwrap_or(fault)),
        }
        Ok(site)
    }

    async fn look(&self) -> Result<Facts, Fault> {
        let world = self.world()?;
        // Nothing is made of a store that does not answer, and so nothing is left of it.
        if let Err(error) = world.store.counts().await {
            self.made.take();
            return Err(error.into());
        }
        let facts = world.store.examine().await?.facts;
        self.end(world).await?;
        Ok(facts)
    }

    /// A store without anything in it.
    pub(super) fn world(&self) -> Result<World, Fault> {
        let number = self.worlds.get() + 1;
        self.worlds.set(number);
        let failed = |error: std::io::Error| Fault::failed(format!("cannot make a folder: {error}"));
        let dir = self.folder.path().join(number.to_string());
        fs::create_dir(&dir).map_err(failed)?;
        let namespace = Name::new(&format!("{}-{number}", self.prefix)).map_err(|error| {
            Fault::usage(format!("namespace {}: it is too long to measure in: {error}", self.prefix))
        })?;
        let mut settings = StoreSettings { namespace, ..self.settings.store.clone() };
        let redis = if settings.url.file().is_some() {
            settings.url = StoreUrl::new(&format!("sqlite://{}", dir.join("bench.db").display()))
                .map_err(Fault::failed)?;
            None
        } else {
            let options = RedisOptions { wait_replicas: settings.wait_replicas, ..RedisOptions::default() };
            Some(RedisStore::connect(settings.url.expose(), &settings.namespace, options)?)
        };
        let store = match &redis {
            Some(redis) => {
                self.made.borrow_mut().push((settings.namespace.clone(), redis.clone()));
                Arc::new(redis.clone())
            }
            None => app::open_store(&settings)?,
        };
        Ok(World { store, settings, dir, redis, runners: Cell::new(0) })
    }

    /// Deletes a world, of which no runner is left.
    pub(super) async fn end(&self, world: World) -> Result<(), Fault> {
        let World { store, settings, dir, redis, .. } = world;
        drop(store);
        if let Some(redis) = redis {
            erase(&settings.namespace, &redis).await?;
            self.made.borrow_mut().retain(|(name, _)| *name != settings.namespace);
        }
        fs::remove_dir_all(&dir)
            .map_err(|error| Fault::failed(format!("cannot delete {}: {error}", dir.display())))
    }

    /// Deletes all that is left. No runner may be.
    pub(super) async fn clear(self) -> Result<(), Fault> {
        let mut left = Vec::new();
        for (name, redis) in self.made.take() {
            if let Err(fault) = erase(&name, &redis).await {
                left.push(fault.message);
            }
        }
        let path = self.folder.path().to_owned();
        if let Err(error) = self.folder.close() {
            left.push(format!("cannot delete {}: {error}", path.display()));
        }
        if left.is_empty() { Ok(()) } else { Err(Fault::failed(left.join("\n"))) }
    }

    /// Refuses what the store may have no room for: others may work on it.
    pub(super) fn check_room(&self, jobs: usize, payload_bytes: usize) -> Result<(), Fault> {
        let needed = jobs as u64 * (payload_bytes as u64 + JOB_BYTES);
        let free = ["free_memory_bytes", "disk_free_bytes"].into_iter().find_map(|name| {
            let Some(Value::Number(bytes)) = self.facts.get(name) else { return None };
            Some(*bytes)
        });
        match free {
            Some(free) if needed > free / 2 => Err(Fault::usage(format!(
                "{jobs} jobs take about {} MiB, which is more than half of the {} MiB that the store has free: \
                 choose less with --jobs, --backlog or --seconds",
                needed >> 20,
                free >> 20
            ))),
            _ => Ok(()),
        }
    }

    /// Settings of a runner in this world, with folders of its own; this handler is in its folder, if there is one.
    pub(super) fn runner_settings(
        &self,
        world: &World,
        handler: Option<&Measured>,
    ) -> Result<RunSettings, Fault> {
        let number = world.runners.get() + 1;
        world.runners.set(number);
        let dir = world.dir.join(format!("runner-{number}"));
        let settings = RunSettings {
            store: world.settings.clone(),
            handlers: dir.join("handlers"),
            state_dir: dir.join("state"),
            cache_dir: Some(dir.join("cache")),
            ..self.settings.clone()
        };
        fs::create_dir_all(&settings.handlers)
            .map_err(|error| Fault::failed(format!("cannot make a folder: {error}")))?;
        if let Some(handler) = handler {
            place(handler, &settings.handlers)?;
        }
        Ok(settings)
    }

    /// A runner of this process, which serves the handler.
    pub(super) async fn runner(
        &self,
        world: &World,
        handler: &Measured,
        onlooker: Option<Arc<dyn Onlooker>>,
    ) -> Result<OwnRunner, Fault> {
        let settings = self.runner_settings(world, Some(handler))?;
        let mut runner = OwnRunner::start("the measurement", settings, Some(&handler.kind), onlooker)?;
        match runner.ready().await {
            Ok(_) => Ok(runner),
            // Its end tells why it did not serve, if it was not the handler.
            Err(fault) => Err(runner.end().await.err().unwrap_or(fault)),
        }
    }

    /// Jobs that a runner runs at once.
    pub(super) fn concurrency(&self) -> u32 {
        self.settings.concurrency
    }

    /// For how long a runner is waited for that does not answer, in milliseconds.
    pub(super) fn lease_ms(&self) -> u64 {
        self.settings.lease.as_millis() as u64
    }
}

impl World {
    /// Bytes that the store takes.
    pub(super) async fn used_bytes(&self) -> Result<u64, Fault> {
        if let Some(redis) = &self.redis {
            redis.forget_answers().await?;
        }
        let facts = self.store.examine().await?.facts;
        for name in ["used_memory_bytes", "used_bytes"] {
            if let Some(Value::Number(bytes)) = facts.get(name) {
                return Ok(*bytes);
            }
        }
        Err(Fault::failed("the store does not tell how much memory it uses (INFO is not allowed)"))
    }

    /// Waits until the server is at rest and the disk has what was written: the load is no part of what is measured after it.
    pub(super) async fn rest(&self) -> Result<(), Fault> {
        let until = monotonic() + REST_WITHIN;
        if let Some(redis) = &self.redis {
            while !redis.is_at_rest().await? && monotonic() < until {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        // Where there is no such program, the disk may still have something to do.
        let _ = tokio::task::spawn_blocking(|| std::process::Command::new("sync").status()).await;
        Ok(())
    }
}

/// Puts a handler into a handlers folder, in one step.
pub(super) fn place(handler: &Measured, folder: &Path) -> Result<(), Fault> {
    let files = [(Some(&handler.module), "wasm"), (handler.manifest.as_ref(), "toml")];
    // The manifest first: a module is loaded with what lies beside it.
    for (content, extension) in files.into_iter().rev() {
        let Some(content) = content else { continue };
        let staged = folder.join(".staged");
        let target = folder.join(format!("{}.{extension}", handler.stem));
        let placed = fs::write(&staged, content).and_then(|()| fs::rename(&staged, &target));
        placed.map_err(|error| Fault::failed(format!("cannot write {}: {error}", target.display())))?;
    }
    Ok(())
}

/// Beside the file of an embedded store, so that it is the same disk that is measured.
fn folder(url: &StoreUrl) -> Result<TempDir, Fault> {
    let mut builder = tempfile::Builder::new();
    let folder = match url.file() {
        None => builder.prefix("hourhand-bench-").tempdir(),
        Some(file) => std::path::absolute(file).and_then(|file| {
            builder.prefix(".hourhand-bench-").tempdir_in(file.parent().unwrap_or(Path::new("/")))
        }),
    };
    folder.map_err(|error| {
        Fault::failed(format!(
            "cannot make a folder for the measurement: {error}; --store names another store, in whose folder it is made"
        ))
    })
}

async fn erase(name: &Name, redis: &RedisStore) -> Result<(), Fault> {
    let until = monotonic() + ERASE_WITHIN;
    loop {
        match redis.erase().await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_passing() && monotonic() < until => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(left_behind(name, &error)),
        }
    }
}

fn left_behind(name: &Name, error: &StoreError) -> Fault {
    Fault::failed(format!(
        "namespace {name} could not be deleted: {error}; when the server is back: redis-cli --scan --pattern \
         '{name}:*' | xargs -r redis-cli unlink"
    ))
}
