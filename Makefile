# What people run. Each target does its own set-up; a second run of it takes seconds and works offline.

SHELL := /bin/bash
WORKERS ?= 2
KILLS ?= 50
LOGS ?=
SECONDS ?= 600

.PHONY: help setup demo test lint format faults fuzz docs clean

help:  ## Show the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1|/' | column -t -s '|'

setup:  ## Set everything up: system packages, Python packages, the connector's jars
	@scripts/setup.sh

demo: setup  ## Run the whole job on real input and show what came out; LOGS=DIR feeds a directory of log files
	@.venv/bin/python examples/demo.py $(if $(LOGS),--logs "$(LOGS)")

test: setup  ## Style, types, contracts and all tests
	@WORKERS=$(WORKERS) scripts/check.sh lint test

lint: setup  ## Style, types and contracts alone
	@scripts/check.sh lint

faults: setup  ## The long fault runs in full; KILLS=50
	@LOGBOOM_TEST_KILLS=$(KILLS) scripts/check.sh faults

fuzz: setup  ## Strange requests, drawn for so long, half of it by many clients at once; SECONDS=600
	@LOGBOOM_FUZZ_SECONDS=$$(($(SECONDS) / 2)) scripts/check.sh fuzz

format: setup  ## Lay out the code
	@.venv/bin/ruff format && .venv/bin/ruff check --fix

docs: setup  ## Write the generated pages anew
	@.venv/bin/logboom config reference > docs/configuration.md

clean:  ## Remove what was built, and nothing that was stored
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
