# Every target makes its own environment first: a bare machine needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SUDO := $(if $(filter-out 0,$(shell id -u)),sudo)
EXTRAS := dev,tune,serve,export,quant,hub

# Two torch threads per process on few cores run many times slower than one. Bytecode is kept, also where the environment
# says it should not be: else each process rewrites the asserts of every test file at every run.
TESTENV := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
# A process for each core, up to four; a file's tests stay together, as they share what they made. In the order of their
# names: else files of few tests come last, the longest ones among them, and at the end one process works alone.
TESTS := -m pytest -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-gpu lint bench browser clean

help:
	@echo "make demo       train a small ViT on digits in under a minute, test it, look inside, ask the doctor"
	@echo "make test       run the test suite"
	@echo "make test-slow  run the longer tests too"
	@echo "make test-gpu   run the tests that need a CUDA GPU, and a C compiler with Python's headers"
	@echo "make lint       ruff, pyright, import-linter"
	@echo "make bench      time our ViT against timm's and transformers'"
	@echo "make browser    install what the test of the server's page needs: Debian's chromium and selenium"
	@echo "make setup      make $(VENV) with all extras"
	@echo "make clean      remove what the other targets made"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: vitscope needs Python >= 3.11; $(PYTHON) is $$($(PYTHON) -V 2>&1)"; \
	    echo "to do: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11"; exit 1; }
	@echo "making $(VENV): downloads PyTorch once, several GB and minutes; later calls are instant"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "error: $(PYTHON) cannot make environments"; echo "to do: on Debian or Ubuntu, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

demo: setup
	@mkdir -p demo-out
	$(BIN)/vitscope data digits --sheet demo-out/digits.png
	@echo
	$(BIN)/vitscope train digits_vit --device cpu --out demo-out/run --overwrite
	@echo
	$(BIN)/vitscope eval demo-out/run
	@echo
	$(BIN)/python examples/first_look.py demo-out/run demo-out
	@echo
	$(BIN)/vitscope doctor demo-out/run --html demo-out/doctor.html

test: setup
	$(TESTENV) $(BIN)/python $(TESTS)

test-slow: setup
	$(TESTENV) $(BIN)/python $(TESTS) -m 'slow or not slow'

# One process: the tests share the GPU, and some of them ask for all of its memory.
test-gpu: setup
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || \
	  { echo "error: torch sees no CUDA GPU, and without one every test would be skipped"; \
	    echo "to do: \`$(BIN)/vitscope check\` says what it sees"; exit 1; }
	$(TESTENV) $(BIN)/python -m pytest -m 'slow or not slow' tests/gpu

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python bench/throughput.py

# The driver must fit the browser, so both come from one place; selenium runs with Debian's own Python.
browser:
	@command -v apt-get >/dev/null || { echo "error: this is not Debian or Ubuntu: there is no apt-get"; \
	  echo "to do: install chromium, chromedriver and selenium for /usr/bin/python3 as your system does"; exit 1; }
	$(SUDO) apt-get update --quiet
	$(SUDO) apt-get install --quiet --yes --no-install-recommends chromium chromium-driver python3-selenium fonts-dejavu-core

clean:
	rm -rf $(VENV) build dist demo-out .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
