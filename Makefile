# Two commands do everything on a fresh machine: `make quickstart` and `make test`.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SEED   ?= 1
NAME   ?= quickstart-$(shell date +%Y%m%d-%H%M%S)

.PHONY: env quickstart test test-all check format docs bench lock clean

env: $(STAMP)

# The lock pins a CPU torch that is installed first and alone, so that no range can pull a CUDA build.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "peira needs Python 3.11 or later: make PYTHON=python3.12 ..."'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-deps --requirement requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

quickstart: env
	$(BIN)/peira train recipes/quickstart.yaml name=$(NAME)

# Random order, the same one each time; `make test SEED=$$RANDOM` for another.
test: env
	$(BIN)/python -m pytest -q -m "not slow and not gpu" --randomly-seed=$(SEED)

# Everything, the slow proofs included: kill and resume, real models, documentation.
test-all: check docs test
	$(BIN)/python -m pytest -q -m "slow and not gpu" -p no:randomly

check: env
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: env
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: env
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html

bench: env
	$(BIN)/python benchmarks/vs_trl.py

clean:
	rm -rf $(VENV) build *.egg-info docs/_build .mypy_cache .ruff_cache .pytest_cache
