#!/usr/bin/env bash
# The C++ and the Python tests of a finished build; all of them run even if one fails. Exit 1 if any failed.
# With AICF_SOAK=1 the tests take their long counts, and the time that those need.
#   scripts/test.sh <build folder> <jobs>
set -uo pipefail
build=$1 jobs=$2
failed=0
ctest_time=() pytest_time=()
if [[ -n ${AICF_SOAK:-} ]]; then ctest_time=(--timeout 14400) pytest_time=(-o timeout=14400); fi

.venv/bin/python scripts/check_binaries.py "$build" || failed=1

# Hundreds of interpreters import torch, numpy and onnx: the first to do so leaves bytecode for the others, which pip did
# not compile (scripts/setup.sh).
unset PYTHONDONTWRITEBYTECODE

# The ONNX backend cases that come with the onnx package; the suites skip themselves without them.
AICF_ONNX_TESTS=$(.venv/bin/python -c 'import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data"))') || failed=1
export AICF_ONNX_TESTS
# NVRTC and Triton come from the environment's packages; where the requirements have them, no test may do without.
export VIRTUAL_ENV=$PWD/.venv
if [[ $(uname -m) == x86_64 ]]; then export AICF_REQUIRE_NVRTC=1 AICF_REQUIRE_TRITON=1; fi

ctest --test-dir "$build" --output-on-failure --no-tests=error "${ctest_time[@]}" -j "$jobs" || failed=1

# As many workers as cores: threads of torch's and numpy's own would mostly wait for each other.
export OMP_NUM_THREADS=1
test_folders=(examples)
if compgen -G 'python/tests/test_*.py' >/dev/null; then test_folders+=(python/tests); fi
.venv/bin/python -m pytest "${test_folders[@]}" -q -n "$jobs" --dist worksteal "${pytest_time[@]}" || failed=1
exit $failed
