#!/usr/bin/env bash
# Runs the C++ benchmarks and bench/cpu_*.py; raw samples as JSON under <build folder>/bench-results.
#   scripts/bench.sh <build folder>
set -euo pipefail
build=$1
results=$build/bench-results
mkdir -p "$results"
if grep -q '^build benches:' "$build/build.ninja"; then
  ninja -C "$build" benches
  for bench in "$build"/bench/bench_*; do
    "$bench" --benchmark_repetitions=5 --benchmark_report_aggregates_only=false \
      --benchmark_display_aggregates_only=true --benchmark_out_format=json \
      --benchmark_out="$results/$(basename "$bench").json"
  done
fi
shopt -s nullglob
for script in bench/cpu_*.py; do
  .venv/bin/python "$script" --build "$build" --output "$results/$(basename "$script" .py).json"
done
echo "bench: raw samples in $results"
