#!/bin/bash
# What two GPUs of one machine must show, in a minute: the driver's conformance tests on both and on both at
# once, and MiniLM, compiled for the second, with one hash on either while the other replays it, too.
# Usage: scripts/two_gpus.sh [BUILD], a build folder with bin/aicf and test/test_runtime; PYTHON has onnx.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${1:-$root/build}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! "$build/test/test_runtime" --gtest_filter='*DriverConformance*cuda*:TwoGpus*' >"$folder/tests" 2>&1; then
  grep -B 20 FAILED "$folder/tests" || tail -20 "$folder/tests"
  exit 1
fi
tail -4 "$folder/tests"
grep -q SKIPPED "$folder/tests" && { echo "two_gpus: tests were skipped"; sed -n '/SKIPPED/,$p' "$folder/tests"; exit 1; }
grep -q 'PASSED.* [1-9][0-9]* tests' "$folder/tests" || { echo "two_gpus: no test ran"; exit 1; }

PYTHONPATH="$root/bench:${PYTHONPATH:-}" "${PYTHON:-python3}" - "$folder" <<'P' || exit
import sys
from pathlib import Path

from gpu_models import MINILM, write_encoder

write_encoder(Path(sys.argv[1], "model.onnx"), MINILM)
P
cd "$folder"
aicf=$build/bin/aicf
"$aicf" compile model.onnx --dim batch=8 --dim sequence=128 --target cuda:1 -o model.aicf || exit
for device in cuda:0 cuda:1; do
  "$aicf" verify model.aicf --device "$device" --busy -n 500 --range input_ids=0..30000 --range attention_mask=1..1 >"$device" &
done
wait
cat cuda:0 cuda:1
if ! cmp -s cuda:0 cuda:1 || ! grep -q '1 hash' cuda:0; then
  echo "two_gpus: the bits differ"
  exit 1
fi
echo "two_gpus: passed"
