#!/usr/bin/env bash
# All campaigns from one seed, one after the other, each with up to <jobs> processes; then a table.
#   scripts/campaigns.sh <seed> [<scale, default 1>] [<jobs, default all cores>]
# A scale of 1 is 20,000 ONNX graphs, 300 training nets, 50,000 changed files, 1,000 interrupts, 1,000 memory limits and
# 200 kills; 0.01 a hundredth of each. Logs stay in build/campaigns. Exit 1 if any found something or did not end.
# PYTHON names the interpreter; else that of .venv, else python3. CAMPAIGNS="interrupts kill_writers" runs some alone.
set -uo pipefail
cd "$(dirname "$0")/.."
seed=${1:?a seed} scale=${2:-1} jobs=${3:-$(nproc)}
python=${PYTHON:-$([[ -x .venv/bin/python ]] && echo .venv/bin/python || echo python3)}
export PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}
logs=build/campaigns
mkdir -p "$logs"
declare -A counts=([random_onnx]=20000 [random_training]=300 [mutate_files]=50000 [interrupts]=1000 [memory_limits]=1000 [kill_writers]=200)
table=() failed=0
for name in ${CAMPAIGNS:-random_onnx random_training mutate_files interrupts memory_limits kill_writers}; do
  count=$(awk -v n="${counts[$name]}" -v s="$scale" 'BEGIN { n = int(n * s); print n < 1 ? 1 : n }')
  begin=$(date +%s)
  "$python" "scripts/$name.py" --count "$count" --seed "$seed" --jobs "$jobs" >"$logs/$name.log" 2>&1
  rc=$?
  ((rc)) && failed=1
  table+=("$(printf '%-16s %-4s %6s s  %s' "$name" "$([[ $rc == 0 ]] && echo ok || echo BAD)" $(($(date +%s) - begin)) "$(tail -1 "$logs/$name.log")")")
  echo "${table[-1]}"
done
echo
echo "seed $seed, scale $scale, $jobs jobs; logs in $logs"
printf '%s\n' "${table[@]}"
exit $failed
