"""The Makefile's list of tests for PostgreSQL names files that exist: pytest plays none of a list with another."""

from __future__ import annotations

import re

from nexus_site.settings import BASE_DIR

LISTS = re.compile(r"\$\(patsubst %,(?P<form>tests/\S+%\.py),(?P<names>[^)]+)\)")
FILES = re.compile(r"\btests/[\w/]+\.py\b")


def test_every_file_for_postgresql_is_there() -> None:
    text = (BASE_DIR / "Makefile").read_text()
    found = [each["form"].replace("%", name) for each in LISTS.finditer(text) for name in each["names"].split()]
    found += FILES.findall(LISTS.sub("", text))
    assert len(found) > 30 and [name for name in found if not (BASE_DIR / name).is_file()] == []
