# Everything below runs in .venv, which is made on first use and again only when
# pyproject.toml or constraints.txt change. Name another interpreter with PYTHON=...

VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# Any problem that needs tabu search: its machine code is kept, so no later search waits for it.
COMPILE := $(RUN) -m synth solve -P 4 -m 8 --costs 10,20,5,1 --memory 4 --placement v -q --time-limit 1
EXTRAS := torch,cpsat,plot,test,lint

# The first interpreter that is new enough; 3.11 first because the pinned versions were made with it.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	>/dev/null 2>&1 && echo $$python && break; done)

.DEFAULT_GOAL := help
.PHONY: help install demo library tutorial test test-all lint format check clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: $(STAMP)  ## make the virtual environment and install into it

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 with venv found; install one or give PYTHON=/path/to/python" >&2; exit 1; }
	@$(RUN) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)" >&2
	@$(RUN) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@echo "compiling the search" >&2
	@$(COMPILE) >/dev/null
	@touch $@

demo: $(STAMP)  ## solve, prove, train and compare, on this machine
	@$(RUN) scripts/demo.py

library: $(STAMP)  ## solve what is missing or open in schedules/, and list what is there
	@$(RUN) scripts/library.py

tutorial: $(STAMP)  ## run what docs/tutorial.md shows and put the output into it
	@$(RUN) scripts/tutorial.py

test: $(STAMP)  ## the tests, without the slow ones
	@$(RUN) -m pytest -m "not slow"

test-all: $(STAMP)  ## the tests, slow ones included
	@$(RUN) -m pytest

lint: $(STAMP)  ## style, formatting and types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

format: $(STAMP)  ## rewrite the sources in the project's format
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

check: lint test  ## what a change must pass

clean:  ## remove the virtual environment and every cache
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
