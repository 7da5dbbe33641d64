#!/bin/sh
# Compiles a command: build.sh SOURCE.c TARGET.wasm, with the C compiler of Zig (the PyPI package ziglang) from ./venv, or with
# another whose WASI library is of 2023 or newer: CC=/opt/wasi-sdk/bin/clang.
set -eu
[ $# -eq 2 ] || { echo "usage: build.sh SOURCE.c TARGET.wasm" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
staged=$(dirname "$2")/.$(basename "$2").staged
# A small stack keeps the data near the beginning of the memory, where a runner's pool keeps it warm between jobs.
# shellcheck disable=SC2086 # a command and its arguments
${CC:-$here/venv/bin/python -m ziglang cc} --target=wasm32-wasi -O2 -s -Wall -Wl,-z,stack-size=131072 -o "$staged" "$1"
# Under another name first: a runner that watches the folder never sees half of it.
mv "$staged" "$2"
