"""Empty databases of the PostgreSQL server that tests use."""

from __future__ import annotations

import os
from typing import Any

from tests.postgres import url


class Server:
    """Empty databases, each gone when the test ends."""

    def __init__(self, purpose: str = "test") -> None:
        self.purpose, self.names = purpose, list[str]()

    def database(self, template: str = "template0") -> str:
        """The address of a new one; with a template it begins as a copy of that database."""
        self.names.append(
            f"nexus_tests_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}_{self.purpose}_{len(self.names)}"
        )
        self.drop(self.names[-1])
        self.run(
            f"CREATE DATABASE {self.names[-1]} TEMPLATE {template} ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
        )
        return url(self.names[-1])

    def drop(self, name: str) -> None:
        self.run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def run(self, statement: str) -> None:
        rows(url("postgres"), statement)


def rows(address: str, statement: str) -> list[tuple[Any, ...]]:
    import psycopg  # an extra: where there is no server, it need not be there

    with psycopg.connect(address, autocommit=True) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
