"""Settings at run time. Precedence: flag, environment, stored value, default.

All code reads `settings.NEXUS`. A process replaces it when the stored settings have changed: at once in the process
that changed them, elsewhere with the first call a second later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any

from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from typing_extensions import TypedDict

from coordination import clock_repair
from coordination.models import StoredSetting
from coordination.services import agent_limits, audit
from nexus.core.clock import now
from nexus.core.config import LARGEST, RETIRED, TABLE, flag, group_of, inherited, parse, variable
from nexus.core.database.sql import is_on_loop
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.parameters import one_of

log = logging.getLogger(__name__)

REFRESH_SECONDS = 1.0

_applying = threading.Lock()  # an older read must not replace a newer one
_applied: dict[str, str] = {}  # what is stored, as this process last read it
_looked = 0.0  # when it was read, in seconds since the epoch


def refresh() -> None:
    """Load what other processes stored, when the last check is a second old, and end what a wrong clock prolonged. It
    costs a few small reads then. Raises SynchronousOnlyOperation on an event loop, where a thread must check."""
    global _looked
    moment = time.time()
    if abs(moment - _looked) >= REFRESH_SECONDS:  # a clock that was set back must not delay the check
        if is_on_loop():  # first: the thread that checks instead must find the check due
            raise SynchronousOnlyOperation("a thread reads the stored settings")
        _looked = moment
        apply()
        agent_limits.apply()
        clock_repair.end_overlong()


def apply() -> None:
    """Update `settings.NEXUS` from the store."""
    global _applied
    with _applying:
        stored = _stored()
        if stored == _applied:
            return
        for name in RETIRED.keys() & stored.keys() - _applied.keys():
            log.warning(
                "%s is stored and no setting any more: %s. `nexus settings unset %s` removes it.",
                name,
                RETIRED[name],
                name,
            )
        differing = {name for name, _ in stored.items() ^ _applied.items() if name in TABLE}
        values = {name: _value(name, stored) for name in differing if source(name, {}) == "default"}
        settings.NEXUS = settings.NEXUS.replaced(**values)
        _applied = stored


def update(*, values: Mapping[str, Any], operator: str) -> None:
    """Store settings, all of them or none; null removes a stored one.

    Raises VALIDATION_ERROR for an unknown name or a value out of bounds, CONFIG_ERROR for a setting that a flag or a
    variable pins, and for one that only they can set.
    """
    for name, value in values.items():
        if value is None and name in RETIRED:
            continue
        _check_editable(name)
        if value is not None:
            _spelled(name, value)
    moment = now()
    with write():
        before = dict(StoredSetting.objects.values_list("name", "value"))
        for name, value in values.items():
            rows = StoredSetting.objects.filter(pk=name)
            if value is None:
                rows.delete()
            else:
                defaults = {"value": _spelled(name, value), "updated_at": moment, "updated_by": operator}
                StoredSetting.objects.update_or_create(name=name, defaults=defaults)
            audit.record(operator, "setting.changed", moment, name=name, value=value, before=before.get(name))
        transaction.on_commit(apply)


def _stored() -> dict[str, str]:
    return inherited(dict(StoredSetting.objects.values_list("name", "value")))


def source(name: str, stored: Mapping[str, str]) -> str:
    """Return the source of the value in force: `flag`, `environment`, `stored` or `default`."""
    started = settings.NEXUS_SOURCES[name]
    return "stored" if started == "default" and name in stored else started


def public_value(name: str) -> Any:
    """Return the value in force without its secret parts."""
    value, redact = getattr(settings.NEXUS, name), TABLE[name].shown
    return value if value is None or redact is None else redact(value)


class SettingRow(TypedDict):
    name: str
    group: str
    value: bool | int | str | None
    default: bool | int | str | None
    source: Annotated[str, one_of(("flag", "environment", "stored", "default"))]
    pinned: bool
    applies: Annotated[str, one_of(("at once", "at start"))]
    description: str
    minimum: int | None
    maximum: int | None
    choices: list[str] | None
    flag: str
    variable: str


def described() -> list[SettingRow]:
    """Return every setting: value in force, source, whether it can be edited and why not, bounds, and its meaning."""
    stored = _stored()
    rows: list[SettingRow] = []
    for name, declared in TABLE.items():
        value, origin = public_value(name), source(name, stored)
        rows.append(
            {
                "name": name,
                "group": group_of(name),
                "value": value if isinstance(value, int | str | None) else str(value),
                "default": declared.default
                if isinstance(declared.default, int | str | None)
                else str(declared.default),
                "source": origin,
                "pinned": origin in ("flag", "environment"),
                "applies": "at once" if declared.live else "at start",
                "description": declared.help,
                "minimum": declared.minimum,
                "maximum": None if declared.minimum is None or declared.maximum == LARGEST else declared.maximum,
                "choices": list(declared.choices) or None,
                "flag": flag(name),
                "variable": variable(name),
            }
        )
    return rows


def _value(name: str, stored: Mapping[str, str]) -> Any:
    """Return the stored value, or the default where there is none or this version does not understand it."""
    try:
        return parse(name, stored[name], f"the stored {name}")
    except (KeyError, NexusError):
        return TABLE[name].default


def _check_editable(name: str) -> None:
    if name not in TABLE:
        raise invalid(f"Unknown setting {name[:200]!r}; settings_list names them all.", field=name[:200])
    started = settings.NEXUS_SOURCES[name]
    if started != "default":
        by = flag(name) if started == "flag" else variable(name)
        raise NexusError(Code.CONFIG_ERROR, f"{by} pins this setting; change or drop it there.", {"setting": name})
    if not TABLE[name].live:
        raise NexusError(
            Code.CONFIG_ERROR,
            f"{name} is read once, at start: start with {flag(name)} or {variable(name)}.",
            {"setting": name},
        )


def _spelled(name: str, value: Any) -> str:
    """Return `value` as a flag spells it. Raises VALIDATION_ERROR for another type or a value out of bounds."""
    wanted = type(TABLE[name].default)
    if type(value) is not wanted:
        kinds = {bool: "true or false", int: "a whole number", str: "a string"}
        raise invalid(f"{name} must be {kinds[wanted]}, or null for the default.", field=name)
    text = str(value)
    try:
        parse(name, text, name)
    except NexusError as error:
        raise invalid(error.message, field=name) from None
    return text
