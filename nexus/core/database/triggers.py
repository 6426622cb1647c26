"""How PostgreSQL has the triggers of apps written."""

from __future__ import annotations

from collections.abc import Mapping


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
