# Every target sets up what it needs in .venv, once, and again when pyproject.toml or constraints.txt change.
# Another interpreter: make PYTHON=python3.12 test. Some tests only: make test ARGS="tests/core/test_atomic_io.py -k kill".

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# One thread in each worker: two workers with two threads each on two cores would wait for one another.
# No test may reach for a model hub. Bytecode is kept, whatever the environment says: hundreds of processes would compile
# the library anew, and every worker all tests.
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-slow faults fuzz check format bench docs wheel constraints clean

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

quickstart: $(VENV)/$(if $(findstring zh,$(ARGS)),.zh,.core) ## The whole road on the embedded corpus, in about two minutes
	$(BIN)/clozeworks quickstart $(ARGS)

test: $(VENV)/.test ## The fast tests, under ten minutes on two cores
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/.test ## The slow tests, under thirty minutes on two cores
	$(PYTEST) -m slow $(ARGS)

faults: $(VENV)/.test ## Break things on purpose, under an hour on two cores; writes docs/reliability.md
	OMP_NUM_THREADS=1 RAYON_NUM_THREADS=1 $(BIN)/python -m tests.faults --json docs/reliability.json --page docs/reliability.md $(ARGS)

fuzz: $(VENV)/.test ## Random compositions and inputs: make fuzz ARGS="--cases 1000"
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -W error -m tests.fuzz $(ARGS)

check: $(VENV)/.dev ## Format, lint, types and spelling; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/codespell

format: $(VENV)/.dev ## Format, and mend what the linter can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test ## This machine: us and the peers in one run
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.dev ## The documentation, into site/
	$(BIN)/mkdocs build --strict

wheel: $(VENV)/.dev ## The wheel and the source archive, into dist/
	$(BIN)/python -m build --outdir dist

constraints: $(VENV)/.dev ## Write the versions of .venv, once they are tested, to constraints.txt
	@{ sed -n '/^#/p' constraints.txt; \
	   $(BIN)/python -m pip freeze --exclude-editable --local | sed 's/+cpu//' | grep -v '^clozeworks'; } > constraints.new
	mv constraints.new constraints.txt

clean: ## Remove .venv and everything built
	rm -rf $(VENV) dist build site .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks studies docs -name __pycache__ -type d -prune -exec rm -rf {} +

# Three sizes, each within the next: a first look should not wait for a linter.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), once: about a minute"
	$(INSTALL) -e '.[sklearn]'
	touch $@

$(VENV)/.zh: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV), with the Chinese text, once: about a minute"
	$(INSTALL) -e '.[zh,sklearn]'
	touch $(VENV)/.core $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what the tests need into $(VENV), once: about two minutes"
	$(INSTALL) -e '.[test]'
	touch $(VENV)/.core $(VENV)/.zh $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing every extra and the tools into $(VENV), once: about two minutes"
	$(INSTALL) -e '.[dev]'
	touch $(VENV)/.core $(VENV)/.zh $(VENV)/.test $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; name one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
