#!/bin/sh
# Runs every fault scenario at full size, one after the other (some half an hour), and prints what was measured. A seed repeats the plan
# of each: `scripts/faults.sh SEED`, and with a part of a scenario's name only that: `scripts/faults.sh SEED kills`.
set -eu
cd "$(dirname "$0")/.."
unset REDIS_URL HOURHAND_STORE HOURHAND_NAMESPACE HOURHAND_HANDLERS HOURHAND_CONFIG || true
[ -z "${1:-}" ] || export HOURHAND_TEST_SEED="$1"
HOURHAND_TEST_FAULTS=full
export HOURHAND_TEST_FAULTS

log=target/faults.log
status=0
cargo test -q -p hourhand --test e2e -- --nocapture --test-threads=1 "faults::${2:-}" >"$log" 2>&1 || status=$?
# What each says of itself; the rest is in the file.
grep -E 'HOURHAND_TEST_SEED|[0-9]+ taken,|killed|lost$|cut back|refused$|noticed|not tried|do not balance|panicked|test result' "$log" | cut -c1-400
[ "$status" -eq 0 ] || echo "faults: a scenario has failed: see $log" >&2
exit "$status"
