# The targets do all the set-up, in .venv, and say what the machine lacks instead of installing it.
#   make lab  [ARGS=…]   JupyterLab on the examples, its kernels taking turns
#   make demo [ARGS=…]   the examples at the same time, without a browser
#   make hub  [ARGS=…]   JupyterHub with two users on this machine, at http://127.0.0.1:8000
#   make test [ARGS=…]   all tests
#   make check           lint, types, tests, docs: what CI runs

SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3.14 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# What of the package's extras `make venv` installs, and packages beside them.
EXTRAS ?= test,examples
PACKAGES ?=
# Tests run on two processes; in this one where single files or folders are named.
WORKERS ?= $(if $(filter tests/%,$(ARGS)),0,2)
LABEXT := jupyter_salus/labextension
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help venv labextension native lab demo hub test test-gpu lint types check docs wheel test-wheel test-lowest clean

help:
	@sed -n '2,6p' Makefile | sed 's/^# *//'

# ---- set-up --------------------------------------------------------------------------------------------------------------

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "cannot make $(VENV): Python 3.11 or later is needed (Debian: apt-get install python3.11 python3.11-venv)"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cannot make $(VENV): $(PYTHON) is older than Python 3.11"; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || { echo "cannot make $(VENV): $(PYTHON) has no ensurepip (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.node-seen:
	@mkdir -p $(VENV)
	@command -v node >/dev/null || test -f $(LABEXT)/dist/static/style.js || { echo "cannot build the JupyterLab extension: Node.js 20.19 or later is needed on the PATH"; exit 1; }
	@command -v cc >/dev/null || command -v gcc >/dev/null || echo "note: no C compiler: the guard isn't built, sessions on a GPU will be plain (Debian: apt-get install gcc libc6-dev)"
	@touch $@

# pip leaves alone what already fits, so a .venv made by hand is taken over as it is.
$(VENV)/.installed: pyproject.toml hatch_build.py | $(BIN)/python $(VENV)/.node-seen
	@echo "Installing the package with its extras $(EXTRAS): minutes and some 3 GB the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PACKAGES) -e '.[$(EXTRAS)]'
	@touch $@

LABEXT_SOURCES := $(shell find $(LABEXT)/src $(LABEXT)/style $(LABEXT)/schema -type f 2>/dev/null)

$(LABEXT)/node_modules/.installed: $(LABEXT)/package.json | $(VENV)/.installed
	@echo "Fetching what builds the JupyterLab extension"
	@cd $(LABEXT) && jlpm install > ../../$(VENV)/jlpm.log 2>&1 || { cat ../../$(VENV)/jlpm.log; exit 1; }
	@touch $@

$(LABEXT)/dist/static/style.js: $(LABEXT_SOURCES) $(LABEXT)/package.json | $(LABEXT)/node_modules/.installed
	@echo "Building the JupyterLab extension"
	@cd $(LABEXT) && jlpm build:prod > ../../$(VENV)/jlpm.log 2>&1 || { cat ../../$(VENV)/jlpm.log; exit 1; }
	@touch $@

# An editable install copies the extension's files; the link makes JupyterLab show those that were built last.
$(VENV)/.labextension: $(LABEXT)/dist/static/style.js | $(VENV)/.installed
	@rm -rf $(VENV)/share/jupyter/labextensions/jupyter-salus
	@mkdir -p $(VENV)/share/jupyter/labextensions
	@ln -s ../../../../$(LABEXT)/dist $(VENV)/share/jupyter/labextensions/jupyter-salus
	@touch $@

NATIVE := jupyter_salus/native
GUARD := $(NATIVE)/libsalus_guard.so

# pip has built it already where it was the first to come.
$(VENV)/.native: $(shell find $(NATIVE) -name '*.[ch]' -o -name '*.def') $(NATIVE)/build.py | $(VENV)/.installed
	@if [ ! -f $(GUARD) ] || [ -n "$$(find $^ -newer $(GUARD))" ]; then \
	  if command -v cc >/dev/null || command -v gcc >/dev/null; then echo "Building the guard"; $(BIN)/python $(NATIVE)/build.py >/dev/null; fi; \
	fi
	@touch $@

labextension: $(VENV)/.labextension
native: $(VENV)/.native
venv: $(VENV)/.installed $(VENV)/.labextension $(VENV)/.native

# ---- use -----------------------------------------------------------------------------------------------------------------

# Root needs --allow-root; nobody else does.
ROOT_FLAG := $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)

lab: venv
	$(BIN)/jupyter lab $(ROOT_FLAG) --ServerApp.kernel_manager_class=jupyter_salus.Manager --ServerApp.root_dir=examples $(ARGS)

demo: venv
	$(BIN)/jupyter salus run --device host --output-dir demo-output --overwrite \
	  examples/keras_digits.ipynb examples/numpy_digits.ipynb examples/interactive_digits.ipynb $(ARGS)

# JupyterHub's proxy; npm puts it into the environment.
HUB_PROXY := $(VENV)/hub-proxy/node_modules/.bin/configurable-http-proxy

$(HUB_PROXY): | $(BIN)/python
	@command -v npm >/dev/null || { echo "cannot start a hub: its proxy needs npm (Node.js 20 or later)"; exit 1; }
	@echo "Fetching JupyterHub's proxy"
	@npm install --prefix $(VENV)/hub-proxy --no-audit --no-fund --loglevel=error 'configurable-http-proxy@^5'

hub: venv $(HUB_PROXY)
	SALUS_HUB_PROXY=$(CURDIR)/$(HUB_PROXY) $(BIN)/python -m jupyterhub -f examples/hub/jupyterhub_config.py $(ARGS)

# ---- checks --------------------------------------------------------------------------------------------------------------

test: venv
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# What needs a GPU with its driver; elsewhere these tests are skipped with the reason.
test-gpu: venv
	$(BIN)/python -m pytest -m gpu $(ARGS)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed
	$(BIN)/mypy

$(VENV)/.docs: pyproject.toml | $(VENV)/.installed
	@echo "Installing what builds the documentation"
	@$(if $(findstring docs,$(EXTRAS)),,$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]')
	@touch $@

docs: venv $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Types and documentation are looked at while the tests wait for their processes; what is said of them comes last.
check: lint venv $(VENV)/.docs
	@nice $(MAKE) --no-print-directory types docs > $(VENV)/beside.log 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory test; tests=$$?; \
	wait $$beside; others=$$?; cat $(VENV)/beside.log; exit $$((tests || others))

wheel: venv
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

# The wheel in an environment that has nothing but what it asks for, with the newest versions that the index has.
test-wheel: venv
	JUPYTER_SALUS_TEST_CLEAN=1 $(BIN)/python -m pytest tests/packaging $(ARGS)

# The same with the oldest versions that pyproject.toml allows.
test-lowest: venv
	JUPYTER_SALUS_TEST_LOWEST=1 $(BIN)/python -m pytest tests/packaging $(ARGS)

clean:
	rm -rf build dist docs/_build demo-output .mypy_cache .pytest_cache .ruff_cache $(LABEXT)/lib $(LABEXT)/dist
	rm -f $(VENV)/.installed $(VENV)/.labextension $(VENV)/.native $(VENV)/.docs $(VENV)/.node-seen
