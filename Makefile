# `make help` says what there is. The first target that needs it creates .venv; afterwards nothing is installed again
# until pyproject.toml changes.

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# With uv, in a fraction of the time: make INSTALL="uv pip install --compile-bytecode --python .venv/bin/python"
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
CHAPTERS ?=
PARTS ?=
OPTIONS ?=
SUBMISSIONS ?=
# `make gpu` uses the PyTorch that a machine has, and installs nothing.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help run test build release lab slides slides-pdf hub grade site bench gpu wheelhouse doctor lint clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 19

run: $(VENV)/.installed ## execute every lecture and solution, report in build/report.html (CHAPTERS="01 02" for some)
	@$(BIN)/python -m tools.run --chapters "$(CHAPTERS)"

test: $(VENV)/.installed ## the whole test suite
	@$(BIN)/python -m pytest -n $(WORKERS) tests

build: $(VENV)/.installed ## make notebooks, labs and figures from the text masters (CHAPTERS="01 02" for some)
	@$(BIN)/python -m tools.build $(CHAPTERS)

release: $(VENV)/.installed ## the tree for students in release/: lectures, labs, package; no solutions
	@$(BIN)/python -m tools.release

lab: $(VENV)/.installed ## open JupyterLab on the labs
	@$(BIN)/jupyter lab labs

slides: $(VENV)/.installed ## offline HTML decks in build/slides (needs npm)
	@$(BIN)/python -m tools.slides

slides-pdf: $(VENV)/.installed ## each deck as two PDFs, slides and notes (needs npm and Chromium)
	@$(BIN)/python -m tools.slides_pdf $(CHAPTERS)

hub: $(VENV)/.installed ## a JupyterHub for a class on this machine (needs npm; OPTIONS="--port 8000")
	@$(BIN)/python -m tools.hub $(OPTIONS)

grade: $(VENV)/.installed ## grade a class in a sandbox: SUBMISSIONS=folder, results in build/grades (needs bubblewrap)
	@$(BIN)/python -m tools.grade "$(SUBMISSIONS)" --chapters "$(CHAPTERS)" $(OPTIONS)

site: $(VENV)/.installed ## the course as a website in build/site (needs npm)
	@$(BIN)/python -m tools.site $(OPTIONS)

bench: $(VENV)/.installed ## measure the kit beside other libraries (half an hour on a quiet machine; PARTS="peak mnist" for some)
	@$(BIN)/python -m tools.bench $(PARTS)

gpu: ## on a GPU machine: execute, test and measure everything (PARTS="run precision" for some, OPTIONS="--minutes 5")
	@$(GPU_PYTHON) -m tools.gpu $(PARTS) $(OPTIONS)

wheelhouse: $(VENV)/.installed ## packages for a machine without network, into build/wheelhouse (OPTIONS="--python 3.12")
	@$(BIN)/python -m tools.wheelhouse $(OPTIONS)

doctor: $(VENV)/.installed ## is this machine ready for the course?
	@$(BIN)/torchcourse doctor

lint: $(VENV)/.installed ## ruff over package, tools, tests and notebooks
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

clean: ## remove build/ and release/, keep .venv and what students wrote on the hub (build/hub)
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name hub -exec rm -rf {} +; fi; rm -rf release

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("This course needs Python 3.11 or newer: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes the first time, PyTorch is large."
	@$(INSTALL) -e '.[dev]'
	@touch $@
