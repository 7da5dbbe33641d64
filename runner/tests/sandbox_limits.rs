//! Each limit of the sandbox with its reason, by guests that go past it.

mod guests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use guests::{Guest, echo, exit, failure, forever, grow, guest, ok, print, put, recurse, sleep, spin};
use hourhand::clock;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{
    GuestJob, JobLog, Limits, Module, RunReport, Sandbox, SandboxConfig, Stop, StopSignal,
};
use wasm_encoder::{Instruction as I, MemoryType, ValType};

const CONCURRENCY: u32 = 8;

/// One for all tests of this file: building a pool for each would only cost time.
fn sandbox() -> Arc<Sandbox> {
    static SANDBOX: OnceLock<Arc<Sandbox>> = OnceLock::new();
    let config = SandboxConfig { concurrency: CONCURRENCY, ..SandboxConfig::default() };
    Arc::clone(SANDBOX.get_or_init(|| Sandbox::new(config).expect("a sandbox")))
}

fn load(guest: &Guest) -> Module {
    sandbox().load("test", &guest.build()).expect("loads")
}

fn job(payload: impl Into<Bytes>) -> GuestJob {
    GuestJob {
        id: "1".to_owned(),
        kind: "k".to_owned(),
        queue: "k".to_owned(),
        attempt: 1,
        max_attempts: 5,
        enqueued_ms: 1,
        due_ms: 2,
        meta: vec![("a".to_owned(), "b".to_owned())],
        facts: Vec::new(),
        payload: payload.into(),
    }
}

fn limits(timeout_ms: u64) -> Limits {
    Limits { timeout_ms, ..Limits::default() }
}

async fn run_logged(guest: &Guest, limits: &Limits) -> (RunReport, Arc<JobLog>) {
    let log = Arc::new(JobLog::new(limits.log_bytes));
    let module = load(guest);
    let report = sandbox().run(&module, job("hello"), limits, StopSignal::new(), Arc::clone(&log)).await;
    (report, log)
}

async fn run(guest: &Guest, limits: &Limits) -> RunReport {
    run_logged(guest, limits).await.0
}

#[track_caller]
fn assert_failed(report: &RunReport, wanted: Reason, words: &str) {
    match &report.end {
        RunEnd::Failed { reason, message, after_ms: None } if *reason == wanted => {
            assert!(message.contains(words), "{message}");
        }
        other => panic!("wanted {wanted} with {words:?}, got {other:?}"),
    }
}

fn in_a_guest_runtime<F: Future>(body: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap()
        .block_on(body)
}

#[test]
fn a_payload_comes_back_byte_for_byte_and_empty_is_no_result() {
    in_a_guest_runtime(async {
        let module = load(&echo());
        for payload in [vec![], vec![0, 159, 146, 150], vec![7; 1 << 20]] {
            let report = sandbox()
                .run(
                    &module,
                    job(payload.clone()),
                    &limits(5_000),
                    StopSignal::new(),
                    Arc::new(JobLog::new(64)),
                )
                .await;
            assert_eq!(report.end, RunEnd::Completed(Bytes::from(payload)));
            assert!(report.memory_bytes_peak >= 2 << 16);
        }
    });
}

#[test]
fn what_the_handler_says_is_what_it_ends_in() {
    in_a_guest_runtime(async {
        let text = "no such order";
        let said = |case| guest(failure(case, text.len() as i32)).text(text);
        let limits = limits(5_000);
        assert_failed(&run(&said(0), &limits).await, Reason::Error, text);
        for (case, reason) in [(1, Reason::Permanent), (3, Reason::Decode)] {
            let message = text.to_owned();
            assert_eq!(run(&said(case), &limits).await.end, RunEnd::Permanent { reason, message });
        }
        // snooze(1): a second at least. Its number lies where the text's address would.
        let mut body = Vec::new();
        body.extend([put(0, 1), put(8, 2), put(16, 1), put(20, 0)].concat());
        body.push(I::I32Const(guests::RESULT));
        assert_eq!(run(&guest(body), &limits).await.end, RunEnd::Snoozed(1_000));
        // retry(after 90 s)
        let mut body = Vec::new();
        body.extend(
            [put(0, 1), put(8, 0), put(16, guests::TEXT), put(20, 2), put(24, 1), put(32, 90_000)].concat(),
        );
        body.extend([put(36, 0).to_vec(), vec![I::I32Const(guests::RESULT)]].concat());
        let end = run(&guest(body).text("no"), &limits).await.end;
        let wanted =
            RunEnd::Failed { reason: Reason::Error, message: "no".to_owned(), after_ms: Some(90_000) };
        assert_eq!(end, wanted);
    });
}

/// Guests that go on for ever, each in its own way.
fn endless() -> Vec<(&'static str, Guest)> {
    let wait_on_stdin = {
        let mut body = vec![I::I32Const(512), I::I32Const(8192), I::I32Store(guests::at(0))];
        body.extend([I::I32Const(512), I::I32Const(16), I::I32Store(guests::at(4))]);
        body.extend(forever([
            I::I32Const(0),
            I::I32Const(512),
            I::I32Const(1),
            I::I32Const(528),
            I::Call(0),
            I::Drop,
        ]));
        body.push(I::Unreachable);
        guest(body).wasi("fd_read", &[ValType::I32; 4])
    };
    vec![
        ("spins", spin()),
        ("spins in its start function", echo().start(forever([]))),
        ("sleeps for an hour", sleep(3_600_000_000_000, true)),
        ("sleeps for ever", sleep(u64::MAX, true)),
        ("sleeps for nothing, again and again", sleep(0, false)),
        ("sleeps a little, again and again", sleep(1_000_000, false)),
        ("reads an empty stdin, again and again", wait_on_stdin),
        ("prints without end", print(1, &[b'x'; 4096], 0)),
    ]
}

#[test]
fn a_guest_that_goes_on_for_ever_ends_at_its_time_out_however_it_does_it() {
    in_a_guest_runtime(async {
        let others = load(&echo());
        for (what, guest) in endless() {
            let module = load(&guest);
            let started = clock::monotonic();
            let limits = limits(300);
            let endless = async {
                sandbox()
                    .run(&module, job(""), &limits, StopSignal::new(), Arc::new(JobLog::new(1_000)))
                    .await
            };
            // Meanwhile another job gets its turn.
            let other = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                sandbox().run(&others, job("x"), &limits, StopSignal::new(), Arc::new(JobLog::new(10))).await
            };
            let (report, other) = tokio::join!(endless, other);
            let took = clock::monotonic().duration_since(started);
            assert_failed(&report, Reason::Timeout, "300 ms");
            assert_eq!(other.end, RunEnd::Completed(Bytes::from("x")), "beside a guest that {what}");
            // Not about speed: without the limit, none of them ends at all.
            assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(20), "{what}: {took:?}");
        }
        assert_eq!(sandbox().memory_in_use(), 0);
    });
}

#[test]
fn spinning_guests_on_every_thread_stop_neither_timers_nor_other_jobs() {
    in_a_guest_runtime(async {
        let spinning = load(&spin());
        let echo = load(&echo());
        let mut spinners = Vec::new();
        for _ in 0..4 {
            let module = spinning.clone();
            spinners.push(tokio::spawn(async move {
                sandbox()
                    .run(&module, job(""), &limits(1_000), StopSignal::new(), Arc::new(JobLog::new(10)))
                    .await
            }));
        }
        let mut done = 0;
        while !spinners.iter().all(tokio::task::JoinHandle::is_finished) {
            let module = echo.clone();
            let report = tokio::spawn(async move {
                sandbox()
                    .run(&module, job("x"), &limits(5_000), StopSignal::new(), Arc::new(JobLog::new(10)))
                    .await
            });
            assert_eq!(report.await.unwrap().end, RunEnd::Completed(Bytes::from("x")));
            tokio::time::sleep(Duration::from_millis(5)).await;
            done += 1;
        }
        assert!(done >= 5, "only {done} jobs got a turn in a second");
        for spinner in spinners {
            assert_failed(&spinner.await.unwrap(), Reason::Timeout, "1000 ms");
        }
    });
}

#[test]
fn a_stop_reaches_a_guest_that_computes_and_one_that_sleeps() {
    in_a_guest_runtime(async {
        for guest in [spin(), sleep(u64::MAX, true)] {
            let module = load(&guest);
            for (why, wanted) in [(Stop::Cancel, None), (Stop::Release, Some("stops"))] {
                let stop = StopSignal::new();
                let given = stop.clone();
                let log = Arc::new(JobLog::new(10));
                let (sandbox, minute) = (sandbox(), limits(60_000));
                let run = sandbox.run(&module, job(""), &minute, stop, log);
                let (report, ()) = tokio::join!(run, async {
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    given.stop(why);
                });
                match (report.end, wanted) {
                    (RunEnd::Cancelled, None) => {}
                    (RunEnd::Released(text), Some(words)) if text.contains(words) => {}
                    (other, _) => panic!("{why:?}: {other:?}"),
                }
            }
        }
        let stopped = StopSignal::new();
        stopped.stop(Stop::Cancel);
        let report =
            sandbox().run(&load(&echo()), job(""), &limits(1_000), stopped, Arc::new(JobLog::new(10))).await;
        assert_eq!(report.end, RunEnd::Cancelled, "stopped before it began");
    });
}

#[test]
fn memory_over_the_limit_reads_as_memory() {
    in_a_guest_runtime(async {
        let limits = Limits { memory_bytes: 64 << 20, ..limits(5_000) };
        // 2 pages are there: 1006 more are 63 MiB, 1038 more are 65 MiB.
        let fits = run(&grow(1_006), &limits).await;
        assert_eq!(fits.end, RunEnd::Completed(Bytes::new()));
        assert_eq!(fits.memory_bytes_peak, 63 << 20);
        for pages in [1_038, 65_533, i32::MAX, -1] {
            assert_failed(&run(&grow(pages), &limits).await, Reason::Memory, "memory limit 64 MiB");
        }
        assert_failed(&run(&echo().pages(2_000), &limits).await, Reason::Memory, "memory limit 64 MiB");
        let tiny = Limits { memory_bytes: 32 << 10, ..limits.clone() };
        assert_failed(&run(&echo(), &tiny).await, Reason::Memory, "memory limit 32 KiB");
        let none = Limits { memory_bytes: 0, ..limits.clone() };
        assert_failed(&run(&echo(), &none).await, Reason::Memory, "memory limit 0 bytes");
        // More than the pool has for anybody.
        let everything = Limits { memory_bytes: u64::MAX, ..limits };
        assert_failed(&run(&grow(60_000), &everything).await, Reason::Memory, "memory limit");
        // The module's own maximum.
        let own =
            MemoryType { minimum: 2, maximum: Some(4), memory64: false, shared: false, page_size_log2: None };
        assert_failed(&run(&grow(10).memory(own), &everything).await, Reason::Memory, "memory limit");
    });
}

#[test]
fn the_limit_is_for_all_memories_and_tables_together() {
    in_a_guest_runtime(async {
        let limits = Limits { memory_bytes: 4 << 20, ..limits(5_000) };
        let grow_both = |pages| {
            let mut body = vec![I::I32Const(pages), I::MemoryGrow(0), I::Drop];
            body.extend([I::I32Const(pages), I::MemoryGrow(1), I::I32Const(-1), I::I32Eq]);
            body.extend([I::If(wasm_encoder::BlockType::Empty), I::Unreachable, I::End]);
            body.extend(ok(0, 0));
            guest(body).second_memory()
        };
        let both = run(&grow_both(30), &limits).await;
        assert_eq!((both.end, both.memory_bytes_peak), (RunEnd::Completed(Bytes::new()), 63 << 16));
        assert_failed(&run(&grow_both(31), &limits).await, Reason::Memory, "memory limit 4 MiB");

        let grow_table = |elements| {
            let null = I::RefNull(wasm_encoder::HeapType::FUNC);
            let mut body = vec![null, I::I32Const(elements), I::TableGrow(0), I::I32Const(-1), I::I32Eq];
            body.extend([I::If(wasm_encoder::BlockType::Empty), I::Unreachable, I::End]);
            body.extend(ok(0, 0));
            guest(body).table()
        };
        assert_eq!(run(&grow_table(50_000), &limits).await.end, RunEnd::Completed(Bytes::new()));
        for elements in [600_000, -1] {
            assert_failed(&run(&grow_table(elements), &limits).await, Reason::Memory, "memory limit 4 MiB");
        }
    });
}

#[test]
fn a_denied_growth_that_the_guest_survives_is_no_failure() {
    in_a_guest_runtime(async {
        let mut body = vec![I::I32Const(60_000), I::MemoryGrow(0), I::Drop];
        body.extend(ok(0, 0));
        assert_eq!(run(&guest(body), &limits(5_000)).await.end, RunEnd::Completed(Bytes::new()));
    });
}

#[test]
fn the_runner_s_memory_cap_releases_the_job_that_comes_too_late() {
    in_a_guest_runtime(async {
        let config =
            SandboxConfig { concurrency: 4, memory_bytes_total: 100 << 20, ..SandboxConfig::default() };
        let sandbox = Sandbox::new(config).unwrap();
        assert!(sandbox.has_room());
        // Takes 80 MiB and sleeps on them; another wants 40.
        let mut body = vec![I::I32Const(1_278), I::MemoryGrow(0), I::Drop];
        body.extend(forever([]));
        body.push(I::Unreachable);
        let holder = sandbox.load("holder", &guest(body).build()).unwrap();
        let greedy = sandbox.load("greedy", &grow(638).build()).unwrap();
        let stop = StopSignal::new();
        let holding = tokio::spawn({
            let (sandbox, stop) = (Arc::clone(&sandbox), stop.clone());
            async move { sandbox.run(&holder, job(""), &limits(60_000), stop, Arc::new(JobLog::new(10))).await }
        });
        while sandbox.memory_in_use() < 80 << 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(!sandbox.has_room(), "{} in use", sandbox.memory_in_use());
        let late =
            sandbox.run(&greedy, job(""), &limits(5_000), StopSignal::new(), Arc::new(JobLog::new(10))).await;
        assert!(matches!(&late.end, RunEnd::Released(text) if text.contains("memory")), "{late:?}");
        stop.stop(Stop::Cancel);
        assert_eq!(holding.await.unwrap().end, RunEnd::Cancelled);
        assert_eq!(sandbox.memory_in_use(), 0);
        assert!(sandbox.has_room());
        let now =
            sandbox.run(&greedy, job(""), &limits(5_000), StopSignal::new(), Arc::new(JobLog::new(10))).await;
        assert_eq!(now.end, RunEnd::Completed(Bytes::new()));
    });
}

#[test]
fn a_full_pool_releases_and_does_not_fail() {
    in_a_guest_runtime(async {
        let module = load(&sleep(u64::MAX, true));
        let stop = StopSignal::new();
        // More than the slots and all that may come on top of them.
        let mut running = Vec::new();
        for _ in 0..CONCURRENCY + 16 * 16 + 8 {
            let (module, stop) = (module.clone(), stop.clone());
            running.push(tokio::spawn(async move {
                sandbox().run(&module, job(""), &limits(60_000), stop, Arc::new(JobLog::new(10))).await
            }));
        }
        // The pool has refused whom it has to by the time that anybody ended.
        let released = loop {
            let ended = running.iter().position(tokio::task::JoinHandle::is_finished);
            match ended {
                Some(at) => break running.remove(at).await.unwrap(),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(matches!(&released.end, RunEnd::Released(text) if text.contains("pool")), "{released:?}");
        stop.stop(Stop::Release);
        for run in running {
            assert!(matches!(run.await.unwrap().end, RunEnd::Released(_)));
        }
    });
}

#[test]
fn endless_recursion_reads_as_stack() {
    in_a_guest_runtime(async {
        for guest in [recurse(), guests::recurse_in_memory()] {
            assert_failed(&run(&guest, &limits(5_000)).await, Reason::Stack, "stack overflow");
        }
    });
}

#[test]
fn a_result_over_the_limit_reads_as_output() {
    in_a_guest_runtime(async {
        let limits = Limits { output_bytes: 1_000, ..limits(5_000) };
        assert!(matches!(run(&guest(ok(0, 1_000)), &limits).await.end, RunEnd::Completed(_)));
        assert_failed(&run(&guest(ok(0, 1_001)), &limits).await, Reason::Output, "output limit 1000 bytes");
        // So large that the host does not even take it over.
        let huge = guest(ok(0, 20 << 20)).pages(400);
        assert_failed(&run(&huge, &limits).await, Reason::Output, "output limit 1000 bytes");
    });
}

#[test]
fn exit_zero_completes_and_any_other_code_is_shown() {
    in_a_guest_runtime(async {
        assert_eq!(run(&exit(0), &limits(5_000)).await.end, RunEnd::Completed(Bytes::new()));
        assert_failed(&run(&exit(7), &limits(5_000)).await, Reason::Exit, "exit code 7");
    });
}

#[test]
fn a_panic_report_reaches_the_record_with_its_place() {
    in_a_guest_runtime(async {
        let report = |len: i32| {
            guest([
                I::I32Const(guests::TEXT),
                I::I32Const(len),
                I::I32Const(guests::TEXT),
                I::I32Const(8),
                I::I32Const(42),
                I::Call(0),
                I::Unreachable,
            ])
            .import("hourhand:job/host@0.1.0", "report-panic", &[ValType::I32; 5], &[])
        };
        let text = "main.rs: bad id 7";
        let end = run(&report(text.len() as i32).text(text), &limits(5_000)).await;
        assert_failed(&end, Reason::Panic, "main.rs::42: main.rs: bad id 7");
        let long = "main.rs:".to_owned() + &"x".repeat(60_000);
        let end = run(&report(long.len() as i32).text(&long), &limits(5_000)).await;
        assert_failed(&end, Reason::Panic, "(cut)");
        let RunEnd::Failed { message, .. } = end.end else { unreachable!() };
        assert!(message.len() <= 4096);
        // Without our hook, Rust says it on stderr.
        let printed =
            "thread 'main' panicked at src/lib.rs:7:9:\nbad id 8\nnote: run with `RUST_BACKTRACE=1`\n";
        let mut trapping = print(2, printed.as_bytes(), 1);
        trapping = trapping.then_unreachable();
        let end = run(&trapping, &limits(5_000)).await;
        assert_failed(&end, Reason::Panic, "panicked at src/lib.rs:7:9:\nbad id 8");
    });
}

#[test]
fn every_trap_leaves_the_host_alive_and_names_itself() {
    in_a_guest_runtime(async {
        let traps: Vec<(&str, Vec<I<'static>>)> = vec![
            ("unreachable", vec![I::Unreachable]),
            ("divide by zero", vec![I::I32Const(1), I::I32Const(0), I::I32DivU]),
            ("out of bounds memory", vec![I::I32Const(-1), I::I32Load(guests::at(0))]),
            ("integer overflow", vec![I::I32Const(i32::MIN), I::I32Const(-1), I::I32DivS]),
            ("invalid conversion", vec![I::F32Const(f32::NAN.into()), I::I32TruncF32S]),
        ];
        for (words, body) in traps {
            assert_failed(&run(&guest(body), &limits(5_000)).await, Reason::Trap, words);
        }
        // A result that lies outside of its memory, and one that is no valid record.
        assert_failed(&run(&guest(ok(-64, 1_000)), &limits(5_000)).await, Reason::Trap, "");
        assert_failed(&run(&guest([I::I32Const(-8)]), &limits(5_000)).await, Reason::Trap, "");
    });
}

#[test]
fn a_trap_between_two_successes_changes_nothing() {
    in_a_guest_runtime(async {
        let (good, bad) = (load(&echo()), load(&guest([I::Unreachable])));
        for round in 0..1_000 {
            let log = || Arc::new(JobLog::new(10));
            let report = sandbox().run(&bad, job(""), &limits(5_000), StopSignal::new(), log()).await;
            assert_failed(&report, Reason::Trap, "unreachable");
            let payload = format!("{round}");
            let report =
                sandbox().run(&good, job(payload.clone()), &limits(5_000), StopSignal::new(), log()).await;
            assert_eq!(report.end, RunEnd::Completed(Bytes::from(payload)));
        }
    });
}

#[test]
fn no_job_sees_what_another_left_in_memory() {
    in_a_guest_runtime(async {
        // Returns 64 KiB of its memory as it found them, then fills them, and some memory that it grew.
        const PLACE: i32 = 70_000;
        let dirty = {
            let mut body = vec![I::I32Const(16), I::MemoryGrow(0), I::Drop];
            body.extend([
                // The first byte that is not zero ends the job.
                I::I32Const(PLACE),
                I::I64Load(guests::at(0)),
                I::I32Const(3 << 16),
                I::I64Load(guests::at(0)),
                I::I64Or,
                I::I64Const(0),
                I::I64Ne,
                I::If(wasm_encoder::BlockType::Empty),
                I::Unreachable,
                I::End,
                I::I32Const(PLACE),
                I::I32Const(0xAA),
                I::I32Const(50_000),
                I::MemoryFill(0),
                I::I32Const(2 << 16),
                I::I32Const(0xAA),
                I::I32Const(16 << 16),
                I::MemoryFill(0),
            ]);
            body.extend(ok(0, 0));
            guest(body)
        };
        let module = load(&dirty);
        for _ in 0..200 {
            let report = sandbox()
                .run(&module, job(""), &limits(5_000), StopSignal::new(), Arc::new(JobLog::new(10)))
                .await;
            assert_eq!(report.end, RunEnd::Completed(Bytes::new()), "memory was not zero at the start");
        }
    });
}

#[test]
fn printing_too_much_never_fails_and_keeps_both_ends() {
    in_a_guest_runtime(async {
        let (report, log) =
            run_logged(&print(1, b"hello\x1b[0m \xF0\x9F\x98\x80\n", 3), &limits(5_000)).await;
        assert_eq!(report.end, RunEnd::Completed(Bytes::new()));
        assert_eq!(log.text(), "hello\\x1b[0m \u{1F600}\n".repeat(3));
        assert!(log.version() >= 3);

        let limits = Limits { log_bytes: 1_000, ..limits(60_000) };
        // 64 MiB, through the adapter's pieces of 4 KiB.
        let (report, log) = run_logged(&print(2, &[b'y'; 65_536 - 2_048], 1_058).pages(4), &limits).await;
        assert_eq!(report.end, RunEnd::Completed(Bytes::new()));
        let text = log.text();
        assert!(text.len() < 1_100 && text.contains("bytes cut"), "{} bytes", text.len());
    });
}

#[test]
fn log_lines_carry_their_level_and_stand_on_lines_of_their_own() {
    in_a_guest_runtime(async {
        let mut body = vec![I::I32Const(1), I::I32Const(guests::TEXT), I::I32Const(5), I::Call(0)];
        body.extend(ok(0, 0));
        let logging =
            guest(body).text("paid!").import("hourhand:job/host@0.1.0", "log", &[ValType::I32; 3], &[]);
        let (report, log) = run_logged(&logging, &limits(5_000)).await;
        assert_eq!(report.end, RunEnd::Completed(Bytes::new()));
        assert_eq!(log.text(), "WARN paid!\n");
    });
}
