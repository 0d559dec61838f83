# `make demo` and `make test` do their own set-up: they need Python 3.11+ and make,
# put everything into .venv, and install nothing system-wide.

PYTHON ?= python3
TORCH ?=# another PyTorch than that of requirements/torch.txt, such as torch==2.12.0
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Two files at a time: what the tests of a file share is made once. Files come in the
# order of their names, so that the slow ones of tests/cluster are not the last.
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=loadfile \
	--no-loadscope-reorder

.PHONY: help demo test test-long coverage check bench lab soak clean always
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: .venv/run ## train a network among slow workers, twice, and compare
	@$(BIN)/python -m codedgrad demo $(ARGS)

test: check ## run every check, and every test that is not long
ifdef ARGS
	@$(BIN)/python -m pytest $(ARGS)
else
	@$(PYTEST) -m "not long"
endif

test-long: .venv/dev ## the rest: full matrices, Ray and MPI, quick runs of benchmarks
	@$(PYTEST) -m long

coverage: .venv/dev ## the tests once more, with the lines they reach; twice as slow
	@$(PYTEST) --cov=codedgrad

check: .venv/dev ## style, types and import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

bench: .venv/dev ## measure speed and precision, as ratios
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/amplification.py
	$(BIN)/python benchmarks/coordinator.py
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/publish.py
	$(BIN)/python benchmarks/checkpoint.py
	$(BIN)/python benchmarks/resume.py
	$(BIN)/python benchmarks/stragglers.py
	$(BIN)/python benchmarks/ddp.py
	$(BIN)/python benchmarks/dynamic.py
	$(BIN)/python benchmarks/heterogeneous.py
	$(BIN)/python benchmarks/adaptive.py
	$(BIN)/python benchmarks/tree.py
	$(BIN)/python benchmarks/replan.py
	$(BIN)/python benchmarks/auto.py --quick
	$(BIN)/python benchmarks/auto_live.py
	$(BIN)/python benchmarks/waiting.py
	$(BIN)/python benchmarks/pieces.py
	$(BIN)/python benchmarks/elsewhere.py

lab: .venv/dev ## the network lab: hosts on this machine (root and iproute2)
	@$(BIN)/python benchmarks/lab $(ARGS)

soak: .venv/dev ## the random tests, for many more draws
	@$(BIN)/python -m pytest --hypothesis-profile=soak --timeout=3600 \
		-m hypothesis $(ARGS)

clean: ## remove everything that was made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
		.hypothesis .coverage dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/run: requirements/run.txt requirements/torch.txt pyproject.toml \
		$(if $(TORCH),always)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "codedgrad needs Python 3.11 or newer; try make PYTHON=python3.11"; exit 2; }
	@echo "setting up .venv (once). To download: PyTorch, about 200 MB where pip finds a"
	@echo "CPU build (the GPU build for Linux is 2.7 GB: make TORCH=... takes another, and"
	@echo "PIP_EXTRA_INDEX_URL can name another index); everything else, about 78 MB"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(PIP) $(if $(TORCH),"$(TORCH)",--requirement requirements/torch.txt)
	@$(PIP) --requirement requirements/run.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: .venv/run requirements/dev.txt requirements/engines.txt
	@echo "setting up the test tools (once; about 135 MB to download)"
	@$(PIP) --requirement requirements/dev.txt
	@echo "and what the engines for clusters need, Ray and Open MPI (about 90 MB)"
	@$(PIP) --requirement requirements/engines.txt
	@touch $@
