#!/bin/sh
# Installs what is missing on a Debian or Ubuntu machine with rustup. Does nothing when all is there.
#   setup.sh build   what the build needs
#   setup.sh tests   that, and what the tests need: servers, tools and Node.js from Debian's packages
set -eu

need() { # command, what to do
    command -v "$1" >/dev/null 2>&1 || { echo "setup: $1 is missing: $2" >&2; exit 1; }
}
need cargo "install Rust with rustup, https://rustup.rs"
need cc "install a C compiler, on Debian and Ubuntu with: apt-get install build-essential"

target=wasm32-wasip1
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    need rustup "the Rust target $target comes with it"
    rustup target add "$target"
fi
[ "${1:-tests}" = tests ] || exit 0

# A toolchain of the minimal profile has neither.
for component in rustfmt clippy; do
    cargo "${component#rust}" --version >/dev/null 2>&1 || rustup component add "$component"
done

missing=""
command -v redis-server >/dev/null 2>&1 || missing="$missing redis-server"
command -v sqlite3 >/dev/null 2>&1 || missing="$missing sqlite3"
command -v python3 >/dev/null 2>&1 || missing="$missing python3"
command -v openssl >/dev/null 2>&1 || missing="$missing openssl"
# A library that is loaded into processes whose clocks are set: there is no command to look for.
[ -n "$(find /usr/lib -name libfaketime.so.1 -print -quit 2>/dev/null)" ] || missing="$missing faketime"
# A Python without ensurepip makes no virtual environments (Debian keeps it in a package of its own).
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"
# What examples/javascript is compiled with.
command -v node >/dev/null 2>&1 || missing="$missing nodejs"
command -v npm >/dev/null 2>&1 || missing="$missing npm"
if [ -n "$missing" ]; then
    need apt-get "install$missing"
    root=""
    if [ "$(id -u)" -ne 0 ]; then
        need sudo "as root: apt-get install$missing"
        root=sudo
    fi
    echo "setup: installing$missing" >&2
    $root apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
