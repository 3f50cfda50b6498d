# Two commands: `make run` shows the thing at work, `make test` checks everything. Each does its own set-up in .venv.

.DEFAULT_GOAL := help
.PHONY: help run test bench clean

python = .venv/bin/python
BENCH ?= clicks views checkpoint memory many_steps

help:
	@echo 'make run     make events, run a task over them, kill its driver twice with -9, compare every row'
	@echo 'make test    linter, types, doctests and all tests'
	@echo 'make bench   the benchmarks, one after the other; BENCH="views memory" chooses'
	@echo 'make clean   remove what these have made'

run: .venv/installed
	$(python) examples/demo.py

test: .venv/installed
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy monoids persistent tests/typing/user_task.py
	$(python) -m mypy --config-file= --ignore-missing-imports examples
	$(python) -m pytest

bench: .venv/installed-bench
	@for name in $(BENCH); do echo "$$ $(python) -m benchmarks.$$name"; $(python) -m benchmarks.$$name || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first of these that runs, is new enough and can make a virtual environment.
.venv/installed: setup.cfg pyproject.toml
	@test -x $(python) || for found in python3.13 python3.12 python3.11 python3; do \
		$$found -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
		echo "making .venv with $$found"; $$found -m venv .venv && break; \
	done
	@test -x $(python) || { echo 'no Python 3.11 or newer with venv found (Debian: apt-get install python3-venv)'; exit 1; }
	$(python) -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

.venv/installed-bench: .venv/installed
	$(python) -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@
