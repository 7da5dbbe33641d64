#!/usr/bin/env python3
"""Puts deliberate faults into the stores, one at a time, and fails unless the conformance suite notices each
of them on its store. The faults are beside this file: those in the Lua scripts in mutants.json, those in the
SQL of the embedded store in sql_mutants.json.

A fault is put in while the suite runs (HOURHAND_MUTANT and HOURHAND_SQL_MUTANT, read by the suite's beds alone); no
file is changed and nothing is built again. A fault under which every test fails proves nothing, because the
store itself is broken then, so that is a failure too.

usage: tests/mutants/run.py [words that store, rule and description together must contain]
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STORES = {"redis": ("mutants.json", "HOURHAND_MUTANT"), "sqlite": ("sql_mutants.json", "HOURHAND_SQL_MUTANT")}
# The bulk tests take half of the suite's time and find nothing that the others do not; of the runs against the
# model two are enough.
SKIP = ["a_hundred_thousand_due_jobs", "operators_verbs_take_thousands", "a_lost_runner_with_thousands",
        "dead_letters_without_a_cap", "ten_thousand_and_fifty_dead_letters", *(f"model_{run}" for run in range(3, 9))]
PATIENCE_SECONDS = 180


def build() -> str:
    """Builds the suite, and returns the path of its program."""
    command = ["cargo", "test", "-p", "hourhand", "--test", "conformance", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "conformance":
            return message["executable"]
    raise SystemExit("cargo named no program for the conformance suite")


def faults(store: str) -> list[dict]:
    """The faults of a store, each with what its bed wants to hear."""
    faults = json.loads((HERE / STORES[store][0]).read_text())
    for fault in faults:
        fault["told"] = json.dumps([fault[part] for part in ("file", "find", "replace") if part in fault])
    return faults


def run(program: str, store: str, fault: dict | None) -> tuple[int, int, list[str]]:
    """Runs the suite on one store; how many tests passed, how many failed, and which."""
    environment = dict(os.environ, RUST_BACKTRACE="0")
    for _, variable in STORES.values():
        environment.pop(variable, None)
    if fault:
        environment[STORES[store][1]] = fault["told"]
    command = [program, f"{store}::", f"{store}_", *(word for test in SKIP for word in ("--skip", test))]
    try:
        ran = subprocess.run(command, cwd=ROOT, env=environment, timeout=PATIENCE_SECONDS,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return 1, 1, ["(the suite did not end)"]
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", ran.stdout, re.MULTILINE)
    passed = re.findall(r"^test (\S+) \.\.\. ok$", ran.stdout, re.MULTILINE)
    return len(passed), len(failed), failed


def try_store(program: str, store: str, wanted: list[dict]) -> int:
    """Tries each fault on its store; how many were not caught."""
    passed, failed, names = run(program, store, None)
    if failed or not passed:
        print(f"without a fault the suite fails on {store}: {', '.join(names)}")
        return len(wanted)
    survivors = 0
    for fault in wanted:
        passed, failed, names = run(program, store, fault)
        if failed and passed:
            verdict = f"caught by {failed}: {names[0].removeprefix(store + '::')}"
        elif failed:
            verdict, survivors = "BROKEN: every test fails, which proves nothing", survivors + 1
        else:
            verdict, survivors = "SURVIVED", survivors + 1
        print(f"{store}: {fault['rule']}: {fault['what']}: {verdict}", flush=True)
    return survivors


def main() -> int:
    words = sys.argv[1:]
    program = build()
    tried, survivors = 0, 0
    for store in STORES:
        wanted = [f for f in faults(store) if all(word in f"{store} {f['rule']} {f['what']}" for word in words)]
        if wanted:
            survivors += try_store(program, store, wanted)
            tried += len(wanted)
    print(f"{tried} faults, {survivors} not caught")
    return 1 if survivors or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
