# Every target installs what it needs into .venv first: the demo the package alone, all others what
# development needs. Settings: PYTHON=python3.12, VENV=folder,
# WORKERS=processes of the tests.

# Tests start hundreds of interpreters, each of which would compile the project.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
# One more than there are processors: many tests wait for a process of their own.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
INSTALLED := $(VENV)/.installed
# Only the driver knows whether its GPU can be used.
ACCELERATOR = $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

.DEFAULT_GOAL := help
.PHONY: help demo test test-most test-all numeric-tests portable check lint types architecture audit advisories docs figures screenshots bench gpu gpu-carried mutants fuzz campaign compose-test evidence formats papers-quick study-quick study-scratch study-losses study-spread study-ablations study-pruning study-selection format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## score bundled images offline, show the hardest and the easiest
	$(BIN)/difficulty demo

# A file's tests share fixtures and stay in one process. WORKERS=0 runs all in one, for a debugger.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
    --durations 10

test: $(INSTALLED) ## the tests, but for slow ones and those in a browser (seven minutes)
	$(PYTEST) -m 'not slow'

test-most: $(INSTALLED) ## the tests, but for long ones (a quarter of an hour)
	$(PYTEST) -m 'not long'

test-all: $(INSTALLED) numeric-tests ## all tests, before a release and after a change to what only long ones show (half an hour)
	$(PYTEST)

# Losses, metrics, statistics and gradients, on processors that can do less than this one.
NUMERIC := tests/trainer/losses tests/trainer/metrics tests/difficulty_service/gaussians \
    tests/trainer/training/test_strided_convolutions.py

# One process for each set of instructions, side by side: starting more takes longer than the tests.
# Each has a folder of its own, since pytest cannot tidy up one that another process tidies up.
numeric-tests: $(INSTALLED)
	@mkdir -p build; for set in SSE4.2 AVX2; do \
	    $(BIN)/python -m benchmarks.processors --as $$set --unless-native \
	        $(BIN)/python -m pytest -q -n 0 -p no:cacheprovider --basetemp build/tests-$$set $(NUMERIC) & \
	    started="$$started $$!"; \
	done; \
	for one in $$started; do wait $$one || exit 1; done

# glibc checks its heap at every call where its debugging library is loaded.
portable: $(INSTALLED) ## numeric tests and scores as on every processor (half an hour)
	@for set in SSE4.2 AVX2 AVX-512; do for threads in 1 2; do \
	    GLIBC_TUNABLES=glibc.malloc.check=3 LD_PRELOAD=libc_malloc_debug.so.0 \
	    $(BIN)/python -m benchmarks.processors --as $$set --threads $$threads \
	        $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 4 $(NUMERIC) \
	        tests/difficulty_service/scorers tests/difficulty_service/backbones \
	        tests/trainer/models tests/trainer/training || exit 1; \
	done; done
	$(BIN)/python -m benchmarks.processors

# What keeps one processor busy goes side by side; the tests build the site of `make docs` themselves.
check: $(INSTALLED) ## everything that must pass before a change lands (twenty minutes)
	$(MAKE) --no-print-directory --jobs 2 --output-sync types numeric-tests lint architecture audit
	$(MAKE) --no-print-directory test-most

lint: $(INSTALLED) ## style and likely bugs (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## types (mypy, strict)
	$(BIN)/mypy

audit: $(INSTALLED) ## known holes in the pinned packages (OSV, or the stored advisories without a network)
	$(BIN)/python .ci/audit.py

advisories: $(INSTALLED) ## bring the stored advisories up to date (needs a network)
	$(BIN)/python .ci/audit.py --store

architecture: $(INSTALLED) ## who may import whom (import-linter)
	$(BIN)/lint-imports

docs: $(INSTALLED) ## the site of the pages, the commands and the Python API, in site/ (Sphinx)
	rm -rf site
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env \
	    --doctree-dir build/doctrees docs site

figures: $(INSTALLED) ## draw the figures of the pages from the numbers in docs/figures
	$(BIN)/python docs/figures/draw.py

screenshots: $(INSTALLED) ## take the pictures of pages that the documentation shows (needs Chromium)
	$(BIN)/python -m docs.images.screenshots

bench: $(INSTALLED) ## speed and memory beside other packages and the machine's limit
	@ended_early=; for name in $$(basename -s .py $$(grep -l __main__ benchmarks/*.py)); do \
	    echo "$$name"; $(BIN)/python -m "benchmarks.$$name" || ended_early="$$ended_early $$name"; \
	done; [ -z "$$ended_early" ] || { echo "ended early:$$ended_early"; exit 1; }

# CARRIED=build/carried: on a machine without a network, whose python3 has PyTorch and SciPy.
gpu: $(if $(CARRIED),,$(INSTALLED)) ## what an NVIDIA GPU does: tests, extraction, statistics, training (ten minutes)
	$(if $(CARRIED),python3 -m benchmarks.gpu.carried run $(CARRIED),$(BIN)/python -m benchmarks.gpu)

gpu-carried: $(INSTALLED) ## pack what `make gpu CARRIED=build/carried` needs beside PyTorch (minutes)
	$(BIN)/python -m benchmarks.gpu.carried pack

# Two of every ten changes of a function.
MUTANTS ?= *mutmut_*[15]
MUTMUT = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/build/mutmut $(BIN)/python -m mutmut

mutants: $(INSTALLED) ## change central modules in hundreds of places, count what no test notices (an hour, resumes)
	$(BIN)/python .ci/install.py --target build/mutmut -c constraints.txt mutmut==3.8.1
	$(MUTMUT) run --max-children 2 '$(MUTANTS)'
	@$(MUTMUT) results --all true | grep -v 'not checked' | tee mutants/results.txt \
	    | sed 's/^ *\(.*\)\.[^.]*: /\1 /' | sort | uniq -c
	@grep survived mutants/results.txt || true

fuzz: $(INSTALLED) ## damage 30,000 files, send a service 500,000 changed requests and files (an hour or more)
	DIFFICULTY_DAMAGED_FILES=30000 $(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 -q \
	    tests/faults/test_damaged_files.py
	DIFFICULTY_CONTRACT_EXAMPLES=100 $(BIN)/python -m pytest -n 0 -q tests/api/live/test_contract.py
	DIFFICULTY_AHEAD=41943040 $(BIN)/python -m pytest -n 0 -q tests/api/live/test_endless_requests.py
	DIFFICULTY_MARKS=1000000 $(BIN)/python -m pytest -n 0 -q tests/api/live/test_many_marks.py
	DIFFICULTY_FUZZ=500000 DIFFICULTY_FUZZ_FROM=640 $(BIN)/python -m pytest -n 0 \
	    -o log_cli=true --log-cli-level INFO --log-disable httpx2 tests/api/live/test_fuzz.py

CAMPAIGN = DIFFICULTY_CAMPAIGN_TABLE=docs/security/campaign.csv $(BIN)/python -m pytest -n 0 \
    -o log_cli=true --log-cli-level INFO --log-disable httpx2 tests/faults/test_fault_campaign.py

campaign: $(INSTALLED) ## review photographs in two rounds; kill and pause the service 1,000 times; simulate its queue (hours)
	DIFFICULTY_REVIEWS=1 $(BIN)/python -m pytest -n 0 -q -s tests/browser/real/test_two_rounds.py
	DIFFICULTY_KILLS=500 $(CAMPAIGN)
	DIFFICULTY_KILLS=40 DIFFICULTY_NEW_INTERPRETERS=1 $(CAMPAIGN)
	$(BIN)/python docs/campaign.py
	DIFFICULTY_QUEUE_STEPS=1000000 $(BIN)/python -m pytest -n 2 -q -o timeout=0 tests/api/jobs/test_simulation.py
	DIFFICULTY_EXTRACTION_KILLS=20 $(BIN)/python -m pytest -n 0 -q -k kills \
	    tests/end_to_end/test_resume.py tests/end_to_end/test_interrupted_update.py

# PYTHON_IMAGE names a local image with Python where no registry is reached; then database and
# proxy come from Debian's packages on it.
compose-test: $(INSTALLED) ## run docker/compose.yaml: score, kill, restart, upgrade, back up, restore (minutes)
	DIFFICULTY_COMPOSE=1 $(BIN)/python -m pytest -n 0 -q -rs -s tests/docker/test_compose_run.py

evidence: $(INSTALLED) ## every score beside other packages, written to docs/evidence/*.csv and its page (three hours, resumes)
	$(BIN)/python -m benchmarks.evidence.run
	$(BIN)/python -m benchmarks.evidence.ambiguity
	$(BIN)/python -m benchmarks.evidence.counts
	$(BIN)/python -m benchmarks.evidence.kinds
	$(BIN)/python -m benchmarks.evidence.encoders
	$(BIN)/python -m benchmarks.evidence.training.trust
	$(BIN)/python -m benchmarks.evidence.image_tags
	$(BIN)/python -m benchmarks.evidence.objects
	$(BIN)/python -m benchmarks.evidence.copies
	$(BIN)/python -m benchmarks.evidence.selection

formats: $(INSTALLED) ## read what other programs write, and open exports in them (six minutes, installs them in .formats)
	$(BIN)/python -m benchmarks.formats
	$(BIN)/python -m benchmarks.formats.round_trips
	$(BIN)/python -m benchmarks.formats.fields

papers-quick: $(INSTALLED) ## every row of docs/papers.md in a reduced form (half an hour, resumes)
	$(BIN)/python -m benchmarks.papers_quick

study-quick: $(INSTALLED) ## train probes on CIFAR-10 with clean and wrong labels, every loss (80 minutes)
	$(BIN)/python -m benchmarks.studies.quick

study-scratch: $(INSTALLED) ## train small networks on CIFAR-10 from scratch (hours, resumes)
	$(BIN)/python -m benchmarks.studies.scratch

study-losses: $(INSTALLED) ## train small networks with every loss and three seeds (45 minutes, resumes)
	$(BIN)/python -m benchmarks.studies.losses

study-pruning: $(INSTALLED) ## train small networks on what each choice of images keeps (three hours, resumes)
	$(BIN)/python -m benchmarks.studies.pruning

study-selection: $(INSTALLED) ## train small networks on what each strategy chose to label (forty minutes, resumes)
	$(BIN)/python -m benchmarks.studies.selection

study-ablations: $(INSTALLED) ## train small networks: which part of a method counts (three hours, resumes)
	$(BIN)/python -m benchmarks.studies.ablations

study-spread: $(INSTALLED) ## train probes: does it matter which sample has which weight (half an hour, resumes)
	$(BIN)/python -m benchmarks.studies.spread

format: $(INSTALLED) ## lay out the code and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and every tool's cache
	rm -rf $(VENV) .formats build dist mutants site *.egg-info .hypothesis .import_linter_cache .mypy_cache \
	    .pytest_cache .ruff_cache

# Some systems ship Python without ensurepip; there the system's pip fills the environment.
$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { \
	    $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(BIN)/python .ci/install.py -c constraints.txt -e .
	@touch $@

$(INSTALLED): $(RUNTIME)
	$(BIN)/python .ci/install.py --compile-bytecode -c constraints.txt -e '.[$(ACCELERATOR),dev]'
	@touch $@
