#!/bin/sh
# Installs what Hourhand is measured beside into target/peers, in the versions that the lists here name. What is there already stays.
#   install.sh node|celery|apalis
set -eu
cd "$(dirname "$0")"
home=$(cd ../.. && pwd)/target/peers/$1
mkdir -p "$home"

case $1 in
node)
    # Modules are looked for from a program's own folder upwards.
    cp node/*.js node/*.json "$home/"
    cmp -s node/package-lock.json "$home/installed" && exit
    (cd "$home" && npm ci --no-audit --no-fund --loglevel=error >&2)
    cp node/package-lock.json "$home/installed"
    ;;
celery)
    cp celery/app.py "$home/"
    cmp -s celery/requirements.txt "$home/installed" && exit
    rm -rf "$home/venv"
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check --requirement celery/requirements.txt
    cp celery/requirements.txt "$home/installed"
    ;;
apalis)
    env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR="$home" \
        cargo build --quiet --locked --release --manifest-path apalis/Cargo.toml
    ;;
*)
    echo "install: $1 is none of node, celery and apalis" >&2
    exit 2
    ;;
esac
