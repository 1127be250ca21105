# Every target does its own set-up: a fresh clone needs Python 3.11 or newer and pip, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On Linux, PyTorch's CPU-only build is smaller by gigabytes: see the README for what to put here.
TORCH_INDEX ?=
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(INDEX)
LOWEST := .venv-lowest

# One thread per process: the tests run in parallel, and small networks gain nothing from threads.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --durations=10
QUICK := -m "not slow and not cluster"
HEAVY := -m "slow or cluster"
# COVERAGE=1 collects coverage over several runs; `make coverage` reports it and holds the floor of pyproject.toml.
COV = $(if $(COVERAGE),--cov --cov-append --cov-report= --cov-fail-under=0)

.PHONY: demo test test-heavy test-all test-lowest coverage endure lint docs dist bench torture clean

demo: $(VENV)/.installed
	$(BIN)/volmin demo

# All tests but those marked slow or cluster.
test: $(VENV)/.installed-dev
	$(PYTEST) $(QUICK) $(COV)

# The tests marked slow or cluster.
test-heavy: $(VENV)/.installed-dev
	$(PYTEST) $(HEAVY) $(COV)

# All tests, with their coverage.
test-all: $(VENV)/.installed-dev
	rm -f .coverage
	$(MAKE) test COVERAGE=1
	$(MAKE) test-heavy COVERAGE=1
	$(MAKE) coverage

coverage: $(VENV)/.installed-dev
	$(BIN)/coverage report

# The quick tests, and the wheel in an environment of its own, with the lowest versions that pyproject.toml allows.
test-lowest: $(LOWEST)/.installed
	OMP_NUM_THREADS=1 $(LOWEST)/bin/pytest -n auto $(QUICK) -W default
	$(LOWEST)/bin/pytest tests/test_release.py -W default

# The tests ten times, each time in another order: none may depend on the order, or on chance.
endure: $(VENV)/.installed-dev
	for order in 1 2 3 4 5 6 7 8 9 10; do \
		$(PYTEST) --random-order-bucket=module --random-order-seed=$$order || exit 1; \
	done

# The hooks of .pre-commit-config.yaml run the same commands.
lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The wheel, built from the source distribution.
dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/estimators.py synthetic
	$(BIN)/python benchmarks/scatter.py
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/speed.py --json results/speed.json
	$(BIN)/python benchmarks/audit.py

# Faults, bad input, mutated files, large audits, several processes: one table, kept in results/torture.json.
torture: $(VENV)/.installed-dev
	$(BIN)/python -m torture

clean:
	rm -rf $(VENV) $(LOWEST) build dist site .coverage .pytest_cache .ruff_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed

$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt $(INDEX) -e ".[test]"
	touch $@
