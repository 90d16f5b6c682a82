# The commands of this repository. Each creates .venv when it has to; nothing is installed anywhere else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
# What `make test` leaves out: `.ci/run sweeps` and `.ci/run servers` run it.
MARKS := not long and not servers and not oracle
# A worker for each core; more than eight cost more to start than they save.
PARALLEL := -n auto --maxprocesses 8

.DEFAULT_GOAL := help
.PHONY: help demo test check coverage docs bench bench-peers clean

help:
	@echo 'make demo      see an agent at work, offline  DEMO_ARGS="..."'
	@echo 'make test      the suite on asyncio, uvloop, trio  TEST_ARGS="..."'
	@echo 'make check     format, lint, types, quick tests: before each commit'
	@echo 'make coverage  which lines and branches the suite runs'
	@echo 'make docs      the documentation, into build/site'
	@echo 'make bench     the benchmarks  BENCH_ARGS="..."'
	@echo 'make bench-peers  the same with other libraries, into .venv-peers'
	@echo 'make clean     remove .venv and what was built'

demo: $(VENV)/.demo
	@$(BIN)/python -m cubepi_anyio demo $(DEMO_ARGS)

test: $(VENV)/.test
	@$(if $(TEST_ARGS),:,echo 'about 10,700 tests, a worker for each core, six minutes on two; long sweeps and the servers of others are left to .ci/run')
	@$(BIN)/python -m pytest -q $(PARALLEL) -m '$(MARKS)' $(TEST_ARGS)

check: $(VENV)/.dev
	@bash .ci/run format lint types architecture quick

coverage: $(VENV)/.dev
	@$(BIN)/coverage run -m pytest -q -p no:xdist $(TEST_ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report --show-missing --skip-covered

docs: $(VENV)/.dev
	@bash .ci/run docs

bench: $(VENV)/.test
	@echo 'running benchmarks/run.py'
	@$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

bench-peers: $(VENV)/.test
	@echo 'running benchmarks/run_peers.py; the first time it installs seven libraries into .venv-peers'
	@$(BIN)/python benchmarks/run_peers.py $(BENCH_ARGS)

clean:
	rm -rf .venv .venv-asyncio .venv-lowest .venv-servers .venv-oracles .venv-peers build dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# A stamp is younger than pyproject.toml when what it stands for is installed; the larger sets contain the smaller.
$(VENV)/.demo: EXTRAS := trio,cli
$(VENV)/.test: EXTRAS := test,trio,uvloop
$(VENV)/.dev: EXTRAS := dev
$(VENV)/.test: CONTAINED := $(VENV)/.demo
$(VENV)/.dev: CONTAINED := $(VENV)/.demo $(VENV)/.test
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo 'installing cubepi-anyio[$(EXTRAS)] into $(VENV)'
	@$(PIP) -e '.[$(EXTRAS)]'
	@touch $@ $(CONTAINED)
