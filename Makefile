# Each command sets up what it needs in .venv; only Python (3.11 or newer), pip and make must be there.
# Paths are relative, so that the folder may have spaces in its name and lie anywhere.

PYTHON ?= $(shell python3.11 -c "" 2>/dev/null && echo python3.11 || echo python3)
RUN := .venv/$(if $(findstring Windows,$(OS)),Scripts,bin)/python -m
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # each of the many processes of the tests would compile all modules anew

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint docs benchmark gpu fuzz mutants ablation tables versions newest release dist clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "Another interpreter: make demo PYTHON=/path/to/python (after make clean, if .venv is there)."

demo: .venv/installed  ## run the published policies and the default one, train a small model, leave tables and pictures in demo/
	$(RUN) ata_gym demo --out demo

test: lint  ## lint, then run every test but the benchmarks
	$(RUN) pytest -n 2 --dist worksteal -m "not benchmark"

lint: .venv/installed  ## check style, format, types and spelling
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) codespell_lib

docs: .venv/installed  ## build the site, guides, notebooks, cards and the API, in a minute: build/docs/index.html
	$(RUN) docs build/docs

benchmark: .venv/installed  ## measure speed, one benchmark after the other
	$(RUN) pytest tests/benchmarks -m benchmark -s
	$(RUN) tests.benchmarks.growth

gpu: .venv/installed  ## run the tests that need a GPU, and write what came of them into tests/gpu/README.md
	$(RUN) docs.gpu

MINUTES ?= 60
fuzz: .venv/installed  ## try to break it for an hour (MINUTES=60): kills, damage, foreign input; a table at the end
	$(RUN) tests.fuzz --minutes $(MINUTES)

PLACES ?= 200
mutants: .venv/installed  ## change 200 places of the source, one at a time, and see which changes the tests find (PLACES=200)
	$(RUN) tests.mutants --places $(PLACES)

SEEDS ?= 48
ablation: .venv/installed  ## halve, double or switch off each constant of the default, and see what it loses; takes hours (SEEDS=48)
	$(RUN) tests.mutants.ablation --seeds $(SEEDS)

tables: .venv/installed  ## make the tables of the pages again by the commands that they show, and list them; takes hours, goes on where it was
	$(RUN) docs.tables $(TABLES)

versions: .venv/installed  ## run the tests on every Python here, with the oldest and the newest packages allowed
	$(RUN) nox

newest: .venv/installed  ## a part of that, in two minutes: Python 3.12 or later, with what pip install takes today
	$(RUN) nox -s newest

release: .venv/installed  ## write a version and today's date into all files that have one, commit and tag (VERSION=0.2.0)
	@echo "$(VERSION)" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' || { echo "Name the version: make release VERSION=0.2.0" >&2; exit 1; }
	@! git rev-parse --quiet --verify "refs/tags/v$(VERSION)" >/dev/null || { echo "There is a tag v$(VERSION)" >&2; exit 1; }
	$(RUN) bumpversion replace --no-allow-dirty --new-version "$(VERSION)"
	git commit --quiet --all --message "Version $(VERSION)"
	git tag --annotate --message "Version $(VERSION)" "v$(VERSION)"

dist: .venv/installed  ## build the wheel and the source distribution in dist/, twice, and check them (ATA_GYM_URL=https://host/owner/ata-gym)
	rm -rf dist build/again
	$(RUN) hatchling build
	$(RUN) hatchling build -d build/again
	diff -r dist build/again
	$(RUN) twine check --strict dist/*
	$(RUN) nox -s citation

clean:  ## remove .venv, caches and what demo made; results/ stays
	rm -rf .venv .nox demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp names the folder: an editable install of a checkout that was moved points to the old place.
ifneq ($(shell pwd -P),$(shell cat .venv/installed 2>/dev/null))
.PHONY: .venv/installed
endif

.venv/installed: pyproject.toml constraints.txt
	@"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	  echo "ata-gym needs Python 3.11 or newer, and $(PYTHON) is not. Name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(RUN) pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv
	@echo "Installing ata-gym and what it needs into .venv; the first time takes a minute or two."
	@$(RUN) pip install --quiet -c constraints.txt -e ".[all,dev]"
	@pwd -P > $@
