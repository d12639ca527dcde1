#!/usr/bin/env bash
# Format check, ruff, include arrows, what the docs name and clang-tidy over the files git knows; every check runs even if one fails.
#   scripts/lint.sh [--fix]     --fix: format in place instead (and skip clang-tidy)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin
mapfile -t cpp < <(git ls-files -co --exclude-standard -- '*.cc' '*.h' '*.c' | while read -r f; do [[ -f $f ]] && echo "$f"; done)
failed=0

if [[ ${1:-} == --fix ]]; then
  ((${#cpp[@]})) && "$bin/clang-format" -i "${cpp[@]}"
  "$bin/ruff" format -q . && "$bin/ruff" check -q --fix .
  exit
fi

((${#cpp[@]})) && { "$bin/clang-format" --dry-run --Werror "${cpp[@]}" || failed=1; }
"$bin/ruff" format -q --check . || { echo "lint: make format rewrites the Python files above" >&2; failed=1; }
"$bin/ruff" check -q . || failed=1
"$bin/python" scripts/check_includes.py || failed=1
"$bin/python" scripts/check_docs.py || failed=1
"$bin/python" scripts/check_names.py || failed=1

# The database lists exactly what the release build compiles, each file alone; ISA sources are left out, their intrinsics
# confuse it.
cmake --preset release -B build/lint -DAICF_UNITY=OFF --no-warn-unused-cli >.venv/lint-configure.log || { cat .venv/lint-configure.log; exit 1; }
mapfile -t tidy < <("$bin/python" - <<'PY'
import json
import pathlib

root = pathlib.Path.cwd()
files = {pathlib.Path(e["file"]) for e in json.loads(pathlib.Path("build/lint/compile_commands.json").read_text())}
for file in sorted(files):
    # What the build generates is not there yet, and is data.
    inside = file.is_relative_to(root) and not any(file.is_relative_to(root / f) for f in (".venv", "build"))
    if inside and not file.stem.endswith(("_isa", "_bench")):
        print(file)
PY
)
if ((${#tidy[@]})); then
  printf '%s\n' "${tidy[@]}" |
    xargs -P "$(nproc)" -n 4 "$bin/clang-tidy" -p build/lint --quiet --header-filter="^$PWD/(src|include|tools|python)/" --warnings-as-errors='*' 2>/dev/null || failed=1
fi
((failed)) || echo "lint: clean"
exit $failed
