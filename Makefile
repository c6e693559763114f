# The verbs of this repository. `make` or `make help` prints them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# Another Python than that on the PATH: PYTHON=python3.12 make venv. Without internet: WHEELS=FOLDER make venv (docs/00-first-day.md).
WHEELS ?=
# An index from which torch alone comes, such as PyTorch's of CPU builds; everything else is from pip's own. (An extra index for pip would
# answer for every name: whoever puts a package there under the name of another is installed.)
TORCH_INDEX ?=
NODES ?= 2
GPUS ?= 2
VENV := $(shell bash infrastructure-validation/scripts/venv.sh)
PY := $(VENV)/bin/python
CLUSTER := infrastructure-validation/local-cluster/cluster

# Tests start Python a thousand times: it compiles a module once, and not each time
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup venv venv-light constraints local cluster cluster-down test test-all test-virtual drill lint unit golden live live-session live-drills live-phases live-rest live-health generated pictures validators clean

help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: ## everything for the local cluster: Debian packages and .venv with the tools of development; idempotent
	@infrastructure-validation/local-cluster/setup.sh
	@$(MAKE) --no-print-directory $(VENV)/installed-dev

venv: $(VENV)/installed ## the Python environment alone: all that a real cluster's login host needs
	@:

venv-light: $(VENV)/installed-light ## the same without torch, in a minute: discovery, most of smoke, and the judge
	@:

# A build of torch for another CUDA names its own versions of NVIDIA's libraries.
CONSTRAINTS := $(if $(TORCH_INDEX),$(VENV)/constraints.txt,training/constraints.txt)
PIP := $(PY) -m pip install --quiet --disable-pip-version-check $(if $(WHEELS),--no-index --find-links '$(WHEELS)') --constraint $(CONSTRAINTS)

$(VENV)/installed-light: pyproject.toml training/constraints.txt
	@$(PY) -c 'import pip' 2>/dev/null || { python=$$(bash infrastructure-validation/scripts/venv.sh --python) && "$$python" -m venv $(VENV); }
	@uname -m >$(VENV)/architecture
	@grep -vE '^(cuda-|nvidia-[^m]|triton=)' training/constraints.txt >$(VENV)/constraints.txt
	@$(PIP) --editable .
	@touch $@

# another build of torch than the one that is there
ifneq ($(TORCH_INDEX),)
ifneq ($(TORCH_INDEX),$(shell cat $(VENV)/torch-index 2>/dev/null))
.PHONY: $(VENV)/installed
endif
endif

$(VENV)/installed: $(VENV)/installed-light
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  PYTHON=$(PY) bash infrastructure-validation/scripts/venv.sh --need '3.11 or newer for torch (without it $(VENV) is enough for discovery and smoke; remove it first, or name another in BRINGUP_VENV)'
	@echo "installing into $(VENV), which takes minutes: about 6 GB with torch for CUDA; 1.5 GB with torch for CPUs (README: TORCH_INDEX)"
	@$(if $(TORCH_INDEX),$(PIP) --no-deps --force-reinstall --index-url '$(TORCH_INDEX)' torch && echo '$(TORCH_INDEX)' >$(VENV)/torch-index)
	@$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")' | \
	  $(PIP) --requirement /dev/stdin
	@$(if $(WHEELS),,tests/validators/fetch)
	@touch $@

# A version for every package that is installed, also those that nobody names; for the oldest Python that torch is for. No hashes: the CPU
# and CUDA builds of torch are one version with different files. The libraries of CUDA are those of the CUDA build.
constraints: $(VENV)/installed-dev ## training/constraints.txt anew: versions for what pyproject.toml pins (UPGRADE=1: the newest ones)
	$(VENV)/bin/uv pip compile --quiet $(if $(UPGRADE),--upgrade) --python-platform linux --python-version 3.11 --extra train --extra dev \
	  --no-annotate --custom-compile-command 'make constraints' --output-file training/constraints.txt pyproject.toml

local: setup ## start a local cluster, run phases 1-6, print the verdicts, stop it (NODES=2 GPUS=2)
	@infrastructure-validation/local-cluster/playbook --nodes $(NODES) --gpus $(GPUS)

cluster: setup ## start a local cluster and open a prompt on its login host (NODES=2 GPUS=2)
	@$(CLUSTER) up --nodes $(NODES) --gpus $(GPUS)
	@$(CLUSTER) sh

cluster-down: ## end the local cluster; leaves nothing behind
	@$(CLUSTER) down

test: setup ## lint, unit tests, and one session on a local cluster, side by side: before every change
	@FEWER_TESTS=1 $(MAKE) --no-print-directory --jobs=3 --output-sync=line lint unit live-session

test-all: setup ## everything: all seeds, all recordings, all tests with local clusters; before a change that lands big
	@$(MAKE) --no-print-directory --jobs=5 --output-sync=line lint unit live-drills live-phases live-rest
	@$(MAKE) --no-print-directory live-health

test-virtual: venv ## faults that need kernels of their own, on virtual nodes under QEMU; an hour and more (local-cluster/virtual/README.md)
	@trap '$(CLUSTER) down' EXIT; trap 'exit 130' INT TERM HUP; $(CLUSTER) up --virtual --nodes $(NODES) || exit 2; \
	  $(PY) validation/benchmarks/virtual_faults.py

drill: setup ## the whole catalogue of faults, made and found on a local cluster
	$(VENV)/bin/bringup drill

lint: setup ## lines per room, ruff (format and check), mypy --strict, import arrows, codespell, shellcheck
	$(PY) tests/sizes.py
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	MYPYPATH=validation $(PY) -m mypy docs/generated.py
	MYPYPATH=validation:training/src $(PY) -m mypy --ignore-missing-imports training/src
	$(VENV)/bin/lint-imports --no-cache
	git ls-files -z -- ':!tests' ':!docs/results/pictures' | xargs -0 $(VENV)/bin/codespell
	git ls-files -z -- '*.sh' '*.sbatch' .ci/run docs/results/keep-records infrastructure-validation/local-cluster/cluster \
	  infrastructure-validation/local-cluster/playbook infrastructure-validation/slurm/health-check docs/results/peers/health-check \
	  infrastructure-validation/scripts/part-of-a-job/srun tests/validators/{fetch,validate} | xargs -0 shellcheck -x

# all tests of a file by one process, which starts what they share once; a cluster beside them, which waits often, goes first
unit: setup ## the tests that need no cluster, on all cores
	nice -n 5 $(PY) -m pytest tests -m 'not cluster' --numprocesses logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder -o cache_dir=.pytest_cache/unit

golden: venv ## recorded runs and the catalogue: are verdicts and words as stored? (tests/golden/README.md)
	$(PY) validation/benchmarks/golden_verdicts.py --words

live: setup live-drills live-phases live-rest live-health ## the tests that start local clusters: they mostly wait

live-session: setup ## the whole playbook and a dozen faults
	$(PY) -m pytest tests/cluster/test_playbook.py tests/cluster/test_drills.py -m cluster -o cache_dir=.pytest_cache/session

# each with clusters of its own; the health check alone, because it has 3.5 s to answer and a busy machine takes longer
HEALTH := tests/cluster/test_health_check.py
DRILLS := tests/cluster/test_drills.py tests/cluster/test_nfs_like.py tests/cluster/test_partitions.py tests/cluster/test_requeue.py
PHASES := $(addprefix tests/cluster/test_,playbook.py scripts.py system_python.py first_day.py)

live-drills: setup
	$(PY) -m pytest $(DRILLS) -m cluster -o cache_dir=.pytest_cache/drills

live-phases: setup
	$(PY) -m pytest $(PHASES) -m cluster -o cache_dir=.pytest_cache/phases

live-rest: setup
	$(PY) -m pytest tests $(DRILLS:%=--ignore=%) $(PHASES:%=--ignore=%) $(HEALTH:%=--ignore=%) -m cluster

live-health: setup
	$(PY) -m pytest $(HEALTH) -m cluster -o cache_dir=.pytest_cache/health

generated: $(VENV)/installed-dev ## everything in docs that is made from data
	$(PY) docs/generated.py
	$(PY) validation/benchmarks/predictors.py
	PYTHONPATH=tests:infrastructure-validation/probes $(PY) validation/benchmarks/real_output.py

pictures: $(VENV)/installed-dev ## pictures of pages of bringup report: do they fit a narrow screen and paper? Needs Chromium, pdftotext (PAGES="a.html" INTO=folder)
	$(PY) docs/results/pictures/take.py $(PAGES) --into $(or $(INTO),.)

validators: $(VENV)/installed-dev ## other people's validators of what bringup report writes for machines, fetched for the moment (RUNS="RUN...")
	tests/validators/validate $(RUNS)

clean: cluster-down ## remove results, logs and caches; .venv stays
	rm -rf validation/results/* training/results/* slurm-logs/*.out slurm-logs/*.log .pytest_cache .mypy_cache .ruff_cache
