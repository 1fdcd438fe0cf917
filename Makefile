PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup sandbox demo test test-slow test-flower mutants attacks-old fuzz fuzz-guided release all-checks test-browser browser pictures notebooks docs lint bench clean

setup: .venv/installed

.venv/installed: pyproject.toml lab/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]" -e ./lab
	$(MAKE) --no-print-directory sandbox
	touch $@

# Methods of other packages run in a sandbox of bubblewrap. Where it cannot be installed, tests of it are skipped.
sandbox:
	@command -v bwrap >/dev/null || { \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends bubblewrap; } >/dev/null 2>&1 || \
	  echo "bubblewrap is not installed: methods of other packages have no sandbox here, and its tests are skipped"

demo: setup
	$(BIN)/noisewise demo

# What is compiled is kept, whatever the environment says: tests start many processes, which would compile it all anew.
# A file stays with one worker, so that what its tests share is made once.
test test-slow test-flower: export PYTHONDONTWRITEBYTECODE =

test: setup lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=10

# What make test leaves out: tests marked slow, and those of Flower.
test-slow: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations=10 -m slow
	$(MAKE) test-flower

# Tests of Flower, in an environment of its own: it asks for an older typer and rich than setup brings.
FLOWER := .venv-flower/bin/python
test-flower:
	test -x $(FLOWER) || $(PYTHON) -m venv .venv-flower
	$(FLOWER) -m pip install --quiet -c constraints.txt torch
	$(FLOWER) -m pip install --quiet -c constraints.txt -e ".[dev,flower]" -e ./lab
	$(FLOWER) -m pytest -n 2 --dist loadfile --durations=10 -m "slow or not slow" tests/federated $(wildcard tests/cli/test_federated*.py)

# One constant, sign or comparison of the trust base changed at a time: a test must notice each (docs/results/mutants.md).
mutants: setup
	$(BIN)/python tests/mutants/run.py

# Every attack of tests/attacks/ in a temporary clone of the commit where it worked: each must fail there.
attacks-old: setup
	$(BIN)/python tests/attacks/on_old.py

# Broken and hostile input to every entry point: N inputs to parsers, N / 200 to fits, SEQUENCES adversaries against purses
# (docs/results/fuzz.md). SEED repeats a run, ONLY names targets, JOBS is the number of processes.
N ?= 100000
SEQUENCES ?= $(N)
SEED ?= 1
JOBS ?= 2
fuzz: setup
	$(BIN)/python -m tests.fuzz N=$(N) SEQUENCES=$(SEQUENCES) SEED=$(SEED) JOBS=$(JOBS) $(if $(ONLY),"ONLY=$(ONLY)")

# The same parsers, but guided by coverage, for SECONDS each (needs the extra "fuzz": atheris).
SECONDS ?= 60
fuzz-guided: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[fuzz]"
	$(BIN)/python -m tests.fuzz.guided SECONDS=$(SECONDS) $(if $(ONLY),"ONLY=$(ONLY)")

# Wheel and sdist, built twice from the last commit: the same bytes both times, complete, and nothing else in them.
# The wheel is installed in an environment of its own, which it brings no torch to, and trains a table there.
release:
	test -x .venv-release/bin/python || $(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet build twine "setuptools>=77" wheel
	.venv-release/bin/python tests/release.py dist

# The report in headless Chromium; SCREENSHOTS=FOLDER keeps the pictures.
test-browser: browser
	$(BIN)/python -m pytest tests_browser

# Pictures of README and guides that quick commands make; docs/images/README.md has the others. ONLY="plan.png demo.png" makes some.
pictures: browser
	$(BIN)/python tests/docs/make_pictures.py $(ONLY)

browser: setup
	command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends chromium chromium-driver; }
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev,browser]"

# Runs docs/notebooks anew and writes down what they print.
notebooks: setup
	$(BIN)/python tests/docs/notebooks.py

# The documentation site, in site/: open site/index.html, no server and no network needed. A broken link, a page that nav
# forgets and anything that a page would fetch from elsewhere are errors.
docs: export NO_MKDOCS_2_WARNING = 1
docs: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/python -m mkdocs build --strict --quiet
	@echo "Built: site/index.html"

# All that make test leaves out, one after the other, into docs/results/checks.md. Stopped and started again it goes on.
# ONLY="docs release" names targets, AGAIN=1 repeats those that have passed on this commit.
all-checks: setup
	$(BIN)/python tests/all_checks.py $(if $(AGAIN),--again) $(ONLY)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/noisewise bench speed

clean:
	rm -rf .venv .venv-flower .venv-release dist fuzz-findings .checks .mypy_cache .pytest_cache .ruff_cache site
