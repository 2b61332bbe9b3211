# Each target works on a fresh clone: it creates .venv and installs the versions pinned in constraints.txt first.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

# Without this, some small cloud machines run all OpenMP threads on one core, which is very slow.
export OMP_PROC_BIND ?= true

# Processes of one thread each, because most tests are too small for two threads; with OMP_PROC_BIND all would run on one
# core. Three for two cores, as some tests wait for other processes.
# The GPU kernels are tested on the CPU, by Triton's interpreter; `make test-gpu` runs them on the GPU itself.
.PHONY: demo check pytest test test-all test-gpu coverage docs format clean

# A few minutes on a CPU; each run has its own directory, runs/demo, runs/demo-2, ...
demo: $(READY)
	$(BIN)/softspin demo

# PYTHONDONTWRITEBYTECODE, which container images often set, would make each of many processes compile torch again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_PROC_BIND=false OMP_NUM_THREADS=1 TRITON_INTERPRET=1 $(BIN)/pytest -n 3 --dist worksteal

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# All tests except slow ones, which repeat other tests at larger size. At the same time as the checks, which use one core.
test: $(READY)
	$(MAKE) --no-print-directory --jobs 2 check pytest

pytest: $(READY)
	$(PYTEST) -m 'not slow'

test-all: check
	$(PYTEST)

# Summary on the terminal, details by line in htmlcov/index.html.
coverage: $(READY)
	$(PYTEST) -m 'not slow' --cov --cov-report=term --cov-report=html

test-gpu: $(READY)
	$(BIN)/pytest tests/kernels
	$(BIN)/pytest -m gpu --ignore tests/kernels

# Documentation in site/. The build runs the tutorials and treats warnings as errors.
docs: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --fresh-env --write-all --fail-on-warning --keep-going --quiet -d site/.doctrees docs site

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV)

# Files with another SHA-256 than in requirements.txt are rejected. It is for Linux; `make LOCKED=` does without it.
LOCKED := $(if $(filter Linux,$(shell uname -s)),requirements.txt)
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -q

# --no-compile: most modules of the packages are never imported. What is left for the second command is torch, whose build
# depends on the machine, and what other systems need.
$(READY): pyproject.toml constraints.txt requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "softspin needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),$(PIP) --no-deps --require-hashes -r $(LOCKED))
	PIP_CONSTRAINT=constraints.txt $(PIP) -e '.[dev]'
	@touch $(READY)
