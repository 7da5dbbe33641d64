#!/bin/sh
# A runner with JOBS short jobs (200,000), of which a fifth trap and a tenth run out of time, and RELOADS replacements
# of its handlers (500): what it holds must stay what it was. HOURHAND_SOAK_REDIS=1 does it on Redis.
set -eu
cd "$(dirname "$0")/.."
unset REDIS_URL HOURHAND_STORE HOURHAND_NAMESPACE HOURHAND_HANDLERS || true
HOURHAND_SOAK_JOBS=${1:-200000}
HOURHAND_SOAK_RELOADS=${2:-500}
export HOURHAND_SOAK_JOBS HOURHAND_SOAK_RELOADS
exec cargo test -q -p hourhand --test e2e -- --ignored --nocapture soak_handlers::
