# Two commands matter: `make gate` judges fmha_multitile, `make test` runs the tests. Both set everything up first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: gate test lint bench setup clean

gate: $(READY)
	$(BIN)/python run_gate.py fmha_multitile

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python run_gate.py --check

bench: $(READY)
	$(BIN)/python -m benchmarks

setup: $(READY)

$(READY): pyproject.toml constraints.txt setup.sh
	PYTHON=$(PYTHON) bash setup.sh $(VENV)
	touch $@

clean:
	rm -rf $(VENV) build
