#!/bin/sh
# Fetches photographs for tests into target/photographs: public-domain and CC0 ones that the PyPI package
# scikit-image ships (NASA's astronaut and Hubble deep field, SpaceX's rocket, the cat Chelsea).
set -eu
cd "$(dirname "$0")/.."
out=target/photographs
[ -d "$out" ] && exit 0
mkdir -p target
staged=$(mktemp -d target/.photographs.XXXXXX)
trap 'rm -rf "$staged"' EXIT

python3 -m venv "$staged/venv"
# One fixed wheel, whatever Python this machine has: only its data is used.
"$staged/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --platform manylinux2014_x86_64 --python-version 3.11 --dest "$staged" scikit-image==0.25.2
python3 -m zipfile --extract "$staged"/scikit_image-*.whl "$staged/wheel"
mkdir "$staged/out"
for picture in astronaut.png chelsea.png hubble_deep_field.jpg rocket.jpg; do
    cp "$staged/wheel/skimage/data/$picture" "$staged/out"
done
# Somebody else may have been faster.
mv -T "$staged/out" "$out" 2>/dev/null || [ -d "$out" ]
