# Two commands do everything on a machine with Python 3.11 and make: `make demo`, `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers docs docs-serve unit bench format clean

help:
	@echo "make demo    parse, rewrite, plan, run and differentiate an example"
	@echo "make test    lint, types, import rules, documentation, doctests and tests"
	@echo "make docs    build the documentation into site/; docs-serve shows it while you write"
	@echo "make bench   measure what the documentation claims"
	@echo "make format  format the code"

# Set-up: one virtual environment with pinned packages, made again when the pins change.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

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

$(VENV)/mpi $(VENV)/browser $(VENV)/graphviz: $(VENV)/%: $(VENV)/ready
	command -v $(PROGRAM) > /dev/null \
		|| $(APT) install -y -q $(PACKAGES) > /dev/null 2>&1 \
		|| { $(APT) update -q > /dev/null 2>&1 && $(APT) install -y -q $(PACKAGES) > /dev/null 2>&1; } \
		|| echo "There is no $(PROGRAM), and it cannot be installed: tests that need it are skipped."
	touch $@

$(VENV)/mpi: PROGRAM := mpirun
$(VENV)/mpi: PACKAGES := openmpi-bin libopenmpi-dev
$(VENV)/browser: PROGRAM := chromedriver
$(VENV)/browser: PACKAGES := chromium chromium-driver
$(VENV)/graphviz: PROGRAM := dot
$(VENV)/graphviz: PACKAGES := graphviz

demo: $(VENV)/core
	$(BIN)/python examples/demo.py
	$(BIN)/eindecomp run examples/multihead_attention.ein -p 2 --random --check

test: lint types layers docs unit

lint: $(VENV)/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/ready
	$(BIN)/pyright

layers: $(VENV)/ready
	$(BIN)/lint-imports

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/ready
	$(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

unit: $(VENV)/mpi $(VENV)/browser $(VENV)/graphviz
	$(BIN)/pytest

bench: $(VENV)/ready
	$(BIN)/python benchmarks/large_graphs.py
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/products.py
	$(BIN)/python benchmarks/contractions.py
	$(BIN)/python benchmarks/compiling.py
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
	$(BIN)/eindecomp bench chain
	$(BIN)/eindecomp bench ffnn
	$(BIN)/eindecomp bench llama

format: $(VENV)/ready
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV)
