# The verbs. `make run` and `make test` do all the set-up they need; CI calls `make test` and nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Tiny steps of torch and XGBoost wait ten times longer on a busy machine when threads spin.
export OMP_WAIT_POLICY ?= passive
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: run ui test lint types contracts unit test-ui bench clean

run: $(READY)
	@gristmill run flights

ui: $(READY)
	@gristmill ui

test: lint types contracts unit

lint: $(READY)
	ruff format --check .
	ruff check .
	codespell
	gristmill check

types: $(READY)
	mypy

contracts: $(READY)
	lint-imports

unit: $(READY)
	pytest -m "not ui"

test-ui: $(READY)
	pytest -m ui

bench: $(READY)
	python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	python -m benchmarks

$(READY): pyproject.toml constraints.txt
	@echo "setting up .venv (some minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[examples,dev]'
	@touch $@

clean:
	rm -rf .venv .gristmill .dagster pipelines/*/data
