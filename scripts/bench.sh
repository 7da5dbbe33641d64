#!/bin/sh
# Measures this machine in release mode: see docs/performance.md for what the figures mean.
set -eu
cd "$(dirname "$0")/.."
unset REDIS_URL || true
cargo bench -q -p hourhand --bench store
exec cargo bench -q -p hourhand --bench runner -- "$@"
