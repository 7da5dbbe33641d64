#!/bin/sh
# Builds the examples in other languages into target/languages: javascript.wasm, deliver.wasm (JavaScript too), python.wasm, c.wasm,
# plain-rust.wasm.
# What they are compiled with is installed there too, in the versions that the examples name, and stays for the next time.
#   languages.sh [LANGUAGE...]
set -eu
cd "$(dirname "$0")/.."
out=$PWD/target/languages
mkdir -p "$out"
# One at a time: tests are processes of their own, and each may ask.
exec 9>"$out/.lock"
flock 9

need() { # command, package
    command -v "$1" >/dev/null 2>&1 || {
        echo "languages: $1 is missing: make setup installs it (the package $2)" >&2
        exit 1
    }
}

# Whether a module is newer than all that it is made of, which are whole folders.
fresh() { # language
    folder=examples/$1
    [ -d "$folder" ] || folder=examples/javascript
    [ -e "$out/$1.wasm" ] && [ -z "$(find "$folder" wit scripts/languages.sh -newer "$out/$1.wasm" -type f \
        ! -path '*/node_modules/*' ! -path '*/venv/*' ! -path '*/target/*' ! -name '*.pyc' | head -n 1)" ]
}

# Its time is the beginning of the build: what changes meanwhile is newer.
build() { # language
    fresh "$1" && return
    begun=$(mktemp "$out/.begun.XXXXXX")
    "build_$(echo "$1" | tr - _)"
    touch -r "$begun" "$out/$1.wasm"
    rm "$begun"
}

javascript() { # source, module
    need node nodejs
    need npm npm
    home=$out/javascript
    mkdir -p "$home"
    cp examples/javascript/*.js examples/javascript/*.mjs examples/javascript/*.json "$home/"
    if ! cmp -s "$home/package-lock.json" "$home/installed.json"; then
        (cd "$home" && npm ci --no-audit --no-fund --loglevel=error >&2)
        cp "$home/package-lock.json" "$home/installed.json"
    fi
    (cd "$home" && HOURHAND_WIT="$OLDPWD/wit" node build.mjs "$1" "$out/$2.wasm")
}

build_javascript() {
    javascript receipt.js javascript
}

build_deliver() {
    javascript deliver.js deliver
}

# A copy of the example, with a virtual environment that has what it requires.
venv() { # language
    need python3 "python3 and python3-venv"
    home=$out/$1
    mkdir -p "$home"
    find "examples/$1" -maxdepth 1 -type f -exec cp {} "$home/" \;
    cmp -s "$home/requirements.txt" "$home/installed.txt" && return
    rm -rf "$home/venv"
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$home/requirements.txt"
    cp "$home/requirements.txt" "$home/installed.txt"
}

build_python() {
    venv python
    HOURHAND_WIT="$PWD/wit" "$home/build.sh" receipt_py "$out/python.wasm"
}

build_c() {
    venv c
    # What it has compiled of its library, for the next time.
    ZIG_GLOBAL_CACHE_DIR="$home/cache" ZIG_LOCAL_CACHE_DIR="$home/cache" \
        "$home/build.sh" "$home/receipt_c.c" "$out/c.wasm"
}

build_plain_rust() {
    (cd examples/plain-rust && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR="$out/plain-rust" \
        cargo build --quiet --locked --release --target wasm32-wasip1)
    cp "$out/plain-rust/wasm32-wasip1/release/receipt_rs.wasm" "$out/.plain-rust.staged"
    mv "$out/.plain-rust.staged" "$out/plain-rust.wasm"
}

[ $# -gt 0 ] || set -- javascript deliver python c plain-rust
for language; do
    build "$language"
done
