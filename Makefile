# The environment is made once and made again only when what the project declares changes.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/installed

.PHONY: serve demo test clean

serve: $(STAMP)
	$(VENV)/bin/python manage.py serve

demo: $(STAMP)
	$(VENV)/bin/python manage.py demo

test: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy .
	$(VENV)/bin/python manage.py makemigrations --check --dry-run
	$(VENV)/bin/pytest -n auto

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
