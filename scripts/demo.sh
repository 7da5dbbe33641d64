#!/bin/sh
# Shows real jobs from enqueue to end, on a Redis of its own. Ends by itself and leaves nothing running.
set -eu
cd "$(dirname "$0")/.."
cargo build -q -p hourhand
bin=$PWD/target/debug/hourhand
modules=$PWD/target/guests

dir=$(mktemp -d)
redis="" runner=""
finish() {
    [ -z "$runner" ] || kill "$runner" 2>/dev/null || true
    [ -z "$runner" ] || wait "$runner" 2>/dev/null || true
    [ -z "$redis" ] || kill "$redis" 2>/dev/null || true
    [ -z "$redis" ] || wait "$redis" 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$dir"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '$ hourhand %s\n' "$*"; "$bin" "$@"; }

# A store of its own, on a free port: nobody's data is touched.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
redis-server --port "$port" --bind 127.0.0.1 --save "" --appendonly yes --dir "$dir" >redis.log 2>&1 &
redis=$!
unset REDIS_URL || true
export HOURHAND_STORE="redis://127.0.0.1:$port" HOURHAND_STATE_DIR="$dir/state"

say "A handlers folder: drop a module, and its kind is served."
mkdir handlers
cp "$modules/order_close.wasm" "$modules/boom.wasm" "$modules/thumbnail.wasm" handlers/
ls -l handlers | awk 'NR > 1 { print "  " $NF "  " $5 " bytes" }'

"$bin" run --handlers handlers 2>runner.log &
runner=$!
tries=0
until grep -q "the runner serves" runner.log; do
    kill -0 "$runner" 2>/dev/null || { cat runner.log >&2; exit 1; }
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || { echo "the runner does not start:" >&2; cat runner.log >&2; exit 1; }
    sleep 0.1
done

say "An order that must be paid within 3 seconds (30 minutes in real life):"
run enqueue order_close '{"id": 7, "state": "unpaid", "pay_by_ms": 0}' --id order-7 --delay 3s
run job show order-7

say "A job that fails, and is tried again until it is a dead letter:"
run enqueue boom '{"msg": "the mail server is on fire"}' --id mail --max-attempts 1 --wait || true
run dead list

say "A picture, scaled down in the sandbox:"
python3 - <<'PY'
import struct, zlib
w, h = 1200, 800
rows = b"".join(b"\0" + bytes(c for x in range(w) for c in (x * 255 // w, y * 255 // h, (x * y) >> 12 & 255)) for y in range(h))
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
open("picture.png", "wb").write(png)
PY
ls -l picture.png | awk '{ print "  picture.png  " $5 " bytes" }'
run enqueue thumbnail @picture.png --id picture --wait
"$bin" job show picture --json | python3 -c '
import base64, json, struct, sys
small = base64.b64decode(json.load(sys.stdin)["result_base64"])
print("  the result: a PNG of %d x %d, %d bytes" % (*struct.unpack(">2I", small[16:24]), len(small)))'

say "And the order, on time:"
while [ "$("$bin" job show order-7 --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])')" != completed ]; do
    sleep 0.1
done
run job show order-7

say "Where things stand:"
run stats
say "Next: docs/handlers.md to write a handler, docs/cli.md for every command, README.md for your own store."
