# Two commands do everything on a machine with Python 3.11 and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled once, even where the environment says otherwise, as containers' do: a
# test starts hundreds of processes, and torch takes seconds to compile.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-gpu wheels checks lint types layers docs docs-serve unit bench format clean

help:
	@echo "make demo    parse, rewrite, plan, run and differentiate an example"
	@echo "make test    lint, types, import rules, documentation, doctests and tests"
	@echo "make test-all  the same with the tests that take long"
	@echo "make test-gpu  test engines, kernels and models on a GPU, with packages from wheels/"
	@echo "make wheels  fill wheels/ for that, on a machine with a network"
	@echo "make docs    build the documentation into site/; docs-serve shows it while you write"
	@echo "make bench   measure what the documentation claims"
	@echo "make format  format the code"

# Set-up: one virtual environment with pinned packages, made again when the pins change.
# Modules are compiled when they are first imported: most of what is installed never is.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

$(VENV)/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/ready: $(VENV)/core
	$(PIP) --editable '.[dev]'
	touch $@

$(VENV)/foreign: $(VENV)/ready
	$(PIP) --editable '.[foreign]'
	touch $@

# What pip does not have: installed if it is absent and can be; otherwise the tests that need it are
# skipped, and say so.
APT := $(if $(filter 0,$(shell id -u)),apt-get,sudo -n apt-get)
PROGRAMS := mpirun:openmpi-bin,libopenmpi-dev chromedriver:chromium,chromium-driver

$(VENV)/programs: $(VENV)/core
	for each in $(PROGRAMS); do \
		program=$${each%%:*}; packages=$$(echo $${each#*:} | tr , ' '); \
		command -v $$program > /dev/null \
			|| $(APT) install -y -q $$packages > /dev/null 2>&1 \
			|| { $(APT) update -q > /dev/null 2>&1 && $(APT) install -y -q $$packages > /dev/null 2>&1; } \
			|| echo "There is no $$program, and it cannot be installed: tests that need it are skipped."; \
	done
	touch $@

demo: $(VENV)/core
	$(BIN)/python examples/demo.py
	$(BIN)/eindecomp run examples/multihead_attention.ein -p 2 --random --check

# What can go on at once does: the packages and the programs; the checks and the tests, which wait for
# processes a sixth of their time. A test builds the documentation.
test:
	$(MAKE) --jobs=2 $(VENV)/ready $(VENV)/programs
	$(MAKE) lint
	$(MAKE) --jobs=2 checks unit

checks: lint
	$(MAKE) --jobs=1 types layers

test-all: export EINDECOMP_ALL = 1
test-all: $(VENV)/foreign
	$(MAKE) test

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: export NODE_OPTIONS = --max-semi-space-size=128
types: $(VENV)/ready  # a quarter faster by that: garbage is collected less often
	$(BIN)/pyright

layers: $(VENV)/ready
	$(BIN)/lint-imports

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/ready
	$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

unit: $(VENV)/ready $(VENV)/programs
	$(BIN)/pytest

# On a machine with a GPU and no network: its own Python with torch, JAX and transformers, and a
# folder of wheels for the rest. Warnings are not errors there, as its versions are not ours; JAX
# takes no memory in advance, and each test process few threads, since several run at once.
GPU := .gpu
WHEELS ?= wheels
GPU_JOBS ?= 8
LOGS := $(or $(OUT),$(GPU))
TESTED := tests/gpu tests/engines/torch tests/kernels/torch \
	tests/engines/test_pending.py tests/engines/test_reduce_types.py \
	tests/engines/test_bind.py tests/engines/test_every_kind.py tests/engines/test_uneven_pieces.py

test-gpu:
	$(PYTHON) -c 'import torch, jax; assert torch.cuda.is_available(), "torch finds no GPU here"'
	$(PYTHON) -m venv --clear --without-pip $(GPU)
	$(PYTHON) -c 'import sys; print(*(p for p in sys.path if p.endswith("-packages")), sep="\n")' \
		> $$($(GPU)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/own.pth
	$(GPU)/bin/python $(wildcard $(WHEELS)/pip-*.whl)/pip install --quiet --no-index --find-links $(WHEELS) \
		--editable . hypothesis pytest pytest-xdist
	EINDECOMP_EVERY=1 OMP_NUM_THREADS=2 PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false \
		$(GPU)/bin/python -m pytest -W default -n $(GPU_JOBS) -k 'torch or gpu' -q --tb=short -rfE \
		--junitxml=$(LOGS)/test-gpu.xml $(TESTED) > $(LOGS)/test-gpu.txt 2>&1; \
		status=$$?; tail -n 100 $(LOGS)/test-gpu.txt; exit $$status

# For Python 3.12 on Linux: what such a machine lacks, pip and what builds our own package among it.
LACKED := annotated-doc annotated-types editables execnet hatchling hypothesis iniconfig lark llvmlite \
	markdown-it-py mdurl numba opt_einsum orjson packaging pathspec pip pluggy pydantic pydantic_core \
	pygments pytest pytest-xdist rich shellingham sortedcontainers threadpoolctl tomlkit \
	trove-classifiers typer typing-inspection typing_extensions

wheels: $(VENV)/core
	$(BIN)/pip download --quiet --no-deps --only-binary=:all: --dest $(WHEELS) \
		--constraint constraints.txt --python-version 3.12 --implementation cp \
		$(addprefix --platform=manylinux_2_,28_x86_64 27_x86_64 17_x86_64) $(LACKED)
	$(BIN)/python tests/gpu/repack_wheels.py $(WHEELS)

bench: $(VENV)/ready
	$(BIN)/python benchmarks/large_graphs.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/contractions.py
	$(BIN)/python benchmarks/compiling.py
	$(BIN)/python benchmarks/windows.py
	$(BIN)/python benchmarks/run_einsum.py
	$(BIN)/python benchmarks/solve_chain.py
	$(BIN)/python benchmarks/plan_llama.py
	$(BIN)/python benchmarks/programs.py
	$(BIN)/python benchmarks/solve_contest.py
	$(BIN)/python benchmarks/import_models.py
	$(BIN)/python benchmarks/jax_layer.py
	$(BIN)/python benchmarks/dtensor.py
	$(BIN)/python benchmarks/imported_llama.py
	$(BIN)/python benchmarks/gallery.py
	$(BIN)/python benchmarks/against_peers.py chain
	$(BIN)/python benchmarks/against_peers.py ffnn
	$(BIN)/python benchmarks/against_peers.py llama

format: $(VENV)/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) $(GPU)
