#!/bin/sh
# Measures this machine in release mode, beside what Hourhand must reach: on a Redis of its own, and on embedded stores of both
# durabilities. See docs/performance.md for what the figures mean. Arguments go to each `hourhand bench`: --rounds 5 --seconds 60.
set -eu
cd "$(dirname "$0")/.."
# No store and no setting but ours.
unset REDIS_URL || true
for name in $(env | sed -n 's/^\(HOURHAND_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

cargo build -q --release -p hourhand
bin=$PWD/target/release/hourhand
noop=$PWD/target/guests/noop.wasm

# On the disk of this folder: a temporary folder may be in memory.
work=$(mktemp -d target/bench.XXXXXX)
server=
tidy() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 1' INT TERM HUP

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# Without rewrites: one that falls into a round would be measured with it, and not into another.
redis-server --bind 127.0.0.1 --port "$port" --dir "$PWD/$work" --save "" --appendonly yes --appendfsync everysec \
    --auto-aof-rewrite-percentage 0 --logfile redis.log --daemonize no &
server=$!
tries=0
until redis-cli -p "$port" ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { cat "$work/redis.log" >&2; exit 1; }
    sleep 0.1
done

echo "# Redis, append-only file every second, without rewrites"
"$bin" --store "redis://127.0.0.1:$port" bench all --budget --handler "$noop" "$@"
for durability in normal full; do
    echo
    echo "# SQLite, durability $durability"
    "$bin" --store "sqlite://$PWD/$work/hourhand.db" --durability "$durability" bench all --budget --handler "$noop" "$@"
done

for bench in store scripts sandbox; do
    echo
    echo "# $bench"
    cargo bench -q -p hourhand --bench "$bench"
done
