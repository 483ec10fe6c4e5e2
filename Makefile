# Everything sets itself up in .venv/: a fresh machine needs only make and Python >= 3.10.
PYTHON3 ?= python3
PYTHON := .venv/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check install --quiet -c constraints.txt
UNFINISHED := .venv/.unfinished
RUN := .venv/.ready-to-run
DEVELOP := .venv/.ready-to-develop
DOCUMENT := .venv/.ready-to-document
CHECKED := src tests bench tools

# Where it is set, each process that the tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help certify test quick lint types test-slow test-ray browser bench wheel docs notebook pictures clean

help:
	@echo "make certify    certify the bundled network on the bundled images"
	@echo "make test       linter, type checker and tests"
	@echo "make quick      linter, and the first case of every test of the core, while you work"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-ray   the tests on Ray clusters, which it installs"
	@echo "make browser    Chromium for the tests of the report, where apt-get may install it"
	@echo "make bench      speed against the paper's procedure"
	@echo "make wheel      a wheel and a source archive, in dist/"
	@echo "make docs       the documentation as a site, in site/"
	@echo "make notebook   the example notebook, run anew"
	@echo "make pictures   the pictures of the documents, drawn anew; those of the report need Chromium"
	@echo "make clean      remove .venv/ and every cache"

certify: $(RUN)
	.venv/bin/relucert certify

# The type checker has one process and runs beside the tests; what it finds is printed early, and said again at the end.
test: lint
	@$(MAKE) --no-print-directory types & types=$$!; \
	echo "$(PYTHON) -m pytest -n auto --dist worksteal"; $(PYTHON) -m pytest -n auto --dist worksteal; tests=$$?; \
	wait $$types || { echo "the type checker found errors: see above"; exit 1; }; exit $$tests

# Without what starts processes, trains or draws.
QUICK := tests/arithmetic tests/common tests/network tests/bounding tests/methods tests/search tests/query tests/checker \
	tests/test_layers.py tests/test_tables.py tests/test_signatures.py
quick: lint
	$(PYTHON) -m pytest -n auto --dist worksteal --first-cases $(QUICK)

lint: $(DEVELOP)
	$(PYTHON) -m ruff check $(CHECKED) docs/examples
	$(PYTHON) -m ruff format --check $(CHECKED) docs/examples

types: $(DEVELOP)
	$(PYTHON) -m mypy $(CHECKED)

test-slow: $(DOCUMENT)
	$(PYTHON) -m pytest -m slow

# Ray is large, and only who has several machines needs it. RAY_TESTS="not slow" leaves out what takes minutes.
RAY_TESTS ?= slow or not slow
test-ray: $(DEVELOP)
	$(PIP) --no-build-isolation -e ".[dev,ray]"
	$(PYTHON) -m pytest -m "$(RAY_TESTS)" tests/execution/test_ray.py

# Without it the tests of the report in a browser are skipped; so a machine that can't have it is no failure.
browser:
	@if command -v chromium || command -v chromium-browser || command -v google-chrome; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		(apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core) \
			|| echo "Chromium could not be installed"; \
	else echo "no Chromium here, and only root may install it: apt-get install chromium"; fi

bench: $(RUN)
	$(PYTHON) -m bench.run

# The wheel is built from the source archive, so that neither can lack a file.
wheel: $(DEVELOP)
	rm -rf build dist
	$(PYTHON) -m build --no-isolation --outdir dist .

# A broken link or an undocumented public name is a warning, and any warning ends the build.
docs: $(DOCUMENT)
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build
	@echo "open site/index.html"

notebook: $(RUN)
	$(PYTHON) -m tools.notebook docs/examples/own-network.ipynb

pictures: $(DEVELOP)
	$(PYTHON) -m tools.architecture
	$(PYTHON) -m tools.pictures

# An interrupted set-up leaves the unfinished mark and no stamp, and the next one starts from an empty .venv/.
$(RUN): pyproject.toml constraints.txt
	@echo "setting up .venv/ (the first time takes a few minutes)"
	@if [ -e $(UNFINISHED) ]; then rm -rf .venv; fi
	@mkdir -p .venv && touch $(UNFINISHED)
	$(PYTHON3) -m venv .venv
	$(PIP) setuptools torch
	$(PIP) --no-build-isolation -e .
	@rm -f $(UNFINISHED) && touch $@

$(DEVELOP): $(RUN)
	@touch $(UNFINISHED) && rm -f $(RUN)
	$(PIP) --no-build-isolation -e ".[dev]"
	@rm -f $(UNFINISHED) && touch $(RUN) && touch $@

$(DOCUMENT): $(DEVELOP)
	@touch $(UNFINISHED) && rm -f $(RUN) $(DEVELOP)
	$(PIP) --no-build-isolation -e ".[dev,docs]"
	@rm -f $(UNFINISHED) && touch $(RUN) && touch $(DEVELOP) && touch $@

clean:
	rm -rf .venv build dist site src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} +
