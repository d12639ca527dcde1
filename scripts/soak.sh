#!/usr/bin/env bash
# The long counts: the C++ and Python tests with AICF_SOAK=1, the installed package, MiniLM (its sizes, its file twice,
# its replays), what a run costs beyond its kernel, then every fuzz target for AICF_FUZZ_RUNS (100,000) inputs under the
# sanitizers. All of them run even if one fails. A found input stays in build-fuzz/found.
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

# The same bytes from the same model; then 1,000 replays of it in two processes, on one and on two threads: one hash.
twice=$(mktemp -d)
for name in first second; do
  "$build/bin/aicf" compile "$build/demo/minilm.onnx" --dim batch=1..8 --dim sequence=16..512 -o "$twice/$name.aicf" >/dev/null || failed=1
done
if cmp "$twice/first.aicf" "$twice/second.aicf"; then echo "recompiled: the same bytes"; else failed=1; fi
"$build/bin/aicf" verify "$twice/first.aicf" -n 1000 --threads 1,2 --processes 2 | tail -1 || failed=1
rm -rf "$twice"

# Figures to read: a time is not a test.
ninja -C "$build" bench_compile >/dev/null && "$build/bench/bench_compile" --benchmark_filter=run_into || failed=1

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
    "build-fuzz/fuzz/$name" -fork="$jobs" -ignore_ooms=0 -ignore_timeouts=0 -runs="$runs" -timeout=20 -malloc_limit_mb=1024 \
      -rss_limit_mb=2560 -max_len=65536 -len_control=0 -artifact_prefix="build-fuzz/found/$name-" "$corpus" "$seeds" 2>&1 |
      grep --line-buffered -v NEW_FUNC || failed=1
  done
fi
exit $failed
