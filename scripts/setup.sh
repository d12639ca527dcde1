#!/usr/bin/env bash
# Brings a Debian 12 or Ubuntu 24.04 machine to the point where the tree builds: system packages through apt and the
# Python packages of requirements*.txt in .venv. Installs only what is missing. Exit 3 when a system package is
# missing and cannot be installed from here; the one line to run is printed.
#
#   scripts/setup.sh [--dev] [--lint] [--fuzz] [--torch]     also what tests and wheels need; the tools of `make lint`, of the
#                                                    fuzz targets; torch and transformers for the tests of the PyTorch front door
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
python=${PYTHON:-python3}
venv=$root/.venv
dev=0 lint=0 fuzz=0 torch=0
for arg in "$@"; do
  case $arg in
    --dev) dev=1 ;;
    --lint) lint=1 ;;
    --fuzz) fuzz=1 ;;
    --torch) torch=1 ;;
    *) echo "setup: unknown argument $arg" >&2; exit 2 ;;
  esac
done

# Two makes at once must not both write .venv.
exec 9<"$root/requirements.txt"
flock 9

say() { printf 'setup: %s\n' "$*" >&2; }

missing_packages() {
  local tool header package
  while read -r tool package; do
    command -v "$tool" >/dev/null || echo "$package"
  done <<'TOOLS'
g++ g++
cmake cmake
ninja ninja-build
TOOLS
  if ((fuzz)) && ! command -v clang++ >/dev/null && ! command -v clang++-19 >/dev/null; then
    echo clang
    echo "libclang-rt-dev"
  fi
  while read -r header package; do
    if ! command -v g++ >/dev/null ||
        ! echo "#include <$header>" | g++ -std=c++20 -x c++ -M - >/dev/null 2>&1; then
      echo "$package"
    fi
  done <<'HEADERS'
hwy/detect_compiler_arch.h libhwy-dev
nlohmann/json_fwd.hpp nlohmann-json3-dev
CLI/Version.hpp libcli11-dev
gtest/gtest_prod.h libgtest-dev
benchmark/benchmark.h libbenchmark-dev
protozero/version.hpp libprotozero-dev
xxhash.h libxxhash-dev
zlib.h zlib1g-dev
minizip/unzip.h libminizip-dev
HEADERS
  if ! command -v "$python" >/dev/null; then
    echo python3 python3-venv python3-dev
  else
    "$python" -c 'import venv, ensurepip' 2>/dev/null || echo python3-venv
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || echo python3-dev
  fi
}

install_packages() {
  local sudo=()
  if [[ $(id -u) != 0 ]]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      sudo=(sudo -n)
    else
      return 1
    fi
  fi
  command -v apt-get >/dev/null || return 1
  say "installing $*"
  "${sudo[@]}" apt-get update -qq >&2 &&
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >&2
}

mapfile -t missing < <(missing_packages | tr ' ' '\n' | sort -u)
if ((${#missing[@]})); then
  if ! install_packages "${missing[@]}"; then
    say "system packages are missing and cannot be installed without root; run"
    echo "sudo apt-get install -y ${missing[*]}"
    exit 3
  fi
  mapfile -t missing < <(missing_packages | tr ' ' '\n' | sort -u)
  if ((${#missing[@]})); then
    say "still missing after the installation: ${missing[*]}"
    exit 3
  fi
fi

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  say "$python is $("$python" -V 2>&1); 3.10 or newer is needed (PYTHON=... chooses another)"
  exit 3
fi

# An interpreter that no longer starts (moved tree, upgraded system Python) makes the whole environment useless.
if ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
  say "creating .venv with $("$python" -V)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi

# install_requirements <file> [pip arguments]: once per content of the file. Python compiles a module when it is first
# imported: pip would compile all 13,000.
install_requirements() {
  local file=$1 stamp=$venv/.installed-$1
  shift
  cmp -s "$file" "$stamp" && return
  say "installing the Python packages of $file"
  local progress=(--progress-bar off)
  [[ -t 2 ]] && progress=()
  if ! "$venv/bin/python" -m pip install -q --no-compile --disable-pip-version-check "${progress[@]}" "$@" -r "$file" >&2; then
    say "pip could not install $file"
    exit 3
  fi
  cp "$file" "$stamp"
}
install_requirements requirements.txt
install_requirements requirements-nodeps.txt --no-deps
((dev)) && install_requirements requirements-dev.txt
((lint)) && install_requirements requirements-lint.txt
((torch)) && install_requirements requirements-torch.txt

# `import aicf` in .venv takes the package from the tree.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$root/python" >"$site/aicf-tree.pth"
# What an installed wheel declares in its metadata: torch.compile(backend="aicf") finds the tree's.
entry=$site/aicf_tree-0.dist-info
mkdir -p "$entry"
printf 'Metadata-Version: 2.1\nName: aicf-tree\nVersion: 0\n' >"$entry/METADATA"
printf '[torch_dynamo_backends]\naicf = aicf.torch.backend:aicf_backend\n' >"$entry/entry_points.txt"
touch "$venv/.ready"
if ((dev)); then touch "$venv/.ready-dev"; fi
if ((lint)); then touch "$venv/.ready-lint"; fi
if ((fuzz)); then touch "$venv/.ready-fuzz"; fi
if ((torch)); then touch "$venv/.ready-torch"; fi
