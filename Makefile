# `make help` says what there is. The first target that needs it creates .venv; afterwards nothing is installed again
# until pyproject.toml or the lock changes.

PYTHON ?= python3
VENV ?= .venv
$(if $(word 2,$(VENV)),$(error VENV is "$(VENV)": make cannot work with a space in it. Choose a path without one))
BIN = $(VENV)/bin
# With uv, in a fraction of the time: make INSTALL="uv pip install --compile-bytecode --python .venv/bin/python"
INSTALL ?= $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The versions that the tests have seen, by hash; PyTorch by version, from your index. With LOCK= the newest of everything.
LOCK ?= requirements.lock
CHAPTERS ?=
PARTS ?=
OPTIONS ?=
SUBMISSIONS ?=
# `make gpu` uses the PyTorch that a machine has, and installs nothing.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# Some sites set PIP_USER. With it, pip would install outside .venv, or refuse to install.
export PIP_USER = 0
# Of the tests: more than the cores of a small machine, since many tests wait for processes. Each takes up to 2 GB.
WORKERS ?= 4

.DEFAULT_GOAL := help
.PHONY: help run test test-all build release publish lab slides slides-pdf hub grade cluster site bench gpu wheelhouse lock doctor size lint clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 19

run: $(VENV)/.installed ## execute every lecture and solution, report in build/report.html (CHAPTERS="01 02" for some)
	@$(BIN)/python -m tools.run --chapters "$(CHAPTERS)" $(OPTIONS)

# Four tests at once on two cores are a machine with much to do. What fails there runs once more, alone: it is red if it
# fails again. The first list of failures stays in the log, and each of them is a defect worth an issue.
test: $(VENV)/.installed ## everything that a change can break
	@$(BIN)/python -m pytest -n $(WORKERS) tests || { [ $$? = 1 ] && echo "Once more, alone, what failed above:" && \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 10 tests; }

test-all: $(VENV)/.installed ## also all variants of wrong answers, each exercise as in grading, and all notebooks as on Colab
	@$(BIN)/python -m pytest -n $(WORKERS) -m "" tests

build: $(VENV)/.installed ## make notebooks, labs and figures from their text sources (CHAPTERS="01 02" for some)
	@$(BIN)/python -m tools.build $(CHAPTERS)

release: $(VENV)/.installed ## lectures, labs, and package for students in release/, without solution notebooks (CHAPTERS="11 12" for some)
	@$(BIN)/python -m tools.release $(CHAPTERS)

publish: $(VENV)/.installed ## check and prepare a version of the course (OPTIONS=--dry-run only checks; needs npm and uv)
	@$(BIN)/python -m tools.publish $(OPTIONS)

lab: $(VENV)/.installed ## open JupyterLab on your own copy of the course, in work/
	@$(BIN)/python -m tools.jupyterlab $(OPTIONS)

slides: $(VENV)/.installed ## offline HTML decks in build/slides (needs npm)
	@$(BIN)/python -m tools.slides

slides-pdf: $(VENV)/.installed ## each deck as two PDFs, slides and notes (needs npm and Chromium)
	@$(BIN)/python -m tools.slides_pdf $(CHAPTERS)

hub: $(VENV)/.installed ## a JupyterHub for a class on this machine (needs npm; OPTIONS="--port 8000")
	@$(BIN)/python -m tools.hub $(OPTIONS)

grade: $(VENV)/.installed ## grade a class in a sandbox: SUBMISSIONS=folder, results in build/grades (needs bubblewrap)
	@$(BIN)/python -m tools.grade "$(SUBMISSIONS)" --chapters "$(CHAPTERS)" $(OPTIONS)

cluster: $(VENV)/.installed ## a real Slurm with two nodes on this machine, for practice (needs Debian's Slurm)
	@$(BIN)/python -m tools.cluster $(OPTIONS)

site: $(VENV)/.installed ## the course as a website in build/site (needs npm)
	@$(BIN)/python -m tools.site $(OPTIONS)

bench: $(VENV)/.installed ## measure the recipes, beside the official example (twenty minutes on a quiet machine; PARTS="peak mnist" for some)
	@$(BIN)/python -m tools.bench $(PARTS)

gpu: ## on a GPU machine: execute, test and measure everything (PARTS="run precision" for some, OPTIONS="--minutes 5")
	@"$(GPU_PYTHON)" -m tools.gpu $(PARTS) $(OPTIONS)

wheelhouse: $(VENV)/.installed ## packages for a machine without network, into build/wheelhouse (OPTIONS="--python 3.12")
	@$(BIN)/python -m tools.wheelhouse $(OPTIONS)

lock: ## choose the versions of uv.lock, constraints.txt and requirements.lock (needs uv; OPTIONS=--upgrade for the newest)
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,"$(PYTHON)") -m tools.lock $(OPTIONS)

doctor: $(VENV)/.installed ## is this machine ready for the course?
	@$(BIN)/torchcourse doctor

size: $(VENV)/.installed ## how large each part is, and how large it may be
	@$(BIN)/python -m tools.size

lint: $(VENV)/.installed ## ruff over package, tools, tests and notebooks
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

clean: ## remove build/ and release/, keep .venv and what students wrote on the hub (build/hub)
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name hub -exec rm -rf {} +; fi; rm -rf release

$(VENV)/.installed: pyproject.toml $(LOCK)
	@"$(PYTHON)" -c 'import sys; sys.version_info >= (3, 11) or sys.exit("This course needs Python 3.11 or newer: make PYTHON=python3.12")'
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@test -x $(BIN)/pip || $(BIN)/python -m ensurepip >/dev/null # `uv sync` makes an environment without pip
	@echo "Installing into $(VENV): a few minutes the first time, PyTorch is large."
	@$(if $(LOCK),$(INSTALL) --no-deps --require-hashes -r $(LOCK))
	@$(INSTALL) $(if $(LOCK),-c constraints.txt) -e '.[dev]'
	@touch $@
