"""The triggers that apps bring, made anew after every migrate, and how PostgreSQL has them written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import AppConfig
from django.db import connection
from django.db.models.signals import post_migrate

from nexus.core.apps import NexusAppConfig
from nexus.core.database.store import store


def keep_triggers() -> None:
    """From here on: a migration that rebuilds a table drops its triggers without a word, so they are made again."""
    post_migrate.connect(_install, dispatch_uid=__name__)


def _install(sender: AppConfig, **_: Any) -> None:
    if isinstance(sender, NexusAppConfig):
        store().install(sender.database_objects(connection.vendor))


def postgres_triggers(parts: Mapping[str, tuple[str, str, str]]) -> dict[str, str]:
    """By name, the triggers of which `parts` gives the moment, the body and the condition."""
    return {name: postgres_trigger(name, moment, body, when=when) for name, (moment, body, when) in parts.items()}


def postgres_trigger(name: str, moment: str, body: str, *, when: str = "true") -> str:
    """A trigger of this name, made anew, with its function. `moment` is such as `AFTER INSERT ON events`; `body` is
    PL/pgSQL that sees the rows `new` and `old`. The condition stands in the function: PostgreSQL keeps its text as it
    is, and puts that of a trigger in words of its own.
    """
    table = moment.split()[-1]
    each = "STATEMENT" if "TRUNCATE" in moment else "ROW"
    source = f"""
        BEGIN
            IF {when} THEN
                {body}
            END IF;
            IF TG_OP = 'DELETE' THEN RETURN old; ELSE RETURN new; END IF;
        END """
    return postgres_text(
        name, table, source, f"CREATE TRIGGER {name} {moment} FOR EACH {each} EXECUTE FUNCTION {name}()"
    )


def postgres_text(name: str, table: str, source: str, trigger: str) -> str:
    """The statements that make a trigger with its function, of which PostgreSQL keeps these parts."""
    return f"""
        CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${source}$$;
        DROP TRIGGER IF EXISTS {name} ON {table};
        {trigger}
    """
