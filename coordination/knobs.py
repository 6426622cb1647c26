"""Every setting, declared once: parsing, `--help`, the docs and the settings page read this table.

The table stands below the apps that read it, because arrows between rooms run only downward.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordination.errors import Code, NexusError

TRUE, FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}
LARGEST = 2**31 - 1  # what every consumer (SQLite, timedelta, select) takes without overflow


def knob(
    default: Any,
    help: str,
    *,
    minimum: int | None = None,
    maximum: int = LARGEST,
    choices: tuple[str, ...] = (),
    live: bool = True,
) -> Any:
    """Declare one setting: its default, bounds and the sentence that documents it.

    One that is not `live` is read once, at start, before the store is open: only a flag or a variable sets it.
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices, "live": live}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Knobs:
    """The resolved settings of one process (contract: Configuration)."""

    home: Path = knob(Path("~/.nexus"), "Server home directory; created when missing.", live=False)
    db_path: Path | None = knob(None, "SQLite database file. Default: nexus.db in the home directory.", live=False)
    busy_timeout_ms: int = knob(5000, "How long (ms) a connection waits for another writer.", minimum=0, live=False)
    poll_interval_ms: int = knob(
        200, "Shortest time (ms) between two looks of a wait at what time alone changes.", minimum=1
    )
    max_wait_timeout_seconds: int = knob(30, "Ceiling (s) for every blocking wait.", minimum=0, maximum=86_400)
    handoff_lease_ttl_seconds: int = knob(300, "Lease (s) of a claimed handoff.", minimum=1)
    max_inline_bytes: int = knob(65_536, "Largest inline content, in UTF-8 bytes, inclusive.", minimum=1)
    inbox_lease_ttl_seconds: int = knob(300, "Default lease (s) of pulled deliveries.", minimum=1)
    session_stale_ttl_seconds: int = knob(60, "A heartbeat older than this (s) reads as stale.", minimum=1)
    presence_ttl_seconds: int = knob(
        1800, "A session counts as present while its heartbeat is this fresh (s).", minimum=1
    )
    session_reap_seconds: int = knob(86_400, "Sessions silent for longer (s) are closed in passing.", minimum=1)
    max_shared_md_events: int = knob(1000, "Ceiling for limit_events of shared_md_render.", minimum=1)
    max_event_limit: int = knob(1000, "Ceiling for the page size of event_get and event_wait.", minimum=1)
    trust_mode: str = knob(
        "open",
        "strict asks for session_id and session_secret on sensitive verbs; open checks them when given.",
        choices=("open", "strict"),
    )
    durability: str = knob(
        "full",
        "full: an answered write survives a power cut. normal: faster, the last writes may be lost then.",
        choices=("full", "normal"),
        live=False,
    )
    retention_events_keep_days: int = knob(
        30, "Events older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    retention_read_deliveries_keep_days: int = knob(
        14, "Acknowledged deliveries older than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    retention_closed_sessions_keep_days: int = knob(
        7, "Sessions closed for longer than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    auto_prune_on_start: bool = knob(False, "Run one bounded retention pass when a server starts.")

    @property
    def database(self) -> Path:
        """Where the store is: `db_path`, or nexus.db in the home."""
        return self.db_path or self.home / "nexus.db"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"NEXUS_{name.upper()}"


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


TABLE: Mapping[str, dataclasses.Field[Any]] = {field.name: field for field in dataclasses.fields(Knobs)}


def parse(name: str, text: str, origin: str) -> Any:
    """The value that `text` spells for the setting `name`.

    Raises CONFIG_ERROR naming `origin` (the flag or the variable) when it is out of the setting's vocabulary.
    """
    field = TABLE[name]
    meta = field.metadata

    def refuse(why: str) -> NexusError:
        return NexusError(Code.CONFIG_ERROR, f"{origin}: {why} (got {text!r}).", {"setting": name})

    if "\x00" in text:
        raise refuse("a NUL character is not allowed")
    if meta["choices"]:
        if text not in meta["choices"]:
            raise refuse(f"use one of {', '.join(meta['choices'])}")
        return text
    if isinstance(field.default, bool):
        if text.lower() not in TRUE | FALSE:
            raise refuse("use true or false")
        return text.lower() in TRUE
    if isinstance(field.default, int):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise refuse("use a whole number")
        if not meta["minimum"] <= int(text) <= meta["maximum"]:
            raise refuse(f"use a number from {meta['minimum']} to {meta['maximum']}")
        return int(text)
    if not text.strip():
        raise refuse("use a path")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise refuse("the home directory of that user is unknown") from None


@dataclass(frozen=True)
class Resolved:
    """The settings and where each came from: `flag`, `environment` or `default`."""

    knobs: Knobs
    sources: Mapping[str, str]


def resolve(environ: Mapping[str, str], flags: Mapping[str, str]) -> Resolved:
    """Flag over environment over default (contract: Configuration). Raises CONFIG_ERROR."""
    values: dict[str, Any] = {"home": Path("~/.nexus").expanduser().absolute()}
    sources = dict.fromkeys(TABLE, "default")
    for name in TABLE:
        if name in flags:
            values[name], sources[name] = parse(name, flags[name], flag(name)), "flag"
        elif variable(name) in environ:
            values[name], sources[name] = parse(name, environ[variable(name)], variable(name)), "environment"
    return Resolved(Knobs(**values), sources)
