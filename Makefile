# Two commands on a fresh machine: `make demo` and `make test`. Needs python3.11 (or newer), make and pip.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

# What an environment may say of other installations; the index, the proxy and certificates stay its own.
export PIP_USER := 0
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_REQUIRE_VIRTUALENV PIP_CONSTRAINT PIP_REQUIREMENT PIP_EDITABLE
unexport PIP_DRY_RUN PIP_NO_DEPS PIP_NO_BINARY PIP_IGNORE_INSTALLED PIP_REPORT PYTHONHOME
INSTALL = $(PYTHON) -m pip --python $(BIN)/python install --quiet --require-hashes

# The stamps hold the installation to the locks: a changed lock or project file installs again. What runs the product is
# installed from deploy/runtime.lock, the tools beside it from requirements.lock, of which that is a part.
.venv/.installed: deploy/runtime.lock deploy/build.lock pyproject.toml
	@echo "installing what pin runs on into .venv (about a minute; hash-locked, nothing is compiled)"
	@$(PYTHON) -m venv --without-pip .venv
	@$(INSTALL) -r deploy/runtime.lock -r deploy/build.lock
	@$(PYTHON) -m pip --python $(BIN)/python install --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

.venv/.tools: .venv/.installed requirements.lock
	@echo "installing the tools of the tests and checks into .venv"
	@$(INSTALL) -r requirements.lock
	@touch $@

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: setup
setup: .venv/.tools ## the virtual environment with all tools, from the hash-locked requirements

.PHONY: demo
demo: .venv/.installed ## the main job, end to end, on the embedded PostgreSQL
	$(BIN)/pin demo

.PHONY: up
up: .venv/.installed ## the whole stack with production defaults, until Ctrl-C
	$(BIN)/pin up

.PHONY: lint
lint: setup ## ruff, mypy strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: test
test: lint ## every check and every test
	$(BIN)/pytest

.PHONY: requirements
requirements: setup ## each requirement with the tests that prove it; fails on a gap
	$(BIN)/python -m tests.requirements

.PHONY: cases
cases: setup ## each case of docs/requirements.md with the tests that keep it; fails on a gap
	$(BIN)/python -m tests.requirements --cases

.PHONY: faults
faults: setup ## a process ended at its every border, then the invariants
	$(BIN)/python -m tests.faults

.PHONY: mutants
mutants: setup ## small breakages of the product, each against the tests of its mark; fails if one survives
	$(BIN)/python -m tests.mutants

.PHONY: chaos
chaos: setup ## faults over the whole stack under load, then the invariants (MINUTES=10 SEED=…)
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

.PHONY: partition
partition: setup ## several hosts with links cut and mended (root on Linux, needs iproute2)
	$(BIN)/python -m tests.partition

.PHONY: bench
bench: setup ## speed and cost against other systems and bounds (QUICK=1 for the short run)
	$(BIN)/python -m bench --draw docs/benchmarks $(if $(QUICK),--quick)

.PHONY: screenshots
screenshots: setup ## the console's pictures in docs/images, made anew (needs chromium)
	PIN_TEST_SCREENSHOTS=docs/images CI=true $(BIN)/pytest -n0 tests/console/test_in_chromium.py tests/console/test_an_outage.py

.PHONY: lock
lock: ## resolve requirements.lock again (needs uv on the PATH)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --group dev pyproject.toml -o requirements.lock
