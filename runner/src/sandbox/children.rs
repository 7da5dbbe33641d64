//! Jobs that a run enqueues: checked against what its manifest grants, and kept until it completes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::clock;
use crate::effects::{CHILDREN_BYTES_MAX, CHILDREN_LANES_MAX, CHILDREN_MAX, META_DEPTH, META_PARENT};
use crate::grants::EnqueueGrant;
use crate::job::{DELAY_MS_MAX, Due, Job, NewJob, OnConflict, Priority};
use crate::names::{JobId, Name};
use crate::outcome::capped;

use super::GuestJob;
use super::bindings::hourhand::job::jobs;
use super::bindings::hourhand::job::types::Refusal;

/// Longest text of who enqueued a job, in bytes: see [`NewJob::validate`].
const SOURCE_BYTES_MAX: usize = 256;
/// Letters and digits of a made id.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
/// Characters that tell one run of a job from all others: 62 bits.
const RUN_CHARACTERS: usize = 12;

/// Which run of which job it is: what the ids of jobs that it enqueues are made from, so that a repeat of the same write
/// cannot double them. No two runs have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incarnation {
    /// How the store finds the job.
    pub record: u64,
    /// Who runs it.
    pub session: Arc<str>,
    /// Which claim of the session it is.
    pub token: u64,
}

impl Default for Incarnation {
    /// Of a run without a store.
    fn default() -> Self {
        Self { record: 0, session: Arc::from(""), token: 0 }
    }
}

impl Incarnation {
    /// What the made ids of this run's children begin with.
    fn id_prefix(&self) -> String {
        let hash = Sha256::new()
            .chain_update(self.record.to_le_bytes())
            .chain_update(self.token.to_le_bytes())
            .chain_update(self.session.as_bytes())
            .finalize();
        let run: String = hash[..RUN_CHARACTERS]
            .iter()
            .map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]))
            .collect();
        format!("{}-{run}", self.record)
    }
}

/// Whether a job has an id that was made here: no two runs make the same, so that nobody will ask for it again.
pub(crate) fn has_made_id(job: &Job) -> bool {
    let mut parts = job.id.as_str().split('-');
    let mut next = || parts.next().unwrap_or_default();
    let (record, run, number) = (next(), next(), next());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    parts.next().is_none()
        && is_number(record)
        && is_number(number)
        && run.len() == RUN_CHARACTERS
        && run.bytes().all(|b| ALPHABET.contains(&b))
        && job.meta.iter().any(|(key, _)| key == META_PARENT)
}

/// What a run has enqueued so far.
pub(super) struct Children {
    jobs: Vec<NewJob>,
    /// Queue and kind of each.
    lanes: BTreeSet<(Name, Name)>,
    payload_bytes: usize,
    id_prefix: Option<String>,
    parent: Parent,
}

/// What its children inherit.
struct Parent {
    incarnation: Incarnation,
    /// `queue/id`.
    place: String,
    source: String,
    traceparent: Option<String>,
    depth: u32,
}

impl Children {
    /// Of a run of `job`; none yet.
    pub(super) fn of(job: &GuestJob) -> Self {
        let depths = job.meta.iter().filter(|(key, _)| key == META_DEPTH);
        let parent = Parent {
            incarnation: job.incarnation.clone(),
            place: format!("{}/{}", job.queue, job.id),
            source: capped(format!("job:{}/{}", job.kind, job.id), SOURCE_BYTES_MAX),
            traceparent: job
                .facts
                .iter()
                .rev()
                .find(|(name, _)| name == "traceparent")
                .map(|(_, t)| t.clone()),
            // Whoever enqueues may have written anything there.
            depth: depths.filter_map(|(_, depth)| depth.parse().ok()).max().unwrap_or(0),
        };
        Self { jobs: Vec::new(), lanes: BTreeSet::new(), payload_bytes: 0, id_prefix: None, parent }
    }

    /// Takes a job, and says what its id will be. `manifest` is the file that grants.
    pub(super) fn add(
        &mut self,
        job: jobs::NewJob,
        grant: &EnqueueGrant,
        manifest: &str,
    ) -> Result<String, Refusal> {
        let kind = Name::new(&job.kind).map_err(|error| Refusal::Invalid(error.to_string()))?;
        if !grant.allows(kind.as_str()) {
            return Err(not_granted(&kind, Some(grant), manifest));
        }
        self.check_room(grant, job.payload.len(), manifest)?;
        let id = match &job.id {
            Some(id) => JobId::new(id),
            None => self.made_id(),
        };
        let id = id.map_err(|error| Refusal::Invalid(error.to_string()))?;
        let queue = match &job.queue {
            Some(queue) => Name::new(queue).map_err(|error| Refusal::Invalid(error.to_string()))?,
            None => kind.clone(),
        };
        let child = NewJob {
            id: Some(id.clone()),
            kind,
            queue,
            priority: match job.priority {
                jobs::Priority::High => Priority::High,
                jobs::Priority::Normal => Priority::Normal,
                jobs::Priority::Low => Priority::Low,
            },
            due: match job.due {
                jobs::Due::In(ms) => Due::In(ms),
                jobs::Due::At(ms) => Due::At(ms),
            },
            age_ms: 0,
            payload: Bytes::from(job.payload),
            max_attempts: job.max_attempts,
            timeout_ms: job.timeout_ms,
            meta: self.meta_of_child(job.meta),
            traceparent: self.parent.traceparent.clone(),
            source: self.parent.source.clone(),
            on_conflict: OnConflict::Keep,
        };
        child.validate().map_err(Refusal::Invalid)?;
        not_too_far(child.due, clock::wall_ms()).map_err(Refusal::Invalid)?;
        let lane = (child.queue.clone(), child.kind.clone());
        if self.lanes.len() >= CHILDREN_LANES_MAX && !self.lanes.contains(&lane) {
            return Err(Refusal::Limit(format!(
                "the jobs that an attempt enqueues may go to at most {CHILDREN_LANES_MAX} queues and kinds"
            )));
        }
        self.lanes.insert(lane);
        self.payload_bytes += child.payload.len();
        self.jobs.push(child);
        Ok(id.to_string())
    }

    /// All of them, in their order.
    pub(super) fn into_jobs(self) -> Vec<NewJob> {
        self.jobs
    }

    fn check_room(&self, grant: &EnqueueGrant, payload: usize, manifest: &str) -> Result<(), Refusal> {
        let depth = self.parent.depth.saturating_add(1);
        if depth > grant.depth_max {
            return Err(Refusal::Limit(format!(
                "this job is {} jobs away from the one that somebody else enqueued, and {manifest} lets it be at most {} \
                 before it enqueues more",
                self.parent.depth,
                grant.depth_max.saturating_sub(1)
            )));
        }
        let jobs_max = CHILDREN_MAX.min(grant.jobs_max as usize);
        if self.jobs.len() >= jobs_max {
            return Err(Refusal::Limit(format!(
                "{manifest} lets an attempt enqueue at most {jobs_max} jobs"
            )));
        }
        if self.payload_bytes + payload > CHILDREN_BYTES_MAX {
            return Err(Refusal::Limit(format!(
                "the jobs that an attempt enqueues may have {CHILDREN_BYTES_MAX} bytes of payload together; this one of \
                 {payload} bytes would make it {}",
                self.payload_bytes + payload
            )));
        }
        Ok(())
    }

    /// See [`has_made_id`].
    fn made_id(&mut self) -> Result<JobId, crate::names::InvalidName> {
        let incarnation = &self.parent.incarnation;
        let prefix = self.id_prefix.get_or_insert_with(|| incarnation.id_prefix());
        JobId::new(&format!("{prefix}-{}", self.jobs.len()))
    }

    /// What the guest attached, and where the child comes from. The guest has no say in the latter: its own depth would be endless.
    fn meta_of_child(&self, given: Vec<(String, String)>) -> Vec<(String, String)> {
        let mut meta = given;
        meta.retain(|(key, _)| key != META_DEPTH && key != META_PARENT);
        meta.push((META_DEPTH.to_owned(), self.parent.depth.saturating_add(1).to_string()));
        meta.push((META_PARENT.to_owned(), self.parent.place.clone()));
        meta
    }
}

/// The store judges by its own clock when the job completes: what it would not take is refused here, with a day for the clocks to differ.
fn not_too_far(due: Due, now_ms: u64) -> Result<(), String> {
    const DAY_MS: u64 = 86_400_000;
    match due {
        Due::At(ms) if ms > now_ms + DELAY_MS_MAX - DAY_MS => {
            Err(format!("due time {ms} ms: expected at most 100 years ahead"))
        }
        _ => Ok(()),
    }
}

/// The manifest does not grant jobs of this kind. Says the line that would, with what is granted already.
pub(super) fn not_granted(kind: &Name, grant: Option<&EnqueueGrant>, manifest: &str) -> Refusal {
    const SHOWN: usize = 10;
    let granted = grant.map(|grant| grant.kinds.as_slice()).unwrap_or_default();
    let mut kinds: Vec<String> = granted.iter().take(SHOWN).map(|kind| format!("{kind:?}")).collect();
    if granted.len() > SHOWN {
        kinds.push("...".to_owned());
    }
    kinds.push(format!("{:?}", kind.as_str()));
    Refusal::Denied(format!("jobs of kind {kind} need {manifest}: [allow] enqueue = [{}]", kinds.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(meta: &[(&str, &str)]) -> GuestJob {
        GuestJob {
            id: "7".to_owned(),
            kind: "report".to_owned(),
            queue: "nightly".to_owned(),
            meta: meta.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            facts: vec![("traceparent".to_owned(), "00-1-2-01".to_owned())],
            incarnation: Incarnation { record: 42, session: Arc::from("s1"), token: 3 },
            ..GuestJob::default()
        }
    }

    fn grant(kinds: &[&str]) -> EnqueueGrant {
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        EnqueueGrant { kinds, jobs_max: 3, depth_max: 2 }
    }

    fn child(kind: &str) -> jobs::NewJob {
        jobs::NewJob {
            kind: kind.to_owned(),
            queue: None,
            id: None,
            priority: jobs::Priority::Normal,
            due: jobs::Due::In(5),
            max_attempts: None,
            timeout_ms: None,
            meta: Vec::new(),
            payload: b"{}".to_vec(),
        }
    }

    fn text(refusal: &Refusal) -> &str {
        match refusal {
            Refusal::Denied(t) | Refusal::Limit(t) | Refusal::Invalid(t) | Refusal::Unavailable(t) => t,
        }
    }

    #[test]
    fn a_child_inherits_where_it_comes_from_and_a_guest_cannot_say_otherwise() {
        let mut children = Children::of(&parent(&[(META_DEPTH, "nonsense"), (META_DEPTH, "1")]));
        let lying = jobs::NewJob {
            meta: vec![
                ("a".to_owned(), "b".to_owned()),
                (META_DEPTH.to_owned(), "0".to_owned()),
                (META_PARENT.to_owned(), "x/y".to_owned()),
            ],
            ..child("part")
        };
        children.add(lying, &grant(&["part"]), "report.toml").unwrap();
        let jobs = children.into_jobs();
        let meta: Vec<_> = jobs[0].meta.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(meta, [("a", "b"), (META_DEPTH, "2"), (META_PARENT, "nightly/7")]);
        assert_eq!(jobs[0].traceparent.as_deref(), Some("00-1-2-01"));
        assert_eq!(jobs[0].source, "job:report/7");
        assert_eq!((jobs[0].queue.as_str(), jobs[0].due), ("part", Due::In(5)));
    }

    #[test]
    fn made_ids_are_the_same_for_the_same_run_and_others_for_another() {
        let ids = |token: u64| {
            let mut job = parent(&[]);
            job.incarnation.token = token;
            let mut children = Children::of(&job);
            let mut add = || children.add(child("part"), &grant(&["part"]), "m").unwrap();
            [add(), add()]
        };
        let first = ids(3);
        assert_eq!(first, ids(3));
        assert!(
            first[0].starts_with("42-") && first[0].ends_with("-0") && first[1].ends_with("-1"),
            "{first:?}"
        );
        assert!(ids(4).iter().all(|id| !first.contains(id)));
    }

    #[test]
    fn a_made_id_is_known_and_a_given_one_is_not_taken_for_one() {
        let mut children = Children::of(&parent(&[]));
        let mut add = |id: Option<&str>| {
            let job = jobs::NewJob { id: id.map(str::to_owned), ..child("part") };
            children.add(job, &grant(&["part"]), "m").unwrap()
        };
        add(None);
        add(None);
        add(Some("c-7"));
        let jobs: Vec<Job> = children.into_jobs().iter().map(stored).collect();
        assert_eq!(jobs.iter().map(has_made_id).collect::<Vec<_>>(), [true, true, false]);
        let of = |id: &str, meta: &[(String, String)]| Job {
            id: JobId::new(id).unwrap(),
            meta: meta.to_vec(),
            ..jobs[0].clone()
        };
        let made = jobs[0].id.to_string();
        assert!(!has_made_id(&of(&made, &[])), "nobody's child");
        for given in [
            "42",
            "42-abcdefghijkl",
            "42-abcdefghijkl-",
            "-abcdefghijkl-0",
            "42-abcdefghijk-0",
            "42-abcdefghijklm-0",
            "42-abcdefghijkL-0",
            "x-abcdefghijkl-0",
            "42-abcdefghijkl-0-0",
        ] {
            assert!(!has_made_id(&of(given, &jobs[0].meta)), "{given}");
        }
    }

    /// As a store holds it.
    fn stored(job: &NewJob) -> Job {
        Job {
            id: job.id.clone().unwrap(),
            kind: job.kind.clone(),
            queue: job.queue.clone(),
            priority: job.priority,
            enqueued_ms: 1,
            max_attempts: job.max_attempts,
            timeout_ms: job.timeout_ms,
            meta: job.meta.clone(),
            traceparent: job.traceparent.clone(),
            source: job.source.clone(),
            payload: job.payload.clone(),
        }
    }

    #[test]
    fn what_is_not_granted_names_the_line_and_what_is_too_much_its_bound() {
        let mut children = Children::of(&parent(&[]));
        let grant = grant(&["part", "mail.*"]);
        let mut add = |job| children.add(job, &grant, "report.toml");
        let denied = add(child("other")).unwrap_err();
        assert!(matches!(denied, Refusal::Denied(_)));
        assert!(
            text(&denied).ends_with(r#"report.toml: [allow] enqueue = ["part", "mail.*", "other"]"#),
            "{}",
            text(&denied)
        );
        assert!(matches!(add(child("no name")), Err(Refusal::Invalid(_))));
        let large = jobs::NewJob { payload: vec![0; (1 << 20) + 1], ..child("part") };
        assert!(matches!(add(large), Err(Refusal::Invalid(_))));
        for due in
            [jobs::Due::At(clock::wall_ms() + DELAY_MS_MAX), jobs::Due::In(u64::MAX), jobs::Due::At(u64::MAX)]
        {
            assert!(
                matches!(add(jobs::NewJob { due, ..child("part") }), Err(Refusal::Invalid(_))),
                "{due:?}"
            );
        }
        for _ in 0..3 {
            add(child("mail.now")).unwrap();
        }
        let refusal = add(child("part")).unwrap_err();
        assert!(matches!(refusal, Refusal::Limit(_)) && text(&refusal).contains("at most 3 jobs"));
        assert_eq!(children.into_jobs().len(), 3, "what was refused is not among them");
    }

    #[test]
    fn a_chain_of_jobs_comes_to_an_end() {
        let mut children = Children::of(&parent(&[(META_DEPTH, "2")]));
        let refusal = children.add(child("part"), &grant(&["part"]), "report.toml").unwrap_err();
        assert!(matches!(refusal, Refusal::Limit(_)), "{}", text(&refusal));
    }

    #[test]
    fn queues_are_bounded() {
        let mut children = Children::of(&parent(&[]));
        let grant = EnqueueGrant { jobs_max: 1_000, ..grant(&["*"]) };
        let mut add = |queue: usize| {
            children.add(jobs::NewJob { queue: Some(format!("q{queue}")), ..child("part") }, &grant, "m")
        };
        for queue in 0..CHILDREN_LANES_MAX {
            add(queue).unwrap();
        }
        assert!(matches!(add(CHILDREN_LANES_MAX), Err(Refusal::Limit(_))));
        add(7).unwrap();
    }

    #[test]
    fn payloads_together_are_bounded() {
        let mut children = Children::of(&parent(&[]));
        let grant = EnqueueGrant { jobs_max: 100, ..grant(&["*"]) };
        let large = || jobs::NewJob { payload: vec![0; 1 << 20], ..child("part") };
        for _ in 0..4 {
            children.add(large(), &grant, "m").unwrap();
        }
        assert!(matches!(children.add(large(), &grant, "m"), Err(Refusal::Limit(_))));
    }
}
