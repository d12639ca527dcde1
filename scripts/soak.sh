#!/usr/bin/env bash
# The long counts: the C++ and Python tests with AICF_SOAK=1, the installed package, sizes of MiniLM, then every
# fuzz target for AICF_FUZZ_RUNS (100,000) inputs under the sanitizers. All of them run even if one fails. A found
# input stays in build-fuzz/found.
#   scripts/soak.sh <build folder> <jobs>
set -uo pipefail
build=$1 jobs=$2
runs=${AICF_FUZZ_RUNS:-100000}
failed=0
export AICF_SOAK=1

scripts/test.sh "$build" "$jobs" || failed=1

scripts/test_install.sh "$build" || failed=1

# Sizes of MiniLM's ranges against the model compiled at each; the demo writes the ONNX file.
if [[ ! -f $build/demo/minilm.onnx ]]; then .venv/bin/python examples/minilm_demo.py || failed=1; fi
.venv/bin/python scripts/check_sizes.py "$build/bin/aicf" "$build/demo/minilm.onnx" 400 || failed=1

if compgen -G 'fuzz/*.cc' >/dev/null; then
  compiler=$(command -v clang++ || command -v clang++-19)
  cmake --preset fuzz -DCMAKE_CXX_COMPILER="$compiler" >/dev/null && ninja -C build-fuzz || exit 1
  mkdir -p build-fuzz/found
  # Seeds: the targets' own, and the small test models that come with the onnx package; those compiled, for .aicf.
  cases=$(.venv/bin/python -c 'import onnx, os; print(os.path.join(os.path.dirname(onnx.__file__), "backend/test/data"))')
  rm -rf build-fuzz/seeds
  mkdir -p build-fuzz/seeds/fuzz_onnx
  for model in "$cases"/*/*/model.onnx; do
    folder=$(basename "$(dirname "$model")")
    (($(stat -c %s "$model") < 4096)) && cp "$model" "build-fuzz/seeds/fuzz_onnx/$folder.onnx"
  done
  for source in fuzz/*.cc; do
    name=$(basename "$source" .cc)
    corpus=build-fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=build-fuzz/seeds/$name
    mkdir -p "$seeds"
    if [[ -d fuzz/regressions/$name ]]; then cp fuzz/regressions/"$name"/* "$seeds"; fi
    AICF_FUZZ_SEEDS=$seeds AICF_FUZZ_MODELS=build-fuzz/seeds/fuzz_onnx "build-fuzz/fuzz/$name" || { failed=1; continue; }
    # One input may take 1 GB and 20 s; the process limit adds what the sanitizer's quarantine holds.
    "build-fuzz/fuzz/$name" -runs="$runs" -timeout=20 -malloc_limit_mb=1024 -rss_limit_mb=2560 -print_final_stats=1 \
      -artifact_prefix="build-fuzz/found/$name-" -max_len=16384 "$corpus" "$seeds" || failed=1
  done
fi
exit $failed
