# Every target does its own set-up: a fresh clone needs Python 3.11 and pip, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# On Linux, PyTorch's CPU-only build is smaller by gigabytes: see the README for what to put here.
TORCH_INDEX ?=
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: demo test endure lint docs bench torture clean

demo: $(VENV)/.installed
	$(BIN)/volmin demo

# One thread a process: the tests run in parallel, and small networks gain nothing from threads.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

# The tests ten times, each time in another order: none may depend on what ran before it, or on luck.
endure: $(VENV)/.installed-dev
	for order in 1 2 3 4 5 6 7 8 9 10; do \
		OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --random-order-bucket=module --random-order-seed=$$order || exit 1; \
	done

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

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
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed
