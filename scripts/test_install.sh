#!/usr/bin/env bash
# Installs a build (argument 1, default build/) into an empty folder, and uses it as a stranger would: compiles every public header
# alone, builds a C++17 and C99 projects with find_package(AICF) and with pkg-config outside the tree, and runs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
build=$(realpath "${1:-build}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix

cmake --install "$build" --prefix "$prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
for file in LICENSE THIRD_PARTY_NOTICES; do
  cmp "$root/$file" "$prefix"/share/doc/*/$file
done

cxx=${CXX:-c++} cc=${CC:-cc}
for header in "$prefix"/include/aicf/*.h; do
  name=aicf/$(basename "$header")
  for standard in 17 20; do
    echo "#include <$name>" | "$cxx" -std=c++$standard -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only -x c++ -
  done
  if grep -q 'extern "C"' "$header"; then
    echo "#include <$name>" | "$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$prefix/include" -fsyntax-only -x c -
  fi
  if grep -nE '#include "(base|ir|import|compile|runtime|artifact|plan|api)/' "$header"; then
    echo "test_install: $name includes an internal header" >&2
    exit 1
  fi
done

mkdir "$scratch/consumer"
cp "$root/examples/compile_mlp.cc" "$root/examples/run_model.c" "$root/examples/compile_model.c" "$scratch/consumer/"
cat >"$scratch/consumer/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES C CXX)
set(CMAKE_C_STANDARD 99)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(AICF 0.2 REQUIRED)
add_executable(compile_mlp compile_mlp.cc)
add_executable(run_model run_model.c)
target_link_libraries(compile_mlp PRIVATE AICF::aicf)
target_link_libraries(run_model PRIVATE AICF::aicf)
CMAKE
log=$scratch/consumer.log
{ cmake -S "$scratch/consumer" -B "$scratch/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" &&
  cmake --build "$scratch/consumer/build"; } >"$log" 2>&1 || { cat "$log"; exit 1; }
cd "$scratch/consumer"
build/compile_mlp mlp.aicf | tail -1
build/run_model mlp.aicf

# pkg-config, after the folder has moved. The compiler is asked as pkg-config would answer where there is none.
mv "$prefix" "$scratch/moved"
pc=$(find "$scratch/moved" -name aicf.pc)
grep -q "^Version: [0-9]" "$pc"
if command -v pkg-config >/dev/null; then
  read -ra flags < <(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs aicf)
else
  echo "test_install: no pkg-config here; its file is read by hand"
  value() { sed -n "s/^$1[:=] *//p" "$pc" | sed "s|\${pcfiledir}|$(dirname "$pc")|; s|\${prefix}|$(dirname "$pc")/../..|g"; }
  read -ra flags <<<"-I$(value includedir) -L$(value libdir) -laicf"
fi
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror compile_model.c "${flags[@]}" -o compile_model
export LD_LIBRARY_PATH=$(dirname "$(dirname "$pc")")
status=0
./compile_model no_such_model.onnx out.aicf 2>refused.txt || status=$?
((status == 2)) && grep -q 'AICF-U0003' refused.txt
echo "test_install: ok"
