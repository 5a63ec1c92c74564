SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --no-input --disable-pip-version-check
WORKERS ?= 2
# Benchmarks know --short; the one whose size has its own options is named here.
SHORT_learning := --seeds 1 --steps 20 --out $(VENV)/learning-short.json
BENCHMARKS := $(notdir $(basename $(shell grep -l __main__ bench/*.py)))
PINS := pyproject.toml constraints.txt

export HF_HUB_DISABLE_TELEMETRY := 1
export STREAMLIT_BROWSER_GATHER_USAGE_STATS := false

.PHONY: help demo test check bench format install install-dev tools clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed  ## Train a tiny model with ExGRPO and Dr.GRPO, then show it (HEADLESS=1 ends with JSON)
	@$(BIN)/exgrpo demo $(if $(filter-out 0,$(HEADLESS)),--headless)

test: $(VENV)/.installed-dev tools  ## Run all tests; exgrpo_core must be covered to 95% (ARGS="..." goes to pytest)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile \
		--cov=exgrpo_core --cov-report=term:skip-covered --cov-fail-under=95 $(ARGS)

check: $(VENV)/.installed-dev  ## Check format, lint, types and import contracts
	@failed=0; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	exit $$failed

bench: $(VENV)/.installed-bench  ## Run every benchmark in short form (LONG=1: in full)
	@failed=0; \
	$(foreach program,$(BENCHMARKS),echo "== bench.$(program)"; \
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.$(program) \
		$(if $(filter-out 0,$(LONG)),,$(or $(SHORT_$(program)),--short)) || failed=1;) \
	exit $$failed

format: $(VENV)/.installed-dev  ## Format the code and mend what lint can mend
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

install: $(VENV)/.installed  ## Make .venv and install the workbench into it
install-dev: $(VENV)/.installed-dev  ## The same with everything that tests and checks need

tools:  ## Install Chromium and PostgreSQL for the tests, where missing and allowed
	@.ci/tools

clean:  ## Remove .venv, caches and build products; runs stay
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* *.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate may be on PATH and yet not run (a pyenv shim of a version that is not selected), so each is tried.
$(BIN)/python:
	@for candidate in $(PYTHON) python3 python3.12 python3.11 python; do \
		if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
			>/dev/null 2>&1; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
		echo "No Python 3.11 or 3.12 with venv runs from PATH: install one, or name it with PYTHON=/path/to/python3.12." >&2; \
		exit 1; \
	fi; \
	echo "Making $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv $(VENV)

$(VENV)/.installed: $(PINS) | $(BIN)/python
	@echo "Installing the workbench into $(VENV) (a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what tests and checks need"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "Installing what benchmarks compare with"
	@$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@
