//! What a run can end in, what reaches the record, and what one job leaves for the next: nothing.

mod guests;

use std::sync::Arc;

use bytes::Bytes;
use guests::*;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{JobLog, Limits, StopSignal};
use wasm_encoder::{Instruction as I, ValType};

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
