# make demo: see it work.  make test: check everything.  make up: leave it running.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test check chaos up bench lock clean

demo: $(INSTALLED)
	$(BIN)/millrace demo

up: $(INSTALLED)
	$(BIN)/millrace up

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Real processes die for three minutes, always in the same order.
chaos: $(INSTALLED)
	$(BIN)/millrace bench chaos --seed 1 --minutes 3

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/pip install -q -c ops/requirements.lock -e '.[bench]'
	$(BIN)/millrace bench embed
	$(BIN)/millrace bench echo

$(INSTALLED): pyproject.toml ops/requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c ops/requirements.lock torch
	PYTHONWARNINGS=ignore $(BIN)/pip install -q --disable-pip-version-check -c ops/requirements.lock -e '.[dev]'
	touch $@

# Pins everything that is installed now; run it after changing pyproject.toml.
lock: 
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install -q torch==2.13.0
	$(BIN)/pip install -q -e '.[dev,bench]'
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu//' > ops/requirements.lock
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) .millrace
