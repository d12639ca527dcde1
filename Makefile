# One command each; every target installs what it needs first (scripts/setup.sh). `make help` lists them.

SHELL := /bin/bash
PYTHON ?= python3
JOBS ?= $(shell nproc)
BUILD := build
VENV := .venv
PY := $(VENV)/bin/python
export PYTHON
export NINJA_STATUS ?= [%f/%t %es]$(subst ,, )

.DEFAULT_GOAL := build
.PHONY: help setup build test check demo bench bench-gpu prove-gpu sanitize-gpu soak wheel generate format lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

$(VENV)/.ready: requirements.txt requirements-nodeps.txt scripts/setup.sh
	@scripts/setup.sh

$(VENV)/.ready-dev: requirements-dev.txt $(VENV)/.ready
	@scripts/setup.sh --dev

$(VENV)/.ready-lint: requirements-lint.txt $(VENV)/.ready
	@scripts/setup.sh --lint

$(VENV)/.ready-fuzz: $(VENV)/.ready
	@scripts/setup.sh --fuzz

$(VENV)/.ready-torch: requirements-torch.txt $(VENV)/.ready
	@scripts/setup.sh --torch

$(BUILD)/build.ninja: $(VENV)/.ready CMakePresets.json
	@cmake --fresh --preset release --no-warn-unused-cli >$(VENV)/configure.log || { cat $(VENV)/configure.log; exit 1; }

setup: $(VENV)/.ready ## system packages and .venv

build: $(BUILD)/build.ninja ## build/bin/aicf, build/lib/libaicf.so, and the extension for .venv
	@ninja -C $(BUILD) products

check: build ## include arrows, what the docs name, generated files
	@$(PY) scripts/check_includes.py
	@$(PY) scripts/check_docs.py
	@$(PY) scripts/check_names.py
	@$(PY) scripts/generate.py --check

test: build check $(VENV)/.ready-dev $(VENV)/.ready-torch ## everything that must pass
	@ninja -C $(BUILD)
	@scripts/test.sh $(BUILD) $(JOBS)

demo: $(BUILD)/build.ninja ## all-MiniLM-L6-v2 from its weights to a verified, timed executable
	@ninja -C $(BUILD) aicf_cli _aicf
	@$(PY) examples/minilm_demo.py

bench: build $(VENV)/.ready-dev ## C++ and Python benchmarks, raw samples under build/bench-results
	@scripts/bench.sh $(BUILD)

# A program of bench/ beside its peers; GPU_PYTHON is a Python that has these.
BENCH_PY = VIRTUAL_ENV=$(CURDIR)/$(VENV) PYTHONPATH=bench $(or $(GPU_PYTHON),$(PY))

bench-gpu: build ## models, training steps, single ops, compiling and loading on the GPU beside torch.compile; GPU_PYTHON has torch and transformers
	@mkdir -p $(BUILD)/bench-results
	@for name in gpu_inference gpu_train gpu_ops gpu_start; do \
	  $(BENCH_PY) bench/$$name.py --output $(BUILD)/bench-results/$$name.json || exit; \
	done

prove-gpu: build ## training on the GPU: the same bits, PyTorch's accuracy, kills; GPU_PYTHON as for bench-gpu, and scikit-learn
	@mkdir -p $(BUILD)/bench-results
	@$(BENCH_PY) bench/gpu_train_proofs.py --output $(BUILD)/bench-results/gpu_train_proofs.json

sanitize-gpu: build ## small models of every kernel family under compute-sanitizer's four tools, on a GPU
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) PYTHONPATH=bench $(PY) scripts/sanitize_gpu.py --aicf $(BUILD)/bin/aicf --folder $(BUILD)/sanitize

soak: build $(VENV)/.ready-dev $(VENV)/.ready-fuzz $(VENV)/.ready-torch ## the long counts: tests with AICF_SOAK=1, fuzzers
	@ninja -C $(BUILD)
	@scripts/soak.sh $(BUILD) $(JOBS)

wheel: $(VENV)/.ready-dev ## dist/*.whl, tested in an empty environment
	@scripts/test_wheel.sh

generate: build $(VENV)/.ready-dev ## rewrite the files made from ops.def, errors.def and the extension
	@$(PY) scripts/generate.py

format: $(VENV)/.ready-lint ## clang-format and ruff, in place
	@scripts/lint.sh --fix

lint: $(VENV)/.ready-lint $(BUILD)/build.ninja ## format check, clang-tidy, ruff, include arrows
	@scripts/lint.sh

clean: ## everything that make created, but .venv
	@rm -rf $(BUILD) build-* dist python/aicf/*.so
