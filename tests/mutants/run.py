#!/usr/bin/env python3
"""Puts deliberate faults into the Lua scripts, one at a time, and fails unless the conformance suite
notices each of them. The faults are in mutants.json beside this file.

A fault is put in while the suite runs (HOURHAND_MUTANT, read by the suite's Redis bed alone); no file is
changed and nothing is built again. A fault under which every test fails proves nothing, because the script
itself is broken then, so that is a failure too.

usage: tests/mutants/run.py [words that the description must contain]
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# The bulk tests take half of the suite's time and find nothing that the others do not.
SKIP = ["--skip", "::bulk", "--skip", "a_hundred_thousand_due_jobs", "--skip", "dead_letters_without_a_cap"]
PATIENCE_SECONDS = 60


def build() -> str:
    """Builds the suite, and returns the path of its program."""
    command = ["cargo", "test", "-p", "hourhand", "--test", "conformance", "--no-run", "--message-format", "json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "conformance":
            return message["executable"]
    raise SystemExit("cargo named no program for the conformance suite")


def run(program: str, mutant: dict | None) -> tuple[int, int, list[str]]:
    """Runs the suite; how many tests passed, how many failed, and which."""
    environment = dict(os.environ, RUST_BACKTRACE="0")
    environment.pop("HOURHAND_MUTANT", None)
    if mutant:
        environment["HOURHAND_MUTANT"] = json.dumps([mutant["file"], mutant["find"], mutant["replace"]])
    try:
        ran = subprocess.run([program, *SKIP], cwd=ROOT, env=environment, timeout=PATIENCE_SECONDS,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    except subprocess.TimeoutExpired:
        return 1, 1, ["(the suite did not end)"]
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", ran.stdout, re.MULTILINE)
    passed = re.findall(r"^test (\S+) \.\.\. ok$", ran.stdout, re.MULTILINE)
    return len(passed), len(failed), failed


def main() -> int:
    mutants = json.loads((HERE / "mutants.json").read_text())
    words = sys.argv[1:]
    mutants = [m for m in mutants if all(word in m["what"] + m["rule"] for word in words)]
    program = build()
    passed, failed, names = run(program, None)
    if failed or not passed:
        print(f"without a fault the suite fails: {', '.join(names)}")
        return 1
    survivors = 0
    for mutant in mutants:
        passed, failed, names = run(program, mutant)
        if failed and passed:
            verdict = f"caught by {failed}: {names[0].removeprefix('redis::')}"
        elif failed:
            verdict, survivors = "BROKEN: every test fails, which proves nothing", survivors + 1
        else:
            verdict, survivors = "SURVIVED", survivors + 1
        print(f"{mutant['rule']}: {mutant['what']}: {verdict}", flush=True)
    print(f"{len(mutants)} faults, {survivors} not caught")
    return 1 if survivors or not mutants else 0


if __name__ == "__main__":
    sys.exit(main())
