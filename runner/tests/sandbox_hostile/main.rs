//! Modules that lie to their host, one for each place in `wit/` where a lie can stand: addresses, lengths, cases and texts in what they pass and
//! return, memory that they give, and calls at moments when there are none. The list is made from `wit/job.wit`: a new function is
//! tried without a line here. Each job fails with a reason of its own, and the sandbox runs the next one.

#[path = "../guests/mod.rs"]
mod guests;
#[allow(unreachable_pub, reason = "a part of this test")]
mod wit;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use guests::*;
use hourhand::outcome::{Reason, RunEnd};
use hourhand::sandbox::{JobLog, StopSignal};
use wasm_encoder::{Instruction as I, ValType};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Type};

use wit::*;

/// A call of an imported function, with its core signature.
struct Call {
    name: String,
    module: &'static str,
    function: &'static str,
    params: Vec<WasmType>,
    results: Vec<ValType>,
    /// The last argument is the address for the answer.
    answers_at: bool,
}

impl Call {
    fn of(wit: &Wit, interface: &str, function: &Function) -> Self {
        let signature = wit.resolve.wasm_signature(AbiVariant::GuestImport, function);
        Self {
            name: format!("{interface}.{}", function.name),
            module: interface.to_owned().leak(),
            function: function.name.clone().leak(),
            results: signature.results.iter().map(|ty| val(*ty)).collect(),
            answers_at: signature.retptr,
            params: signature.params,
        }
    }

    /// Harmless arguments: nothing everywhere, and a good place for the answer.
    fn arguments(&self, by_address: bool) -> Vec<i32> {
        let mut arguments = vec![0; self.params.len()];
        if by_address {
            arguments[0] = ARGUMENTS as i32;
        }
        if let Some(last) = arguments.last_mut().filter(|_| self.answers_at) {
            *last = ANSWER;
        }
        arguments
    }

    /// Calls function 0 with these, and forgets what it returned.
    fn code(&self, arguments: &[i32]) -> Vec<I<'static>> {
        let mut body: Vec<I<'static>> =
            self.params.iter().zip(arguments).map(|(ty, value)| constant(*ty, *value)).collect();
        body.push(I::Call(0));
        body.extend(self.results.iter().map(|_| I::Drop));
        body
    }

    /// A guest whose handler runs this, and completes if it comes to that.
    fn guest(&self, code: Vec<I<'static>>) -> Guest {
        let params: Vec<ValType> = self.params.iter().map(|ty| val(*ty)).collect();
        let body = [code, ok(0, 0)].concat();
        guest(body).text(NONSENSE).import(self.module, self.function, &params, &self.results)
    }
}

/// Runs one, which must fail by itself and for a reason, and a good one after it.
async fn must_fail(what: &str, hostile: &Guest) {
    let module =
        sandbox().load("hostile", &hostile.build()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = || Arc::new(JobLog::new(1_000));
    let report = sandbox().run(&module, job("x"), &limits(5_000), StopSignal::new(), log()).await;
    match &report.end {
        RunEnd::Failed { reason, message, .. } => {
            // Some ask for what nobody grants before they lie.
            let denied = *reason == Reason::Denied && message.contains(" (after: ");
            assert!(*reason == Reason::Trap || denied, "{what}: {reason}: {message}");
            assert!(!message.is_empty() && !message.contains("the sandbox itself"), "{what}: {message}");
        }
        other => panic!("{what}: {other:?}"),
    }
    let good = load(&echo());
    let report = sandbox().run(&good, job("y"), &limits(5_000), StopSignal::new(), log()).await;
    assert_eq!(report.end, RunEnd::Completed(Bytes::from("y")), "after {what}");
}

#[test]
fn every_import_withstands_bad_addresses_lengths_cases_and_texts() {
    let wit = wit();
    in_a_guest_runtime(async {
        let mut tried = BTreeSet::new();
        for (interface, function) in wit.functions(true) {
            let call = Call::of(&wit, &interface, &function);
            let by_address = wit.resolve.wasm_signature(AbiVariant::GuestImport, &function).indirect_params;
            let types: Vec<Type> = function.params.iter().map(|param| param.ty).collect();
            let placed = if by_address { wit.fields(&types, 0, &[]) } else { Vec::new() };
            for placed in &placed {
                for lie in lies(placed.spot) {
                    let code = [put_lie(placed, ARGUMENTS, lie), call.code(&call.arguments(true))].concat();
                    must_fail(&format!("{}: {} at {placed:?}", call.name, lie.0), &call.guest(code)).await;
                }
            }
            let by_value = if by_address { Vec::new() } else { wit.by_value(&function) };
            for (position, spot) in &by_value {
                for (words, first, second) in lies(*spot) {
                    let mut arguments = call.arguments(false);
                    arguments[*position] = first;
                    if let Spot::List { .. } = spot {
                        arguments[position + 1] = second;
                    }
                    let what = format!("{}: {words} in argument {position}", call.name);
                    must_fail(&what, &call.guest(call.code(&arguments))).await;
                }
            }
            if by_address {
                for address in [-16, ARGUMENTS as i32 + 1] {
                    let mut arguments = call.arguments(true);
                    arguments[0] = address;
                    must_fail(
                        &format!("{}: arguments at {address}", call.name),
                        &call.guest(call.code(&arguments)),
                    )
                    .await;
                }
            }
            if call.answers_at {
                for address in [-16, ANSWER + 1] {
                    let mut arguments = call.arguments(by_address);
                    *arguments.last_mut().unwrap() = address;
                    must_fail(
                        &format!("{}: an answer at {address}", call.name),
                        &call.guest(call.code(&arguments)),
                    )
                    .await;
                }
            }
            tried.insert(function.name.clone());
        }
        assert!(tried.contains("enqueue") && tried.contains("increment") && tried.contains("log"));
    });
}

/// What a module's allocator can do to its host.
fn bad_allocators() -> Vec<(&'static str, Vec<I<'static>>)> {
    vec![
        ("memory beyond the memory", vec![I::I32Const(-16)]),
        ("memory that ends beyond the memory", vec![I::I32Const((2 << 16) - 1)]),
        (
            "memory that is not aligned",
            vec![I::I32Const(ANSWER), I::LocalGet(2), I::I32Add, I::I32Const(1), I::I32Sub],
        ),
        ("a trap instead of memory", vec![I::Unreachable]),
    ]
}

#[test]
fn every_answer_withstands_a_module_that_gives_bad_memory_for_it() {
    let wit = wit();
    in_a_guest_runtime(async {
        let mut tried = 0;
        for (interface, function) in wit.functions(true) {
            // Only what answers with texts or lists wants memory.
            let answers = function.result.as_ref().is_some_and(|ty| {
                wit.placed(ty, 0, &[]).iter().any(|placed| matches!(placed.spot, Spot::List { .. }))
            });
            if !answers {
                continue;
            }
            tried += 1;
            let call = Call::of(&wit, &interface, &function);
            let by_address = wit.resolve.wasm_signature(AbiVariant::GuestImport, &function).indirect_params;
            let mut allocators = bad_allocators();
            // For a text, any address is aligned.
            allocators.remove(2);
            allocators.push((
                "a call of the host instead of memory",
                [call.code(&call.arguments(by_address)), vec![I::I32Const(ANSWER)]].concat(),
            ));
            for (words, realloc) in allocators {
                // The job itself comes into memory before the handler runs: only then the allocator turns bad.
                let turned = [store_byte(100, 1).to_vec(), call.code(&call.arguments(by_address))].concat();
                let hostile = call.guest(turned).realloc(once_turned(realloc));
                must_fail(&format!("{}: {words} for its answer", call.name), &hostile).await;
            }
        }
        assert!(tried >= 6, "{tried}");
    });
}

/// An allocator that is a good one until the byte at 100 is set.
fn once_turned(bad: Vec<I<'static>>) -> Vec<I<'static>> {
    let mut body = vec![I::I32Const(0), I::I32Load8U(at(100)), I::If(wasm_encoder::BlockType::Empty)];
    body.extend(bad);
    body.extend([I::Return, I::End]);
    // Rooms of 256 bytes, one after the other: the job has no larger part.
    body.extend([
        I::I32Const(0),
        I::I32Const(0),
        I::I32Load(at(104)),
        I::I32Const(256),
        I::I32Add,
        I::I32Store(at(104)),
        I::I32Const(65_536),
        I::I32Const(0),
        I::I32Load(at(104)),
        I::I32Add,
    ]);
    body
}

#[test]
fn every_export_withstands_what_a_module_returns_and_gives() {
    let wit = wit();
    in_a_guest_runtime(async {
        let exports = wit.functions(false);
        assert_eq!(exports.len(), 1, "another export: the guests here are made for `handle`");
        let (interface, handle) = &exports[0];
        let name = format!("{interface}.{}", handle.name);
        let result = handle.result.expect("it returns something");
        for placed in wit.placed(&result, 0, &[]) {
            for lie in lies(placed.spot) {
                let body = [put_lie(&placed, RESULT as u64, lie), vec![I::I32Const(RESULT)]].concat();
                let too_large = matches!(placed.spot, Spot::List { .. }) && lie.2 == i32::MAX;
                let hostile = guest(body).text(NONSENSE);
                if too_large {
                    must_end(&format!("{name}: {} at {placed:?}", lie.0), &hostile).await;
                } else {
                    must_fail(&format!("{name}: {} at {placed:?}", lie.0), &hostile).await;
                }
            }
        }
        for address in [-16, RESULT + 1] {
            must_fail(&format!("{name}: a result at {address}"), &guest([I::I32Const(address)])).await;
        }
        must_fail(
            &format!("{name}: a trap after the result"),
            &guest(ok(0, 0)).post_return([I::Unreachable]),
        )
        .await;
        for (words, realloc) in bad_allocators() {
            must_fail(&format!("{name}: {words} for the job"), &guest(ok(0, 0)).realloc(realloc)).await;
        }
    });
}

/// A length that no result may have is over a limit before it is out of bounds.
async fn must_end(what: &str, hostile: &Guest) {
    let module =
        sandbox().load("hostile", &hostile.build()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let log = Arc::new(JobLog::new(1_000));
    let report = sandbox().run(&module, job("x"), &limits(5_000), StopSignal::new(), log).await;
    let RunEnd::Failed { reason: Reason::Trap | Reason::Output, message, .. } = &report.end else {
        panic!("{what}: {:?}", report.end);
    };
    assert!(!message.is_empty() && !message.contains("the sandbox itself"), "{what}: {message}");
}

#[test]
fn nothing_can_be_called_while_the_host_is_at_work_on_the_module() {
    let wit = wit();
    in_a_guest_runtime(async {
        for (interface, function) in wit.functions(true) {
            let call = Call::of(&wit, &interface, &function);
            let by_address = wit.resolve.wasm_signature(AbiVariant::GuestImport, &function).indirect_params;
            let code = call.code(&call.arguments(by_address));
            // While the job is put into its memory, and when its result has been taken.
            let realloc = [code.clone(), vec![I::I32Const(ANSWER)]].concat();
            must_fail(&format!("{} from the allocator", call.name), &call.guest(Vec::new()).realloc(realloc))
                .await;
            must_fail(&format!("{} after the result", call.name), &call.guest(Vec::new()).post_return(code))
                .await;
        }
    });
}

#[test]
fn a_module_may_call_itself_as_often_as_its_stack_lasts() {
    in_a_guest_runtime(async {
        // Its own export is its own function: no way around the host. With imports before it, it has another number.
        let report = run(&recurse(), &limits(5_000)).await;
        assert_failed(&report, Reason::Stack, "stack overflow");
    });
}
