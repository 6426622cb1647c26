# The environment is made once, and again only when what the project declares changes.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/installed
DEV := $(VENV)/installed-dev
AGENTS := $(abspath $(or $(NEXUS_AGENTS),$(VENV)/agents))
OKTO := $(VENV)/okto/installed
NEXUS_CORE := $(VENV)/nexus-core/node_modules
AGENT_BUS := $(VENV)/agent-bus
# What runs on PostgreSQL, too, where its programs are; CI must have them. The rule: a file is here where the database
# decides what a test sees, which is SQL that each database has its own of (search, triggers, ids, batches, the schema),
# locks, what many do at once, and what wakes a wait. Of an app's rules its machine is here, which plays all statements.
POSTGRES := $(NEXUS_TEST_SERVER)$(wildcard /usr/lib/postgresql/*/bin/initdb)$(shell command -v initdb)
ON_POSTGRES := \
	$(patsubst %,tests/inbox/test_%.py,lifecycle lifecycle_machine races search sending tokens triggers) \
	$(patsubst %,tests/topics/test_%.py,peers_machine search sync waiting) \
	$(patsubst %,tests/handoffs/test_%.py,atomicity dependencies races search waiting) \
	tests/handoffs/test_lifecycle_machine.py::test_it_behaves_as_the_naive_model_of_a_handoffs_life_does \
	tests/handoffs/test_steering.py::test_it_lets_one_of_many_who_act_at_once_win \
	tests/hooks/test_waking.py tests/planning/test_mirror.py::test_it_gives_every_task_an_id_of_its_own \
	tests/planning/test_work.py::test_many_claims_that_end_at_once_are_not_undone_by_the_file \
	$(patsubst %,tests/control/test_questions.py::test_%,two_who_answer_at_once_answer_once \
		agents_that_ask_at_once_with_one_client_id_ask_once time_and_a_person_at_once_end_a_question_once) \
	$(patsubst %,tests/core/test_%.py,postgres side_by_side waiter) tests/web/test_operation_admin.py \
	tests/core/test_migrations.py::test_a_fresh_store_is_as_the_replaced_migrations_made_it \
	$(patsubst %,tests/control/test_%.py,stream supervision worker) \
	$(patsubst %,tests/coordination/test_%.py,event_wait events retries schema streams upsert_races) \
	tests/coordination/test_limits.py::test_many_at_once_do_not_exceed_it_together \
	$(patsubst %,tests/reservations/test_%.py,reserving waiting) \
	$(patsubst %,tests/maintenance/test_%.py,migrate_store on_postgres)
# The files in the order that tests/conftest.py gives them: the long ones first.
IN_PARALLEL := -n auto --dist loadfile --no-loadscope-reorder

.PHONY: serve demo docs test check rest types quick others postgres long release-check clean

serve: $(RUN)
	$(VENV)/bin/python manage.py serve $(if $(PORT),--port $(PORT))

demo: $(RUN)
	$(VENV)/bin/python manage.py demo

# The reference, from the code, into docs/made.
docs: $(RUN)
	$(VENV)/bin/python -m docs.make_reference

# What everybody runs: all that can be known in one process, and a smoke over real ones (tests/smoke.txt).
test: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/djangofmt --check templates
	$(MAKE) --no-print-directory --jobs=2 types quick

types:
	$(VENV)/bin/mypy .
	$(VENV)/bin/lint-imports

quick:
	$(VENV)/bin/pytest -n auto --dist worksteal --kind=quick

# What CI runs: everything, each test once.
check: test rest

rest: $(DEV) $(OKTO) $(NEXUS_CORE) $(AGENT_BUS)
	$(MAKE) --no-print-directory --jobs=2 others postgres

others:
	NEXUS_AGENTS=$(AGENTS) $(VENV)/bin/pytest $(IN_PARALLEL) --kind=rest

# It runs beside the others, so what it prints is shown at its end.
postgres:
	$(if $(POSTGRES)$(CI),@NEXUS_TEST_STORE=postgresql $(VENV)/bin/pytest $(IN_PARALLEL) $(ON_POSTGRES) \
		>$(VENV)/postgres.log 2>&1; code=$$?; cat $(VENV)/postgres.log; exit $$code,\
		@echo "No PostgreSQL here: what tests the store ran on SQLite alone.")

# What the suite plays in part, whole: soaks, examples of property-based tests, the crawl of all pages, published agents.
long: $(DEV)
	$(VENV)/bin/pytest $(IN_PARALLEL) -m 'long or hypothesis' --hypothesis-profile=whole

# What stands between a green suite and a release (CONTRIBUTING.md). Takes an hour or so, on a quiet machine.
release-check: check long
	$(VENV)/bin/python -m benchmarks.years --fail

# uv makes the environment in a fifth of pip's time; where it cannot reach the index that pip is set up for, pip does.
INSTALL = $(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python --editable '.$(1)' \
	|| $(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.$(1)'

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check uv

$(RUN): pyproject.toml | $(VENV)/bin/pip
	@echo "Installing what Nexus needs into $(VENV): once."
	$(call INSTALL,)
	touch $@

$(DEV): pyproject.toml | $(VENV)/bin/pip
	@echo "Installing what the checks need into $(VENV): once, for a minute or so."
	$(call INSTALL,[dev])
	touch $@ $(RUN)

# The published versions of okto-nexus, whose stores are imported.
$(OKTO): tests/compat/okto.py | $(DEV)
	$(VENV)/bin/python -m tests.compat.okto
	touch $@

# The published nexus-core, whose answers are compared; without npm the tests that do so are skipped.
$(NEXUS_CORE): tests/compat/nexus_core.py | $(DEV)
	$(if $(CI)$(shell command -v npm),$(VENV)/bin/python -m tests.compat.nexus_core)

# The published Agent Bus, whose answers are compared; without Python 3.12 the test that does so is skipped.
$(AGENT_BUS): tests/compat/agent_bus.py | $(DEV)
	-$(VENV)/bin/python -m tests.compat.agent_bus

clean:
	rm -rf $(VENV) $(VENV)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis
