#!/bin/sh
# What a runner costs that is idle, cut off from its store, and flooded, in release mode: docs/performance.md says what the
# figures mean. Each state is looked at for SECONDS (60); the flood has JOBS jobs (200,000).
set -eu
cd "$(dirname "$0")/.."
unset REDIS_URL HOURHAND_STORE HOURHAND_NAMESPACE HOURHAND_HANDLERS || true
HOURHAND_COST_SECONDS=${1:-60}
HOURHAND_COST_JOBS=${2:-200000}
export HOURHAND_COST_SECONDS HOURHAND_COST_JOBS
exec cargo test --release -q -p hourhand --test e2e -- --ignored --nocapture --test-threads=1 cost::
