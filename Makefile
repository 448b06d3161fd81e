# make demo    the whole loop on this machine: a few minutes, no GPU needed
# make test    lint, then all tests
# make lint    ruff, mypy --strict, import-linter
# make format  let ruff mend what it can
# make bench   speed of the simulator and the searches
# make clean   remove what the others made
# make check-data  what needs measured data (CONTRIBUTING.md): fails where they are absent, where test would skip
#
# Each makes .venv and installs what it needs when that is missing. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check-data lint format bench clean

demo: .venv/.installed
	$(BIN)/stepsim demo -o demo-output

test: lint
	$(BIN)/python -m pytest

check-data: .venv/.installed
	STEPSIM_REQUIRE_DATA=1 $(BIN)/python -m pytest -m needs_data

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/.installed
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv demo-output .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# The build tools come first, so that they obey the constraints too: an isolated build would fetch its own.
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "stepsim needs Python 3.11 or newer, and '$(PYTHON)' is not: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Installing into .venv (once, a few minutes)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip hatchling editables
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[bench,lint,test]'
	@touch $@
