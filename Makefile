# Each target does its own set-up; a second run of it takes seconds and works offline.

SHELL := /bin/bash
WORKERS ?= 5
KILLS ?= 50
LOGS ?=
SECONDS ?= 600

.PHONY: help setup demo test test-other-python test-compiled lint format faults cluster-faults fuzz docs clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|'

setup:  ## Set everything up: system packages, Python packages, jars; PYTHON=python3.13 chooses the Python; LOGBOOM_COMPILE=1 makes a compiled build in .venv-compiled too
	@scripts/setup.sh

demo: setup  ## Run collector, broker and pipeline on real logs and show the result; LOGS=DIR feeds a directory of log files
	@.venv/bin/python examples/demo.py $(if $(LOGS),--logs "$(LOGS)")

test: setup  ## Style, types, import contracts and all tests
	@WORKERS=$(WORKERS) scripts/check.sh lint test

test-other-python: setup  ## A small part of the tests with the newest Python here that is not that of .venv
	@scripts/check.sh other-python

test-compiled:  ## Compile into .venv-compiled and run the tests of what is compiled there, simulation and kills included
	@LOGBOOM_COMPILE=1 scripts/setup.sh
	@WORKERS=$(WORKERS) scripts/check.sh compiled

lint: setup  ## Style, types and import contracts
	@scripts/check.sh lint

faults: setup  ## All long fault-injection tests; KILLS=50 kills of a broker
	@LOGBOOM_TEST_KILLS=$(KILLS) scripts/check.sh faults

cluster-faults: setup  ## The part of them that is about clusters: real brokers under load, killed, paused, cut off, without their disks
	@scripts/check.sh cluster-faults

fuzz: setup  ## Random and mutated requests for SECONDS=600, half of the time from many clients at once
	@LOGBOOM_FUZZ_SECONDS=$$(($(SECONDS) / 2)) scripts/check.sh fuzz

format: setup  ## Format the code and fix lint
	@.venv/bin/ruff format && .venv/bin/ruff check --fix

docs: setup  ## Regenerate the generated pages
	@.venv/bin/logboom config reference > docs/configuration.md

clean:  ## Remove build products and caches; data directories stay
	rm -rf .venv .venv-compiled .venv-other build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
