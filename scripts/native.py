#!/usr/bin/env python3
"""What a handler that computes costs beside the same code run natively: `thumbnail`, with and without SIMD.

Builds the example natively and as modules with the same settings, and runs each on the same photographs in turns, in a fresh sandbox.
Medians of ROUNDS runs, and their ratio. `make bench-native` calls it, once release build, photographs and guests are there.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

ROUNDS = 15
TOP = pathlib.Path(__file__).resolve().parent.parent
OUT = TOP / "target" / "native"
STACK = "-Clink-arg=-zstack-size=131072"
# How the module is built; the first is how `make guests` builds it.
MODULES = {
    "as shipped": ("s", STACK),
    "speed": ("3", STACK),
    "speed, SIMD": ("3", STACK + " -Ctarget-feature=+simd128"),
}


def cargo(level, flags, *arguments):
    env = {key: value for key, value in os.environ.items() if not key.startswith(("HOURHAND", "CARGO_"))}
    env |= {"CARGO_PROFILE_RELEASE_OPT_LEVEL": level, "RUSTFLAGS": flags}
    command = ["cargo", *arguments, "--locked", "--quiet", "--release", "--package", "thumbnail"]
    subprocess.run(command, cwd=TOP / "guest-examples", env=env, check=True)


def build_native(level):
    folder = OUT / f"native-{level}"
    cargo(level, "", "build", "--example", "native", "--target-dir", str(folder))
    return folder / "release" / "examples" / "native"


def build_module(name, level, flags):
    folder = OUT / name.replace(", ", "-").replace(" ", "-")
    cargo(level, flags, "build", "--lib", "--target", "wasm32-wasip1", "--target-dir", str(folder))
    module = folder / "thumbnail.wasm"
    module.write_bytes((folder / "wasm32-wasip1" / "release" / "thumbnail.wasm").read_bytes())
    return module


def run_native(binary, picture):
    said = subprocess.run([binary, picture], check=True, capture_output=True, text=True).stdout
    return float(said.split()[-1])


def run_module(module, picture):
    command = [TOP / "target" / "release" / "hourhand", "handler", "run", module, "--payload-file", picture, "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if said["outcome"] != "completed":
        sys.exit(f"{module} did not complete: {said['error']}")
    return said["duration_ms"]


def main():
    natives = {level: build_native(level) for level in ("s", "3")}
    modules = {name: (level, build_module(name, level, flags)) for name, (level, flags) in MODULES.items()}
    print(f"milliseconds a picture, medians of {ROUNDS}; the ratio is to the native program of the same optimisation level")
    for picture in sorted((TOP / "target" / "photographs").iterdir()):
        took = {level: run_native(binary, picture) for level, binary in natives.items()}
        line = [f"native s {took['s']:.1f}, 3 {took['3']:.1f}"]
        for name, (level, module) in modules.items():
            ms = statistics.median(run_module(module, picture) for _ in range(ROUNDS))
            line.append(f"{name} {ms:.1f} ({ms / took[level]:.2f} times)")
        print(f"{picture.name}: " + "; ".join(line), flush=True)


main()
