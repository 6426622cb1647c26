# The environment is made once, and again only when what the project declares changes.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/installed
DEV := $(VENV)/installed-dev
AGENTS := $(abspath $(or $(NEXUS_AGENTS),$(VENV)/agents))
# The tests whose subject is the store run on PostgreSQL, too, where its programs are; CI must have them.
POSTGRES := $(NEXUS_TEST_SERVER)$(wildcard /usr/lib/postgresql/*/bin/initdb)$(shell command -v initdb)
ON_POSTGRES := tests/acceptance/test_soak.py tests/inbox tests/topics \
	$(filter-out %/test_trust.py,$(wildcard tests/handoffs/test_*.py)) \
	$(patsubst %,tests/planning/test_%.py,mirror tools work) $(patsubst %,tests/core/test_%.py,postgres waiter) \
	$(patsubst %,tests/control/test_%.py,calls direct ends questions stream supervision waking worker) \
	$(patsubst %,tests/coordination/test_%.py,event_wait events keys limits retries schema streams tail upsert_races) \
	$(patsubst %,tests/reservations/test_%.py,holding reserving waiting) \
	$(patsubst %,tests/maintenance/test_%.py,dump history migrate_store)
# The files in the order that tests/conftest.py gives them: the long ones first.
IN_PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: serve demo test types suite postgres long agents release-check clean

serve: $(RUN)
	$(VENV)/bin/python manage.py serve $(if $(PORT),--port $(PORT))

demo: $(RUN)
	$(VENV)/bin/python manage.py demo

test: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/djangofmt --check templates
	$(MAKE) --no-print-directory --jobs=3 types suite postgres

types:
	$(VENV)/bin/mypy .
	$(VENV)/bin/lint-imports
	NEXUS_HOME=$$(mktemp -d) $(VENV)/bin/python manage.py makemigrations --check --dry-run

suite:
	$(VENV)/bin/pytest $(IN_PARALLEL)

# It runs beside the suite, so what it prints is shown at its end.
postgres:
	$(if $(POSTGRES)$(CI),@NEXUS_TEST_STORE=postgresql $(VENV)/bin/pytest $(IN_PARALLEL) $(ON_POSTGRES) \
		>$(VENV)/postgres.log 2>&1; code=$$?; cat $(VENV)/postgres.log; exit $$code,\
		@echo "No PostgreSQL here: what tests the store ran on SQLite alone.")

# What the suite plays in part, whole: soaks, examples of property-based tests, the crawl of all pages. Takes minutes.
long: $(DEV)
	$(VENV)/bin/pytest $(IN_PARALLEL) -m 'long or hypothesis' --hypothesis-profile=whole

# The published agents of presets.toml, from npm, each through the same day in a pool; the table in docs/reference is
# what it made. Takes minutes, and two gigabytes at the first time.
agents: $(DEV)
	$(VENV)/bin/python -m tests.agents.install $(AGENTS)
	NEXUS_AGENTS=$(AGENTS) $(VENV)/bin/pytest -m agents tests/agents

# What stands between a green suite and a release (docs/how-to/release.md). Takes an hour or so, on a quiet machine.
release-check: test long
	$(VENV)/bin/python -m benchmarks.years --fail

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(RUN): pyproject.toml | $(VENV)/bin/pip
	@echo "Installing what Nexus needs into $(VENV): once, for a minute or so."
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(DEV): pyproject.toml | $(VENV)/bin/pip
	@echo "Installing what the checks need into $(VENV): once, for a minute or two."
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(RUN)

clean:
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
