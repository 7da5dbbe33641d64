#!/bin/sh
# Compiles a handler: build.sh MODULE TARGET.wasm, for MODULE.py beside this file, with componentize-py from
# ./venv or the PATH.
set -eu
[ $# -eq 2 ] || { echo "usage: build.sh MODULE TARGET.wasm" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
PATH=$here/venv/bin:$PATH
# The interface of handlers: in a folder beside this file, or where Hourhand's source has it.
wit=${HOURHAND_WIT:-$here/wit}
[ -e "$wit" ] || wit=$here/../../wit
# Under another name first: a runner that watches the folder never sees half of it.
staged=$(dirname "$2")/.$(basename "$2").staged
componentize-py --quiet --wit-path "$wit" --world job-handler componentize --python-path "$here" "$1" --output "$staged"
mv "$staged" "$2"
