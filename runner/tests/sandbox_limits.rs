//! Each limit of the sandbox with its reason, by guests that go past it.

mod guests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use guests::*;
use hourhand::clock;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{JobLog, Limits, Sandbox, SandboxConfig, Stop, StopSignal};
use wasm_encoder::{Instruction as I, MemoryType, ValType};

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
fn the_runner_s_memory_cap_ends_the_job_that_comes_too_late_as_no_room() {
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
        assert!(matches!(&late.end, RunEnd::NoRoom(text) if text.contains("memory")), "{late:?}");
        let freed = sandbox.room_freed();
        tokio::pin!(freed);
        let now = tokio::time::timeout(Duration::ZERO, &mut freed).await;
        assert!(now.is_err(), "the holder holds on to its memory");
        stop.stop(Stop::Cancel);
        freed.await;
        assert!(sandbox.has_room());
        assert_eq!(holding.await.unwrap().end, RunEnd::Cancelled);
        sandbox.room_freed().await;
        assert_eq!(sandbox.memory_in_use(), 0);
        assert!(sandbox.has_room());
        let alone =
            sandbox.run(&greedy, job(""), &limits(5_000), StopSignal::new(), Arc::new(JobLog::new(10))).await;
        assert_eq!(alone.end, RunEnd::Completed(Bytes::new()));
    });
}

#[test]
fn there_is_room_only_while_one_more_default_handler_fits() {
    in_a_guest_runtime(async {
        // Each takes 40 MiB and spins: 128 MiB more fit beside one of them, and not beside two.
        for (cap_mib, rooms) in [(200, [true, true, false]), (100, [true, false, false])] {
            let config = SandboxConfig {
                concurrency: 4,
                memory_bytes_total: cap_mib << 20,
                ..SandboxConfig::default()
            };
            let sandbox = Sandbox::new(config).unwrap();
            let mut body = vec![I::I32Const(638), I::MemoryGrow(0), I::Drop];
            body.extend(forever([]));
            body.push(I::Unreachable);
            let holder = sandbox.load("holder", &guest(body).build()).unwrap();
            let stop = StopSignal::new();
            let mut held = Vec::new();
            for (running, room) in rooms.into_iter().enumerate() {
                while sandbox.memory_in_use() < (running as u64) * (40 << 20) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(sandbox.has_room(), room, "{running} run under a cap of {cap_mib} MiB");
                let (sandbox, holder, stop) = (Arc::clone(&sandbox), holder.clone(), stop.clone());
                held.push(tokio::spawn(async move {
                    let log = Arc::new(JobLog::new(10));
                    sandbox.run(&holder, job(""), &limits(60_000), stop, log).await
                }));
            }
            stop.stop(Stop::Cancel);
            for run in held {
                run.await.unwrap();
            }
            assert!(sandbox.has_room());
        }
    });
}

#[test]
fn a_full_pool_is_no_room_and_no_failure() {
    in_a_guest_runtime(async {
        // Its own: the other tests need theirs.
        let config = SandboxConfig { concurrency: CONCURRENCY, ..SandboxConfig::default() };
        let sandbox = Sandbox::new(config).unwrap();
        let module = sandbox.load("sleep", &sleep(u64::MAX, true).build()).unwrap();
        let stop = StopSignal::new();
        // More than the slots and all that may come on top of them.
        let mut running = Vec::new();
        for _ in 0..CONCURRENCY + 16 * 16 + 8 {
            let (sandbox, module, stop) = (Arc::clone(&sandbox), module.clone(), stop.clone());
            running.push(tokio::spawn(async move {
                sandbox.run(&module, job(""), &limits(60_000), stop, Arc::new(JobLog::new(10))).await
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
        assert!(matches!(&released.end, RunEnd::NoRoom(text) if text.contains("pool")), "{released:?}");
        stop.stop(Stop::Release);
        for run in running {
            assert!(matches!(run.await.unwrap().end, RunEnd::Released(_) | RunEnd::NoRoom(_)));
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
        let mib = Limits { output_bytes: 1 << 20, ..limits.clone() };
        let over = run(&guest(ok(0, (1 << 20) + 1)).pages(20), &mib).await;
        let words = "a result of 1048577 bytes is over the output limit 1048576 bytes";
        assert_failed(&over, Reason::Output, words);
        // So large that the host does not even take it over.
        let huge = guest(ok(0, 20 << 20)).pages(400);
        assert_failed(&run(&huge, &limits).await, Reason::Output, "output limit 1000 bytes");
    });
}
