//! The books themselves: what they must let pass, and what they must find.

use serde_json::json;

use super::*;
use crate::harness::dice::Dice;
use crate::harness::ledger::Mix;

struct Scene {
    dir: tempfile::TempDir,
    ledger: Ledger,
    records: Vec<Value>,
}

impl Scene {
    /// One job that was taken, delayed by 100 ms, and has completed with the nonce `n1`.
    fn new(answer: Answer) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let ledger = Ledger::new(dir.path().join("ledger"));
        let mut order =
            Order::draw(&mut Dice::new(1), "a".to_owned(), Mix { varied: false, ..Mix::default() });
        (order.delay_ms, order.asked_us, order.answered_us, order.answer) =
            (100, 1_000_000, 1_010_000, answer);
        ledger.enter([order]);
        let result = json!({"key": "a", "nonce": "n1"}).to_string();
        let payload = json!({"key": "a"}).to_string();
        let records = vec![json!({"id": "i", "state": "completed", "payload": payload, "result": result})];
        Self { dir, ledger, records }
    }

    fn ran(&self, attempt: u32, start_us: u64, nonce: &str, end: &str) {
        let path = self.dir.path().join("ledger").join(format!("a~{attempt}~0.1~{start_us}~{nonce}~i"));
        std::fs::write(path, end).expect("written");
    }

    fn fails_with(&self, part: &str) {
        let (_, complaints) = compare(&self.ledger, &self.records);
        assert!(complaints.iter().any(|text| text.contains(part)), "{complaints:?}");
    }
}

#[test]
fn a_job_that_ran_once_balances_and_one_that_is_missing_does_not() {
    let mut scene = Scene::new(Answer::Taken);
    scene.ran(1, 1_100_000, "n1", "done 1200000");
    assert_eq!(balance(&scene.ledger, &scene.records).completed, 1);
    let record = scene.records.pop();
    scene.fails_with("a was taken and is not there");
    scene.ledger.cut(1_010_001, 1_020_000);
    scene.fails_with("a was taken and is not there");
    scene.ledger.cut(1_010_000, 1_020_000);
    assert_eq!(balance(&scene.ledger, &scene.records).forgotten, 1);
    scene.records.extend([record.clone(), record].into_iter().flatten());
    scene.fails_with("a is there twice");
}

#[test]
fn a_second_run_needs_a_fault_of_its_runner_while_the_first_was_under_way() {
    let scene = Scene::new(Answer::Taken);
    scene.ran(1, 1_100_000, "n0", "");
    scene.ran(2, 5_000_000, "n1", "done 5100000");
    scene.fails_with("a ran again without a reason");
    scene.ledger.excuse_until(Some("0.2"), 1_150_000, 1_160_000);
    scene.fails_with("a ran again without a reason");
    scene.ledger.excuse_until(Some("0.1"), 900_000, 1_000_000);
    scene.fails_with("a ran again without a reason");
    scene.ledger.excuse_until(Some("0.1"), 1_150_000, 1_160_000);
    assert_eq!(balance(&scene.ledger, &scene.records).again, 1);
}

#[test]
fn an_early_run_one_that_never_ended_and_one_that_was_refused_are_found() {
    let scene = Scene::new(Answer::Taken);
    scene.ran(1, 1_099_000, "n1", "done 1200000");
    scene.fails_with("a ran 1000 us early");
    let scene = Scene::new(Answer::Taken);
    scene.ran(1, 1_100_000, "n1", "");
    scene.fails_with("a is completed with");
    let scene = Scene::new(Answer::Refused);
    scene.ran(1, 1_100_000, "n1", "done 1200000");
    scene.fails_with("a was refused and is \"completed\"");
    let mut scene = Scene::new(Answer::Unsure);
    scene.records.clear();
    assert_eq!(balance(&scene.ledger, &scene.records).unsure, 1);
    scene.ran(1, 1_100_000, "n1", "done 1200000");
    scene.fails_with("a is not there, but it ran");
}

#[test]
fn a_stepped_clock_is_the_one_that_counts() {
    let scene = Scene::new(Answer::Taken);
    scene.ran(1, 1_100_000, "n1", "done 1200000");
    scene.ledger.stepped(-50_000);
    assert_eq!(balance(&scene.ledger, &scene.records).completed, 1, "the step came later");
    let mut early = Scene::new(Answer::Taken);
    early.ledger = scene.ledger;
    let step = Step { from_us: 1_050_000, offset_us: -50_000 };
    let books = |steps| Books {
        ledger: &early.ledger,
        excuses: vec![],
        steps,
        complaints: vec![],
        balance: Balance::default(),
    };
    assert_eq!(books(vec![step]).offsets(1_000_000, 1_040_000).collect::<Vec<_>>(), [0]);
    assert_eq!(books(vec![step]).offsets(1_000_000, 1_060_000).collect::<Vec<_>>(), [0, -50_000]);
    assert_eq!(books(vec![step]).offsets(1_055_000, 1_060_000).collect::<Vec<_>>(), [-50_000]);
    let order = &early.ledger.orders()[0];
    assert_eq!(books(vec![]).reached(order), 1_110_000);
    assert_eq!(books(vec![step]).reached(order), 1_160_000, "set back: it waits");
    let ahead = Step { from_us: 1_070_000, offset_us: 3_600_000_000 };
    assert_eq!(books(vec![step, ahead]).reached(order), 1_070_000, "set forward: it is due at once");
}
