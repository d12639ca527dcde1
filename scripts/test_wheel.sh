#!/usr/bin/env bash
# Builds dist/*.whl by way of an sdist, so that nothing but packaged files can end up inside, installs it into an
# empty environment outside the tree and runs the Python tests and the command line there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
rm -rf dist
log=$(mktemp)
.venv/bin/python -m build --no-isolation --outdir dist . >"$log" 2>&1 || { tail -50 "$log"; exit 1; }
rm -f "$log"
wheel=$(ls "$root"/dist/*.whl)
echo "wheel: $(basename "$wheel"), $(($(stat -c %s "$wheel") / 1024)) KiB"
.venv/bin/python -m zipfile -l "$wheel" | grep 'dist-info/licenses/THIRD_PARTY_NOTICES' >/dev/null  # all of it is read: pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/python -m venv "$scratch/venv"
pinned() { grep -hE "^($1)==" "$root/requirements.txt" "$root/requirements-dev.txt"; }
pinned 'numpy|onnx|onnxruntime|safetensors|scikit-learn|pytest|pytest-timeout' >"$scratch/requirements.txt"
"$scratch/venv/bin/python" -m pip install -q --disable-pip-version-check "$wheel" -r "$scratch/requirements.txt"
cp -r "$root/python/tests" "$scratch/tests"
cp -r "$root/bench" "$scratch/bench"  # the tests of real topologies take them from there
# These read the tree and its build.
rm -f "$scratch/tests/"{test_docs,test_onnx_random,test_readme,test_sanitize,training/test_examples}.py
cd "$scratch"
"$scratch/venv/bin/aicf" --version
"$scratch/venv/bin/python" -c 'import aicf, sys; assert aicf.__file__.startswith(sys.prefix), aicf.__file__'
"$scratch/venv/bin/python" -m pytest -q tests
