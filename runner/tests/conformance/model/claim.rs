//! The model's claim: which jobs, in which order, and none else.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use hourhand::job::Priority;
use hourhand::names::Name;
use hourhand::queue::{ClaimRequest, Claimed, ClaimedJob, Lane, LaneClaim};

use super::job::{Spot, Taken};
use super::state::{Key, Model};

/// Jobs that may be claimed, of each priority and lane, in order.
type Eligible = BTreeMap<Priority, BTreeMap<Lane, Vec<Key>>>;

impl Model {
    pub(super) fn claim(&mut self, request: &ClaimRequest, claimed: &Claimed) -> Result<()> {
        let now_ms = claimed.now_us / 1_000;
        ensure!(claimed.damaged == 0, "{} damaged entries", claimed.damaged);
        let open: Vec<&LaneClaim> =
            request.lanes.iter().filter(|of| !self.paused.contains(&of.lane.queue)).collect();
        for (i, job) in claimed.jobs.iter().enumerate() {
            self.check_claimed(request, &open, job, request.first_token + i as u64)
                .with_context(|| format!("claimed job {i}, {}", job.job.id))?;
        }
        let due = claimed.jobs.iter().position(|c| c.due_ms > now_ms).unwrap_or(claimed.jobs.len());
        let (due, ahead) = claimed.jobs.split_at(due);
        let suspects = self.check_suspects(request, &open, due, now_ms)?;
        let due: Vec<&ClaimedJob> = due.iter().filter(|c| !suspects.contains(&key_of(c))).collect();
        let ahead: Vec<&ClaimedJob> = ahead.iter().collect();
        let want = request.due_max - suspects.len();
        let mut rooms = Rooms::of(&open);
        rooms.take(claimed.jobs.iter().filter(|c| suspects.contains(&key_of(c))))?;
        let eligible = self.eligible(&open, |due_ms| due_ms <= now_ms);
        check_shares(&open, &mut rooms, &eligible, &due, want, true).context("of those that are due")?;
        let until_ms = now_ms.saturating_add(request.look_ahead_ms);
        let eligible = self.eligible(&open, |due_ms| now_ms < due_ms && due_ms <= until_ms);
        check_shares(&open, &mut rooms, &eligible, &ahead, request.ahead_max, false)
            .context("of those ahead")?;
        for job in &claimed.jobs {
            self.take(job, now_ms);
        }
        let beat = self.sessions.get_mut(&request.session);
        let beat = beat.map_or(0, |beat| {
            *beat += u64::from(!claimed.jobs.is_empty());
            *beat
        });
        ensure!(claimed.beat == beat, "the beat is {}, expected {beat}", claimed.beat);
        let open: Vec<&LaneClaim> = open.into_iter().filter(|of| rooms.left(&of.lane.kind) > 0).collect();
        let next = self.next_due(&open, request.suspect && suspects.is_empty());
        ensure!(claimed.next_due_ms == next, "next_due_ms is {:?}, expected {next:?}", claimed.next_due_ms);
        Ok(())
    }

    /// What is said of one job, but for its turn.
    fn check_claimed(
        &self,
        request: &ClaimRequest,
        open: &[&LaneClaim],
        got: &ClaimedJob,
        token: u64,
    ) -> Result<()> {
        let job = self.jobs.get(&key_of(got)).context("there is no such job")?;
        ensure!(job.waits(), "it does not wait: {:?}", job.spot);
        ensure!(job.job == got.job, "{:?}, expected {:?}", got.job, job.job);
        let lane = open.iter().find(|of| of.lane == job.lane()).context("its lane is closed")?;
        ensure!(got.lease.session == request.session, "another session's lease");
        ensure!(got.lease.token == token, "token {}, expected {token}", got.lease.token);
        let known = job.record.is_none_or(|record| record == got.lease.record);
        ensure!(known && got.lease.record > 0, "record {}, was {:?}", got.lease.record, job.record);
        let numbers = (got.attempt, got.max_attempts, got.crashes, got.due_ms);
        let max = job.job.max_attempts.unwrap_or(lane.max_attempts);
        let max = max.min(lane.attempts_cap.unwrap_or(max));
        let expected = (job.attempt + 1, max, job.crashes, job.due());
        ensure!(numbers == expected, "attempt, maximum, crashes, due are {numbers:?}, expected {expected:?}");
        Ok(())
    }

    /// At most one suspect, and that only when it is asked for and due.
    fn check_suspects(
        &self,
        request: &ClaimRequest,
        open: &[&LaneClaim],
        due: &[ClaimedJob],
        now_ms: u64,
    ) -> Result<BTreeSet<Key>> {
        let is_suspect = |key: &Key| self.jobs.get(key).is_some_and(|job| job.is_suspect());
        let got: BTreeSet<Key> = due.iter().map(key_of).filter(is_suspect).collect();
        let mut waiting: Vec<(u64, u64, &Key, Lane)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.waits() && job.is_suspect() && job.due() <= now_ms)
            .filter(|(_, job)| open.iter().any(|of| of.lane == job.lane() && of.kind_max != Some(0)))
            .map(|(key, job)| (job.due(), job.order, key, job.lane()))
            .collect();
        waiting.sort_unstable();
        let expected = usize::from(request.suspect && request.due_max > 0 && !waiting.is_empty());
        ensure!(got.len() == expected, "{} suspects, expected {expected}", got.len());
        if let Some(key) = got.first() {
            let lane = self.jobs.get(key).map(|job| job.lane());
            let first = waiting.iter().find(|(_, _, _, of)| Some(of) == lane.as_ref()).map(|of| of.2);
            ensure!(Some(key) == first, "the suspect {key:?} had not its turn: {first:?}");
        }
        Ok(got)
    }

    /// Jobs of open lanes that wait and are no suspects.
    fn eligible(&self, open: &[&LaneClaim], wanted: impl Fn(u64) -> bool) -> Eligible {
        let mut eligible = Eligible::new();
        let mut jobs: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.waits() && !job.is_suspect() && wanted(job.due()))
            .filter(|(_, job)| open.iter().any(|of| of.lane == job.lane()))
            .collect();
        jobs.sort_unstable_by_key(|(_, job)| (job.due(), job.order));
        for (key, job) in jobs {
            let of_priority = eligible.entry(job.job.priority).or_default();
            of_priority.entry(job.lane()).or_default().push(key.clone());
        }
        eligible
    }

    fn take(&mut self, got: &ClaimedJob, now_ms: u64) {
        let Some(job) = self.jobs.get_mut(&key_of(got)) else { return };
        job.record = Some(got.lease.record);
        job.spot = Spot::Leased(Taken {
            lease: got.lease.clone(),
            attempt: got.attempt,
            max: got.max_attempts,
            claimed_ms: now_ms,
            recall: None,
            maybe_recalled: false,
        });
    }

    /// The earliest due time of what is left and may be claimed.
    pub(super) fn next_due(&self, open: &[&LaneClaim], suspects: bool) -> Option<u64> {
        let left = self.jobs.values().filter(|job| job.waits() && (suspects || !job.is_suspect()));
        let of_open = left.filter(|job| open.iter().any(|of| of.lane == job.lane()));
        of_open.map(|job| job.due()).min()
    }
}

fn key_of(got: &ClaimedJob) -> Key {
    (got.job.queue.clone(), got.job.id.clone())
}

/// How many jobs of each kind may still be in a claim, and how many turns each has.
struct Rooms(BTreeMap<Name, (usize, usize)>);

impl Rooms {
    fn of(open: &[&LaneClaim]) -> Self {
        let bounds =
            |of: &&LaneClaim| (of.kind_max.map_or(usize::MAX, |max| max as usize), of.weight as usize);
        Self(open.iter().map(|of| (of.lane.kind.clone(), bounds(of))).collect())
    }

    fn left(&self, kind: &Name) -> usize {
        self.0.get(kind).map_or(0, |(left, _)| *left)
    }

    fn weight(&self, kind: &Name) -> usize {
        self.0.get(kind).map_or(1, |(_, weight)| *weight)
    }

    fn take<'a>(&mut self, got: impl Iterator<Item = &'a ClaimedJob>) -> Result<()> {
        for job in got {
            let (left, _) = self.0.get_mut(&job.job.kind).context("a kind that nobody asked for")?;
            *left = left.checked_sub(1).with_context(|| format!("too many of {}", job.job.kind))?;
        }
        Ok(())
    }
}

/// The kinds of some lanes, in the order of their first lane, with their lanes.
fn kinds_of<'a>(open: impl Iterator<Item = &'a Lane>) -> Vec<(&'a Name, Vec<&'a Lane>)> {
    let mut kinds: Vec<(&Name, Vec<&Lane>)> = Vec::new();
    for lane in open {
        match kinds.iter_mut().find(|(kind, _)| **kind == lane.kind) {
            Some((_, lanes)) => lanes.push(lane),
            None => kinds.push((&lane.kind, vec![lane])),
        }
    }
    kinds
}

/// As many of each list as its weight says, in turns, while they last.
fn in_turns<T: Clone>(lists: &[(usize, Vec<T>)]) -> Vec<T> {
    let longest = lists.iter().map(|(weight, list)| list.len().div_ceil(*weight)).max().unwrap_or(0);
    let of_turn = |turn| {
        lists.iter().flat_map(move |(weight, list)| list.iter().skip(turn * weight).take(*weight).cloned())
    };
    (0..longest).flat_map(of_turn).collect()
}

/// What one of those that share got, what there was for it, and how many make a turn.
#[derive(Debug)]
struct Share {
    got: usize,
    there: usize,
    weight: usize,
}

/// While somebody has more left, nobody else is further than in the next turn.
fn check_fair(what: &str, shares: &[Share]) -> Result<()> {
    for waits in shares.iter().filter(|share| share.got < share.there) {
        let turn = waits.got / waits.weight + 1;
        let fair = shares.iter().all(|share| share.got <= turn * share.weight);
        ensure!(fair, "the {what} have no fair shares: {shares:?}");
    }
    Ok(())
}

/// As many as were asked for, the urgent first, in fair shares, and in turns where the order counts: those that are
/// held start when each is due.
fn check_shares(
    open: &[&LaneClaim],
    rooms: &mut Rooms,
    eligible: &Eligible,
    got: &[&ClaimedJob],
    want: usize,
    ordered: bool,
) -> Result<()> {
    let there: usize = within(rooms, eligible.values().flatten());
    ensure!(got.len() == want.min(there), "{} jobs, asked for {want} of {there}", got.len());
    let mut rest = got;
    for (priority, lanes) in eligible {
        let here = within(rooms, lanes.iter());
        let (some, others) = rest.split_at(here.min(rest.len()));
        rest = others;
        ensure!(some.iter().all(|c| c.job.priority == *priority), "not all of {priority} came first");
        let keys: Vec<Key> = some.iter().map(|c| key_of(c)).collect();
        // Whether a lane that has nothing takes part in the order of the kinds, nobody has said.
        let all = kinds_of(open.iter().map(|of| &of.lane));
        let busy = kinds_of(open.iter().map(|of| &of.lane).filter(|lane| lanes.contains_key(lane)));
        let expected = [turns(rooms, &all, lanes, &keys)?, turns(rooms, &busy, lanes, &keys)?];
        ensure!(!ordered || expected.contains(&keys), "the order is {keys:?}, expected one of {expected:?}");
        rooms.take(some.iter().copied())?;
    }
    Ok(())
}

/// How many of these jobs there is room for.
fn within<'a>(rooms: &Rooms, lanes: impl Iterator<Item = (&'a Lane, &'a Vec<Key>)>) -> usize {
    let mut of_kinds: BTreeMap<&Name, usize> = BTreeMap::new();
    for (lane, jobs) in lanes {
        *of_kinds.entry(&lane.kind).or_default() += jobs.len();
    }
    of_kinds.into_iter().map(|(kind, count)| count.min(rooms.left(kind))).sum()
}

/// What was claimed of one priority, in the order in which kinds and their lanes have their turns.
fn turns(
    rooms: &Rooms,
    kinds: &[(&Name, Vec<&Lane>)],
    there: &BTreeMap<Lane, Vec<Key>>,
    got: &[Key],
) -> Result<Vec<Key>> {
    let (mut of_kinds, mut kind_shares) = (Vec::new(), Vec::new());
    for (kind, lanes) in kinds {
        let (mut of_lanes, mut lane_shares) = (Vec::new(), Vec::new());
        for lane in lanes {
            let there = there.get(lane).map(Vec::as_slice).unwrap_or_default();
            let got: Vec<Key> = got.iter().filter(|key| there.contains(key)).cloned().collect();
            let first = &there[..got.len()];
            ensure!(got == first, "{lane:?} gave {got:?}, expected {first:?}");
            lane_shares.push(Share { got: got.len(), there: there.len(), weight: 1 });
            of_lanes.push((1, got));
        }
        check_fair("lanes of a kind", &lane_shares)?;
        let sum = |of: fn(&Share) -> usize| lane_shares.iter().map(of).sum::<usize>();
        let (got, there) = (sum(|share| share.got), sum(|share| share.there).min(rooms.left(kind)));
        let weight = rooms.weight(kind);
        kind_shares.push(Share { got, there, weight });
        of_kinds.push((weight, in_turns(&of_lanes)));
    }
    check_fair("kinds", &kind_shares)?;
    Ok(in_turns(&of_kinds))
}
