# Everything here runs in .venv, which is made and brought up to date first. Needed: Python 3.11 or newer, make, a package index.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := langchain,local,otel,dev,bench

# A candidate must run, not only be found: version managers leave commands on PATH that fail when called.
PYTHON_FITS := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	if $$python -c '$(PYTHON_FITS)' >/dev/null 2>&1; then echo $$python; break; fi; done)

# How many processes the tests run in. Each one that needs servers starts its own. More than the two cores of CI, since
# many tests wait for a heartbeat or a timer.
WORKERS ?= 3
ARGS ?=
SECONDS ?= 60
SEED ?=

.PHONY: help demo demo-team test ci lint format types contracts packaging bench bench-long bench-smoke chaos constraints clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo 'No Python 3.11 or newer with the venv module was found (tried python3.13, python3.12, python3.11, python3).' >&2; \
		echo 'Install one, or name one: make PYTHON=/path/to/python' >&2; exit 1; fi
	@$(PYTHON) -c '$(PYTHON_FITS)' >/dev/null 2>&1 || { \
		echo 'PYTHON=$(PYTHON) is not a Python 3.11 or newer with the venv module. Name another: make PYTHON=/path/to/python' >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -c '$(PYTHON_FITS)' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	@echo 'Installing laneway[$(EXTRAS)] into $(VENV)'
	@# The build backend comes from constraints.txt too: constraints do not reach an isolated build.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation \
		--editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP)  ## run the demo; DIR=folder to ask about, FRAMEWORK=langchain, LANEWAY_DEMO_MODEL=provider:model for a real model
	@$(BIN)/python -m examples.demo

demo-team: $(STAMP)  ## a lead and its readers, approval, kills; DIR=folder to read, LANEWAY_DEMO_MODEL for a real model
	@$(BIN)/python -m examples.team

test: $(STAMP)  ## run the tests; WORKERS=n processes (0: in this one), ARGS='-k name'
	@# Files are given out in the order of collection (see tests/conftest.py); by itself xdist has the file with the most
	@# tests begin first, and the one test that takes two minutes begin last.
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

ci:  ## what must pass before anything lands
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory contracts
	@$(MAKE) --no-print-directory test

lint: $(STAMP)  ## check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(STAMP)  ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## mypy and pyright, strict over everything shipped
	$(BIN)/mypy
	$(BIN)/pyright

contracts: $(STAMP)  ## which module may import which
	$(BIN)/lint-imports

packaging: $(STAMP)  ## build the wheel and look at it from outside (part of test)
	$(BIN)/python -m pytest -m packaging $(ARGS)

bench: $(STAMP)  ## measure for a quarter of an hour, beside what others use; ARGS=latency for one measure
	$(BIN)/python -m bench $(ARGS)

bench-long: $(STAMP)  ## measure for half an hour more: 10,000 turns, 10,000 idle lanes, 1,000 turns beside others
	$(BIN)/python -m bench --long $(ARGS)

bench-smoke: $(STAMP)  ## run each measurement once, small
	$(BIN)/python -m bench --smoke $(ARGS)

chaos: $(STAMP)  ## kill things at random for SECONDS=60; SEED=n repeats a run
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

constraints:  ## pin the newest versions that pyproject.toml allows, in a new environment
	@set -e; scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; $(PYTHON) -m venv "$$scratch"; \
	"$$scratch/bin/python" -m pip install --quiet --upgrade --editable '.[$(EXTRAS)]' setuptools; \
	{ sed -n '/^#/p' constraints.txt; \
	  "$$scratch/bin/python" -m pip freeze --all --exclude-editable --exclude pip | LC_ALL=C sort -f; } > "$$scratch/constraints.txt"; \
	mv "$$scratch/constraints.txt" constraints.txt

clean:  ## remove what was made, .venv included
	rm -rf $(VENV) .laneway build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
