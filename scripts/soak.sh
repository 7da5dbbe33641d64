#!/bin/sh
# Tries the stores against the model with new seeds for SECONDS each (60), both at the same time. A seed that
# fails is printed: HOURHAND_TEST_SEED=<seed> make soak repeats it.
set -eu
cd "$(dirname "$0")/.."
unset REDIS_URL HOURHAND_STORE HOURHAND_NAMESPACE || true
HOURHAND_SOAK_SECONDS=${1:-60}
export HOURHAND_SOAK_SECONDS
exec cargo test -q -p hourhand --test conformance -- --ignored --nocapture soak::
