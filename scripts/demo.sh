#!/bin/sh
# Shows real jobs from enqueue to end, on the embedded store in a folder of its own. Ends by itself, needs nothing but
# what `make guests` and `cargo build` have made, and leaves nothing running: not on Ctrl-C or a failure either.
set -eu
cd "$(dirname "$0")/.."
bin=${HOURHAND_BIN:-$PWD/target/debug/hourhand}
modules=$PWD/target/guests
picture=$PWD/guest-examples/thumbnail/pictures/cat.jpg
shown=${HOURHAND_DEMO_OUT:-target/demo}
mkdir -p "$shown"
shown=$(cd "$shown" && pwd)

dir=$(mktemp -d)
runner=""
finish() {
    trap '' INT TERM HUP
    [ -z "$runner" ] || kill "$runner" 2>/dev/null || true
    [ -z "$runner" ] || wait "$runner" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
cd "$dir"

bold="" plain=""
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() { printf '$ hourhand %s\n' "$*"; "$bin" "$@"; }
fail() {
    echo "demo: $*" >&2
    [ ! -s runner.log ] || { echo "demo: the runner's log:" >&2; cat runner.log >&2; }
    exit 1
}

# No settings but those of the demo.
for name in $(env | sed -n 's/^\(HOURHAND_[A-Z_]*\)=.*/\1/p') REDIS_URL; do
    unset "$name"
done
export HOURHAND_STATE_DIR="$dir/state"

say "A handlers folder: whatever module is in it, its kinds are served."
mkdir handlers
cp "$modules/order_close.wasm" "$modules/faults.wasm" "$modules/thumbnail.wasm" handlers/
ls -l handlers | awk 'NR > 1 { print "  " $NF "  " $5 " bytes" }'

say "A runner. Nobody named a store: it makes one here, a file."
echo '$ hourhand run --kinds order_close,flaky,thumbnail &'
"$bin" run --kinds order_close,flaky,thumbnail --grace 1s 2>runner.log &
runner=$!
tries=0
until grep -q "the runner serves" runner.log; do
    kill -0 "$runner" 2>/dev/null || fail "the runner ended"
    tries=$((tries + 1))
    [ "$tries" -lt 400 ] || fail "the runner does not start"
    sleep 0.1
done
ls -l hourhand.db | awk '{ print "  " $NF "  " $5 " bytes" }'

say "An order that must be paid within 5 seconds (30 minutes in real life):"
run enqueue order_close '{"id": 7, "state": "unpaid", "pay_by_ms": 0}' --id order-7 --delay 5s
say "A job that fails twice, and works when it is tried again:"
run enqueue flaky '{"fails": 2, "after_ms": 1200}' --id shaky
say "A picture, to be scaled down in the sandbox:"
cp "$picture" .
run enqueue thumbnail @cat.jpg --id cat

say "What happens to them (hourhand job list, again and again):"
: >seen
deadline=$(($(date +%s) + 30))
until [ "$(grep -c ' completed ' seen)" -eq 3 ]; do
    # id, state, attempt and, after the due time, why the last attempt failed
    "$bin" job list >list
    awk 'NR > 1 {
        why = NF > 6 ? " " : ""
        for (i = 7; i <= NF; i++) why = why " " $i
        printf "%-8s %-10s attempt %s%s\n", $1, $4, $5, why
    }' list | grep -vxF -f seen >news || true
    while IFS= read -r line; do
        printf '  %s  %s\n' "$(date +%T)" "$line"
    done <news
    cat news >>seen
    [ "$(date +%s)" -lt "$deadline" ] || fail "the jobs did not complete within 30 s"
    sleep 0.1
done

say "The whole life of the one that failed:"
run job show shaky
say "What the order was told, and how late it started:"
run job show order-7 | grep -E '^(due|started|lateness|result) '
"$bin" job show cat --json | sed 's/.*"result_base64":"\([^"]*\)".*/\1/' | base64 -d >"$shown/thumbnail.png"
size=$(od -An -tu1 -j18 -N6 "$shown/thumbnail.png" | awk '{ print $1 * 256 + $2 " x " $5 * 256 + $6 }')
say "The picture, $size now:"
printf '  %s\n' "$shown/thumbnail.png"

say "Where things stand:"
run stats

say "Where to look next:"
cat <<'END'
  README.md, Quick start   the same with your own hands
  docs/handlers.md         to write a handler, in Rust or another language
  docs/cli.md              every command and setting
END
