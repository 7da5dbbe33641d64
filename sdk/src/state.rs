//! What a handler remembers from job to job.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Context, Refused, host};

/// What the jobs of a kind remember: entries by key, which the manifest grants (`state`).
///
/// What is read is what was there before this job, and what this job has changed itself. Changes are written together with this
/// job's completion, or not at all. Had somebody else changed by then what this job has read, the job runs again, its
/// attempt unspent: so two jobs at once never lose what the other wrote.
///
/// ```
/// use hourhand_sdk::prelude::*;
///
/// #[handler]
/// fn greet(ctx: &Context, name: String) -> Result<String, Failure> {
///     let visits = ctx.state().of(&name).increment("visits", 1)?;
///     let first: String = ctx.state().get("first")?.unwrap_or_else(|| name.clone());
///     ctx.state().set("first", &first)?;
///     Ok(format!("hello {name}, visit {visits}; the first was {first}"))
/// }
///
/// let run = TestHost::new().state("first", &"Bob").run::<greet>(r#""Ada""#);
/// assert_eq!(run.result::<String>(), "hello Ada, visit 1; the first was Bob");
/// assert_eq!(run.state["Ada/visits"], b"1");
/// ```
#[derive(Debug, Clone)]
pub struct State {
    /// What all keys begin with: nothing, or scopes that each end in a slash.
    prefix: String,
}

impl Context {
    /// What this kind's jobs remember.
    pub fn state(&self) -> State {
        State { prefix: String::new() }
    }
}

impl State {
    /// The part that belongs to one thing, such as a customer: the key `visits` of `customer-7` is `customer-7/visits` in the
    /// whole. A slash in the scope's own name is written `%2F`, and a percent sign `%25`, so that two scopes never meet.
    #[must_use]
    pub fn of(&self, scope: impl AsRef<str>) -> Self {
        let scope = scope.as_ref().replace('%', "%25").replace('/', "%2F");
        Self { prefix: format!("{}{scope}/", self.prefix) }
    }

    /// What was remembered under `key`, read as JSON.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Invalid`] also when it is no such value.
    pub fn get<T: DeserializeOwned>(&self, key: impl AsRef<str>) -> Result<Option<T>, Refused> {
        let key = self.key(key);
        let Some(bytes) = host::state_get(&key)? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Refused::Invalid(format!("the state entry {key:?} is no such value: {error}")))
    }

    /// The bytes that were remembered under `key`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn get_bytes(&self, key: impl AsRef<str>) -> Result<Option<Vec<u8>>, Refused> {
        host::state_get(&self.key(key))
    }

    /// Remembers `value` under `key`, written as JSON.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Invalid`] also when it cannot be written as JSON.
    pub fn set<T: Serialize + ?Sized>(&self, key: impl AsRef<str>, value: &T) -> Result<(), Refused> {
        let key = self.key(key);
        let bytes = serde_json::to_vec(value).map_err(|error| {
            Refused::Invalid(format!("the state entry {key:?} cannot be written as JSON: {error}"))
        })?;
        host::state_set(&key, &bytes)
    }

    /// Remembers these bytes under `key`.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn set_bytes(&self, key: impl AsRef<str>, bytes: impl AsRef<[u8]>) -> Result<(), Refused> {
        host::state_set(&self.key(key), bytes.as_ref())
    }

    /// Forgets what was remembered under `key`, if anything.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn delete(&self, key: impl AsRef<str>) -> Result<(), Refused> {
        host::state_delete(&self.key(key))
    }

    /// Adds `by` to the whole number under `key` (none counts as 0), and returns what it would be now. It conflicts with no other
    /// addition, so that any number of jobs may count at once; the returned number is then only about right. Whoever needs it
    /// exactly reads it with [`get`](Self::get) as well.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Invalid`] also when the entry is no whole number of 64 bits, or would not be one any more.
    pub fn increment(&self, key: impl AsRef<str>, by: i64) -> Result<i64, Refused> {
        host::state_increment(&self.key(key), by)
    }

    fn key(&self, key: impl AsRef<str>) -> String {
        format!("{}{}", self.prefix, key.as_ref())
    }
}
