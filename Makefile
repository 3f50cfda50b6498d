# `make run` shows the thing at work; `make test` checks a change in minutes, `make check` the rest: servers, Spark, every
# death. Each does its own set-up in .venv.

.DEFAULT_GOAL := help
.PHONY: help run test types tests check docs laws browser integration matrix marathon proof mutants coverage soak bench \
	dist clean

python = .venv/bin/python
HOURS ?= 1
ROUNDS ?= 20
ifndef SEED
SEED := $(shell date +%s)
endif
covered = 'persistent/storage/*,persistent/driver/commit.py,persistent/driver/publish.py,persistent/checkpoint/*,persistent/codec/*'
covering = tests/driver/test_commit*.py tests/driver/test_publish_*.py tests/checkpoint tests/codec tests/storage \
	tests/operations/test_savepoints.py tests/operations/test_collection.py tests/worker/test_merge_runs.py
MINUTES ?= 40
BENCH ?= start clicks views checkpoint memory many_steps kernels sketches verify stores kafka log sinks copies late changes sliding week page

help:
	@echo 'make run     make events, run a task over them, kill its driver twice with -9, compare every row'
	@echo 'make test    linter, types, doctests and all short tests; ONLY=persistent/driver: of one room, or module'
	@echo 'make check   the other tests: real servers, Spark, kills at one in four operations, every law on 200 examples;'
	@echo '             SEED= repeats the draw, and CASES=all kills at every operation'
	@echo 'make integration  sources and sinks on the servers that it starts: suites, a round of the matrix; SEED= repeats it'
	@echo 'make matrix  every source and sink beside every accident, in ROUNDS=20, and its page in the docs'
	@echo 'make marathon  Kafka to PostgreSQL and Kafka, a topic, a queue: everything dies in turn, MINUTES=5 each'
	@echo 'make docs    the pages as a site, in build/site'
	@echo 'make browser the page that shows jobs, drawn in Chromium'
	@echo 'make laws    every law on every monoid, on 5,000 examples each (make test: 12, make check: 200)'
	@echo 'make proof   crashes, errors, drivers and corruption in all their cases: one table, in MINUTES=40'
	@echo 'make mutants small changes to what stores and commits, and whether tests notice; goes on where it ended'
	@echo 'make coverage every branch of the same code must be taken by its tests'
	@echo 'make soak    the same with other seeds until HOURS=n are over'
	@echo 'make bench   the benchmarks, one after the other; BENCH="views memory" chooses'
	@echo 'make dist    wheel and source archive, checked, installed in a new environment and tried; a bill of materials'
	@echo 'make clean   remove what these have made'

# Hundreds of the tests start a Python of their own: from byte code it starts in half the time, whatever the shell says.
test check integration matrix marathon: export PYTHONDONTWRITEBYTECODE =
# What the rounds of a run are drawn from, and which share of the longest rows of cases make check tries.
check integration matrix: export SEED := $(SEED)
integration: export CASES = all
# In memory where 8 GB of it are free: a disk syncs for a third of the time. Nothing here depends on a disk's own ways.
ifneq ($(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 8000000'),)
test check: export TMPDIR = /dev/shm
endif
# A fifth of the examples of Hypothesis; make check tries them all.
test: export EXAMPLES = few

run: .venv/installed
	$(python) examples/demo.py

test: .venv/installed
ifdef ONLY
	$(python) -m tests.only $(ONLY)
else
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	@# Types beside the tests, so that no processor waits.
	@$(MAKE) --no-print-directory --jobs=2 types tests
endif

types:
	$(python) -m mypy monoids persistent pytest_monoids.py pytest_persistent.py tests/typing/user_task.py examples

tests:
	$(python) -m pytest -n 2 -m 'not check' --durations=10

check: .venv/installed
	@echo 'the seed of this run is $(SEED)'
	@# Three for two processors: servers and Spark are waited for half of the time.
	$(python) -m pytest -n 3 -m '(check or hypothesis) and not apart' --durations=10
	$(python) -m pytest -n 2 --monoid-laws=monoids --monoid-laws-examples=200 --quiet

# Each test has a minute; what has to be fetched is fetched before. Where CI is set, a server that is missing is a failure.
integration: .venv/installed
	@echo 'SEED=$(SEED) make integration repeats this run'
	$(python) -m tests.servers.install
	$(python) -m pytest -n 2 -m integration --durations=10

matrix: .venv/installed
	$(python) -m tests.integration.matrix $(ROUNDS) $(SEED) docs/evidence/matrix.md

marathon: .venv/installed
	$(python) -m tests.integration.marathon $(if $(filter command line,$(origin MINUTES)),$(MINUTES),5) $(SEED)
	$(python) -m tests.integration.marathon_topic $(if $(filter command line,$(origin MINUTES)),$(MINUTES),5) $(SEED)
	$(python) -m tests.integration.marathon_queue $(if $(filter command line,$(origin MINUTES)),$(MINUTES),5) $(SEED)

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

# More of them than make check draws.
browser: .venv/installed
	$(python) -m pytest -m browser

laws: .venv/installed
	$(python) -m pytest -n 2 --monoid-laws=monoids --monoid-laws-examples=5000 --timeout=0

proof: .venv/installed
	$(python) -m tests.proof --minutes $(MINUTES)

mutants: .venv/installed
	$(python) -m tests.proof.mutants --all --write docs/evidence/proof.md

coverage: .venv/installed
	$(python) -m coverage run --branch --include=$(covered) -m pytest $(covering)
	$(python) -m coverage report --show-missing --fail-under=100

soak: .venv/installed
	$(python) -m tests.proof --hours $(HOURS) --seed 1

bench: .venv/installed-bench
	@for name in $(BENCH); do echo "$$ $(python) -m benchmarks.$$name"; $(python) -m benchmarks.$$name || exit 1; done

# Nothing is uploaded.
dist: .venv/installed-dist
	rm -rf build dist *.egg-info
	$(python) -m build --outdir dist .
	$(python) -m twine check --strict dist/*
	$(python) -m tests.distribution dist --install

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants .coverage spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first of these that runs, is new enough and can make a virtual environment. An older pip than the newest tries many
# more versions before it finds those that fit.
# setuptools warns of each editable installation, in ten lines that help nobody.
.venv/installed: setup.cfg pyproject.toml
	@test -x $(python) || for found in python3.13 python3.12 python3.11 python3; do \
		$$found -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "making .venv with $$found"; $$found -m venv .venv && break; \
	done
	@test -x $(python) || { echo 'no Python 3.11 or newer with venv found (Debian: apt-get install python3-venv)'; exit 1; }
	$(python) -m pip install --quiet --disable-pip-version-check --upgrade pip
	PYTHONWARNINGS=ignore $(python) -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

.venv/installed-docs: .venv/installed
	PYTHONWARNINGS=ignore $(python) -m pip install --quiet --disable-pip-version-check --editable '.[test,docs]'
	@touch $@

.venv/installed-dist: .venv/installed
	PYTHONWARNINGS=ignore $(python) -m pip install --quiet --disable-pip-version-check --editable '.[test,dist]'
	@touch $@

.venv/installed-bench: .venv/installed
	PYTHONWARNINGS=ignore $(python) -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@
