# Needs Python 3.11 or later, make and pip. Everything else is installed into .venv.

PYTHON ?= python3
ARGS ?=
# Number of test processes; 0 runs all tests in one process, in order. One more than cores, since many tests wait.
WORKERS ?= 3
# The tests of a file share fixtures. tests/conftest.py orders the files.
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Seed of a chaos run (random by default), its length, and the length of a soak.
SEED ?=
MINUTES ?= 3
HOURS ?= 1

VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
RUN := $(VENV)/.ready-to-run
DEV := $(VENV)/.ready-to-develop
# Versions of Queen's clients that the tests use, each installed into a directory of its own.
QUEEN := 0.15 2.6
# Longest first, since two run at a time.
CHECKS := check-types check-docs check-style check-layers check-generated
CODE := $(wildcard src tests benchmarks chaos examples scripts)

# Suppresses the announcement of the documentation theme.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast test-long chaos soak check audit format types bench coverage docs lock dist clean distclean $(CHECKS)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(DEV) ## Set up .venv; the other targets do so by themselves
	@echo "$(VENV) is ready"

demo: $(RUN) ## Run the whole product on simulated traffic, in a browser (ARGS="log" for queues only)
	@$(BIN)/penstock demo $(ARGS)

test: $(DEV) ## Run all tests (ARGS="-k lease" for some)
	@$(BIN)/python scripts/install_chromium.py
	@$(BIN)/penstock prepare --quiet || true # 50 JVMs start; a Java without class archives is slower, and works
	@$(BIN)/pytest -m "not long" $(PARALLEL) $(ARGS)

test-fast: $(DEV) ## Run the tests that need neither a JVM nor a browser, in under two minutes
	@$(BIN)/pytest -m "not long and not slow and not spark and not browser" $(PARALLEL) $(ARGS)

test-long: $(DEV) ## Run the tests that take minutes: drivers killed thirty times, clusters, restored backups
	@$(BIN)/pytest -m long $(ARGS)

chaos: $(DEV) ## Run the whole system under faults (SEED=7 MINUTES=3, ARGS=--cluster)
	@$(BIN)/python -m chaos --seed $(SEED) --minutes $(MINUTES) $(ARGS)

soak: $(DEV) ## Run the whole system under steady load for HOURS=1 and check that its curves are flat
	@$(BIN)/python -m chaos.soak --hours $(HOURS) $(ARGS)

check: $(DEV) ## Formatting, lint, types, layers, generated code, documentation
	@$(MAKE) --no-print-directory --jobs 2 $(CHECKS)
	@echo "All checks passed."

check-types:
	@echo "mypy"; $(BIN)/mypy --no-error-summary $(CODE)

check-docs:
	@echo "mkdocs"; $(BIN)/mkdocs build --strict --quiet

check-style:
	@echo "ruff format"; $(BIN)/ruff format --quiet --diff $(CODE)
	@echo "ruff check"; $(BIN)/ruff check --quiet $(CODE)

check-layers:
	@echo "import-linter"; out=$$($(BIN)/lint-imports --no-logo) || { echo "$$out"; exit 1; }

check-generated:
	@echo "generate_sync"; $(BIN)/python scripts/generate_sync.py --check
	@echo "generate_openapi"; $(BIN)/python scripts/generate_openapi.py --check

audit: $(DEV) ## Look up all pinned packages among known vulnerabilities (needs a network)
	@$(BIN)/python scripts/audit.py

format: $(DEV) ## Format the code and apply the fixes of ruff
	@$(BIN)/ruff check --fix --exit-zero $(CODE)
	@$(BIN)/ruff format $(CODE)

types: $(DEV) ## Check types only
	@$(BIN)/mypy $(CODE)

bench: $(DEV) ## Run all benchmarks and write docs/benchmarks/ (ARGS="--only log,drain")
	@$(BIN)/python -m benchmarks all $(ARGS)

coverage: $(DEV) ## Run all tests and report the lines they miss
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

docs: $(DEV) ## Build the documentation into site/
	@$(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

lock: $(DEV) ## Pin requirements/*.txt again (ARGS=--upgrade for newer releases)
	@$(call compile,base,--extra spark --extra tracing --extra console pyproject.toml)
	@$(call compile,dev)
	@$(call compile,docs)
	@$(foreach version,$(QUEEN),$(call compile,queen-$(version)) &&) true

dist: $(DEV) ## Build the wheel and the source archive into dist/
	@$(BIN)/hatchling build

clean: ## Remove everything that was built, except .venv
	@rm -rf dist site .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove .venv too
	@rm -rf $(VENV)

# The output names no index and no directory, so it does not depend on the machine.
compile = echo "requirements/$(1).txt"; $(BIN)/uv pip compile --quiet --no-config --universal \
	--python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock" $(ARGS) $(2) requirements/$(1).in -o requirements/$(1).txt

$(RUN): requirements/base.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or later: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(BIN)/python -m pip --version > /dev/null 2>&1 || \
		{ echo "Creating $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "Installing Penstock and its dependencies into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/base.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUN) requirements/dev.txt requirements/docs.txt $(QUEEN:%=requirements/queen-%.txt)
	@echo "Installing the tools for tests, checks and documentation"
	@$(PIP) install --require-hashes -r requirements/dev.txt -r requirements/docs.txt
	@$(foreach version,$(QUEEN),rm -rf $(VENV)/queen-$(version) && $(PIP) install --require-hashes \
		--target $(VENV)/queen-$(version) -r requirements/queen-$(version).txt &&) true
	@touch $@
