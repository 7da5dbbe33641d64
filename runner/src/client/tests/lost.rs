//! Answers that are lost: nothing is there twice, and the last word counts.

use super::super::fake::RUNNING;
use super::*;

#[tokio::test]
async fn a_job_whose_reply_was_lost_is_there_once_whatever_it_asks_for() {
    for on_conflict in [OnConflict::Keep, OnConflict::Replace, OnConflict::Reschedule, OnConflict::Reject] {
        let world = World::new(Mood::LosesReply, 100);
        // Somebody else's comes in between: the repeat must not change the order.
        world.spooled(with_id("mine", "x", on_conflict)).await;
        world.door.be(Mood::Up);
        world.door.take(&[with_id("theirs", "y", OnConflict::Keep)]).expect("taken");
        assert_eq!(world.drain().await, Drained { sent: 1, ..Drained::default() }, "{on_conflict:?}");
        assert_eq!(world.door.payloads(), ["mine", "theirs"], "{on_conflict:?}");
    }
    let world = World::new(Mood::LosesReply, 100);
    world.spooled(job("no id")).await;
    world.door.be(Mood::Up);
    world.drain().await;
    assert_eq!(world.door.payloads(), ["no id"]);
}

#[tokio::test]
async fn of_two_replacements_in_one_call_the_later_one_counts_after_a_lost_reply_too() {
    let both = [with_id("v1", "x", OnConflict::Replace), with_id("v2", "x", OnConflict::Replace)];
    let world = World::new(Mood::LosesReply, 100);
    world.client.enqueue(&both).await.expect("spooled");
    assert_eq!(world.door.payloads(), ["v2"]);
    world.door.take(&[with_id("theirs", "y", OnConflict::Keep)]).expect("taken");
    world.door.be(Mood::Up);
    assert_eq!(world.drain().await, Drained { sent: 2, ..Drained::default() });
    assert_eq!(world.door.payloads(), ["v2", "theirs"], "neither came again");
    let world = World::new(Mood::LosesOne, 100);
    world.client.enqueue(&both).await.expect("stored");
    assert_eq!(world.door.payloads(), ["v2"]);
    // The later one was sent, and the earlier one was not.
    let world = World::new(Mood::Up, 100);
    let [v1, v2] = &prepare::with_ids(&both).expect("ids")[..] else { panic!("two") };
    world.spool.append("fake", std::slice::from_ref(v1), false, false).expect("room");
    world.spool.append("fake", std::slice::from_ref(v2), true, false).expect("room");
    world.door.take(std::slice::from_ref(v2)).expect("taken");
    assert_eq!(world.drain().await.sent, 2);
    assert_eq!(world.door.payloads(), ["v2"]);
}

#[tokio::test]
async fn a_link_that_is_too_slow_for_a_batch_is_drained_all_the_same() {
    let world = World::new(Mood::Full, 100);
    let hows = [OnConflict::Replace, OnConflict::Keep, OnConflict::Reject];
    let jobs: Vec<NewJob> = (0..20).map(|n| with_id(&n.to_string(), &n.to_string(), hows[n % 3])).collect();
    world.client.enqueue(&jobs).await.expect("spooled");
    world.door.be(Mood::Slow);
    assert_eq!(world.drain().await, Drained { sent: 20, ..Drained::default() });
    assert!(world.door.payloads().into_iter().eq((0..20).map(|n| n.to_string())), "in order, each once");
    assert_eq!(world.spool.list(0, 10).expect("a list"), []);
}

#[tokio::test]
async fn a_reschedule_that_may_have_been_done_is_not_set_aside() {
    let world = World::new(Mood::Up, 100);
    world.stored(with_id("theirs", "x", OnConflict::Keep)).await;
    world.door.be(Mood::LosesReply);
    world.spooled(with_id("", "x", OnConflict::Reschedule)).await;
    // It was due, and runs.
    world.door.jobs.lock()[0].payload = RUNNING.into();
    world.spooled(with_id("", "x", OnConflict::Reschedule)).await;
    world.door.be(Mood::Up);
    let drained = world.drain().await;
    assert_eq!(drained, Drained { sent: 1, set_aside: 1, left: false }, "the second never was there");
    // A drain that found no room has not brought one in.
    world.door.be(Mood::Full);
    world.spooled(with_id("", "x", OnConflict::Reschedule)).await;
    assert!(matches!(world.client.drain(None, false).await, Err(DrainError::Store(StoreError::Full(_)))));
    world.door.be(Mood::Up);
    assert_eq!(world.drain().await, Drained { set_aside: 1, ..Drained::default() });
}

#[tokio::test]
async fn a_refusal_after_a_lost_reply_leaves_open_what_became_of_the_jobs() {
    let world = World::new(Mood::LosesThenRefuses, 100);
    let error = world.client.enqueue(&[job("1")]).await.expect_err("refused");
    assert!(error.is_unsure(), "{error}");
    assert!(error.to_string().contains("an answer was lost, and now: store refused: not you"), "{error}");
    assert_eq!(world.door.payloads(), ["1"]);
}

#[tokio::test]
async fn a_drain_that_dies_after_the_stores_answer_is_repeated_without_harm() {
    for on_conflict in [OnConflict::Keep, OnConflict::Reject, OnConflict::Replace] {
        let world = World::new(Mood::Full, 100);
        for id in ["a", "b", "c"] {
            world.spooled(with_id(id, id, on_conflict)).await;
        }
        // The reply is lost, and what the drain knew is lost with it.
        world.door.be(Mood::LosesReply);
        let died = world.client.drain(None, false).await;
        assert!(matches!(died, Err(DrainError::Store(StoreError::Unreachable(_)))), "{died:?}");
        assert_eq!(world.door.payloads(), ["a"], "a drain begins with one");
        world.door.take(&[with_id("theirs", "y", OnConflict::Keep)]).expect("taken");
        world.door.be(Mood::Up);
        assert_eq!(world.drain().await, Drained { sent: 3, ..Drained::default() });
        assert_eq!(world.door.payloads(), ["a", "theirs", "b", "c"], "a is where it was");
    }
}
