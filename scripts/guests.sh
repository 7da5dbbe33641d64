#!/bin/sh
# Builds the example handlers into target/guests, one file a kind.
set -eu
cd "$(dirname "$0")/.."
out=target/guests
mkdir -p "$out"
# Its time is the beginning of the build: what changes meanwhile is newer.
begun=$(mktemp "$out/.begun.XXXXXX")

# In the folder, so that its .cargo/config.toml counts; RUSTFLAGS would take that file's place.
(cd guest-examples && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR=../target/guests-build \
    cargo build --locked --release --workspace --target wasm32-wasip1)

for module in target/guests-build/wasm32-wasip1/release/*.wasm; do
    name=$(basename "$module")
    [ -d "guest-examples/${name%.wasm}" ] || continue # of an example that is gone
    cmp -s "$module" "$out/$name" && continue
    staged=$(mktemp "$out/.staged.XXXXXX")
    cp "$module" "$staged"
    chmod 644 "$staged"
    mv "$staged" "$out/$name"
done
mv "$begun" "$out/.built"
