# Two jobs for a newcomer: `make demo` and `make test`. Both set up .venv first, from a machine
# that has only Python 3.11 or newer, git and make; where there is no C compiler, pip brings one.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo.db
# Tests at a time, file by file: most of them wait, for processes to start or for each other.
JOBS ?= 2

.PHONY: help demo test setup lint types contracts docs reference samples goldens clean

help:
	@echo "make demo     trace a real 4-rank pipeline run and report where its time goes"
	@echo "make test     every check that CI runs"
	@echo "make samples  record sample_traces/ again    make goldens  their expected answers"
	@echo "make docs     build the documentation        make clean    remove what make made"

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tracekit needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[torch,dev,docs]'
	$(BIN)/python hatch_build.py --requires | xargs -r \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt
	@touch $@

# The editable install has compiled the scanner; this does so again once a source is newer.
setup: $(VENV)/.ready
	@$(BIN)/python hatch_build.py --if-stale

# The virtual environment comes first on PATH: torchrun is found as a user would find it.
demo: setup
	rm -rf $(DEMO) $(DEMO:.db=.run)
	PATH="$(abspath $(BIN)):$$PATH" tracekit run -o $(DEMO) -- \
		torchrun --nproc-per-node 4 -m tracekit_loops.pipeline \
		--schedule 1f1b --microbatches 8 --pace 60
	@echo "tracekit is in $(BIN): run $(BIN)/tracekit tui $(DEMO), or activate $(VENV) first"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python docs/make_reference.py --check
	$(BIN)/zensical build --clean

reference: setup
	$(BIN)/python docs/make_reference.py

test: lint types contracts docs
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not alone" \
		--numprocesses $(JOBS) --dist loadfile
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest $(PYTEST_ARGS) -m alone

samples: setup
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python sample_traces/record.py

goldens: setup
	$(BIN)/python -m pytest tests/golden --update-goldens

clean:
	rm -rf $(VENV) .venvs .cache .mypy_cache .ruff_cache .pytest_cache site dist \
		tracekit/ingest/scan/_scan.so $(DEMO) $(DEMO:.db=.run)
