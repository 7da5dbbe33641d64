#!/bin/sh
# Runs every test: with cargo-nextest where it is installed, else with cargo test.
set -eu
cd "$(dirname "$0")/.."
# No test uses a store that it did not start itself.
unset REDIS_URL HOURHAND_STORE HOURHAND_NAMESPACE HOURHAND_HANDLERS HOURHAND_CONFIG HOURHAND_DEV_STORE || true

# What make bench-peers makes of its figures; the queues themselves are measured by hand.
(cd scripts/peers && python3 -m doctest report.py && python3 -m py_compile ./*.py celery/app.py && node --check node/bee.js &&
    node --check node/bullmq.js && node --check node/common.js)

# Tests wait more than they compute: for servers, due times and ends of processes.
threads=$(($(nproc) + 1))
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --workspace --test-threads "$threads"
else
    RUST_TEST_THREADS=$threads cargo test --workspace
fi
cargo test --workspace --doc
cargo test --manifest-path guest-examples/Cargo.toml --workspace --target-dir target/guests-native
