"""Settings, each declared once by its app; parsing, `--help`, the docs and the settings page use these declarations.

An app's settings are in its `config.py`, which does not use Django: they are read before it starts, also by a hook at
every turn of an agent. Hence no dataclasses: they, and what they import, take an eighth of such a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, TypeVar, cast, dataclass_transform
from urllib.parse import unquote, urlsplit

from nexus.core.operations.errors import Code, NexusError

TRUE, FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}
SECRET = re.compile(r"password|secret|_key", re.IGNORECASE)  # in the names of libpq's parameters
LARGEST = 2**31 - 1  # what every consumer (SQLite, timedelta, select) takes without overflow


class Setting(NamedTuple):
    """A setting as its app declares it with `setting`."""

    default: Any
    help: str  #: the sentence that documents it
    minimum: int | None = None
    maximum: int = LARGEST
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None  #: raises ValueError with what to write, for a text of a special form
    live: bool = True  #: else it is read once, before the store is open: only a flag or a variable sets it
    shown: Callable[[str], str] | None = None  #: turns a text that may hold a secret into one that may be shown
    bare: str | None = None  #: the meaning of its flag without a value


def setting(default: Any, help: str, **how: Any) -> Any:
    """Declare one setting; the other arguments are fields of `Setting`."""
    return Setting(default, help, **how)


class Settings:
    """The base class of an app's settings. `settings.NEXUS` is one immutable instance with the settings of all apps."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        vars(self).update(values)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{name} is set with replaced()")

    def replaced(self, **values: Any) -> Self:
        """Return a copy with some settings changed."""
        own = {name: value for name, value in vars(self).items() if name in TABLE}
        return type(self)({**own, **values})

    @classmethod
    def current(cls) -> Self:
        """Return the settings in force, typed as this app's."""
        from django.conf import settings

        return cast(Self, settings.NEXUS)


S = TypeVar("S", bound=type[Settings])

TABLE: dict[str, Setting] = {}  # every setting by name

KEEP = "retention_keep_days"
# Settings of 0.1, with what holds instead. A variable or a stored value of one is named in a warning; goes with 0.3.
RETIRED = {
    **dict.fromkeys(
        (
            "retention_closed_topic_messages_keep_days",
            "retention_closed_topics_keep_days",
            "retention_ended_file_reservations_keep_days",
            "retention_ended_questions_keep_days",
            "retention_ended_pool_agents_keep_days",
            "retention_compacted_pool_entries_keep_days",
            "retention_ended_pool_turns_keep_days",
        ),
        f"{KEEP} holds, or the longest of those that it replaces",
    ),
    "retention_forge_deliveries_keep_days": "calls of a forge are not stored",
    "retention_expired_tasks_keep_days": "there are no MCP tasks",
    "max_waiting_calls": "it is always 2048",
    "handoff_untaken_after_seconds": "it is always 600",
    "handoff_check_seconds": "a check runs for 900 s, or for its own `seconds`",
    "handoff_check_returns": "it is always 3",
    "handoff_renew_leases": "they are always renewed",
    "debt_notice_seconds": "it is always 900",
    "file_reservation_ttl_seconds": "it is always 900, and a call may give its own `seconds`",
    "rpc_token_copy": "give NEXUS3's clients the token as NEXUS3_API_KEY",
    "pool_queue": "it is always 100",
    "pool_wakes_a_minute": "it is always 20",
    "pool_wake_tokens": "it is always 1000000, and an agent may have its own `wake_tokens`",
    "pool_hang_seconds": "it is always 30",
    "pool_idle_seconds": "idle agents stay",
    "pool_bus_calls": "an agent's rights decide",
    "embedding_url": "embedding_model is a folder on this machine",
    "nats_url": "processes at one database tell each other by NOTIFY",
}
SECTIONS: list[type[Settings]] = []


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def section(cls: S) -> S:
    """Register the settings that a class declares; an app's `config` module uses this when it is imported."""
    declared = {name: value for name, value in vars(cls).items() if isinstance(value, Setting)}
    for name, each in declared.items():
        if name in TABLE:
            raise ValueError(f"setting {name} is declared twice")
        TABLE[name] = each
        setattr(cls, name, each.default)
    SECTIONS.append(cls)
    return cls


def group_of(name: str) -> str:
    """Return the heading under which a setting is listed: what its section holds, by the docstring."""
    about = next(each.__doc__ or "" for each in SECTIONS if name in vars(each))
    words = about.strip().rstrip(".").removeprefix("Settings of ").removeprefix("the ")
    return words[:1].upper() + words[1:]


def check_url(text: str) -> None:
    """Check a database URL. Raises ValueError, which does not repeat what may be a password."""
    form = "postgresql://user:password@host:5432/name"
    try:
        parts = urlsplit(text)
        for server in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{server}").port
    except ValueError:
        raise ValueError(f"use an address of the form {form}; special characters are %-encoded") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError(f"use an address of the form {form}. For SQLite use --db-path")
    if not parts.path.strip("/"):
        raise ValueError(f"name the database at the end: {form}")
    try:
        import psycopg
    except ImportError:
        from nexus.core.installation import needs_extra  # here: a hook does not need it

        raise ValueError(needs_extra("PostgreSQL", "postgres")) from None
    try:
        psycopg.conninfo.conninfo_to_dict(text)
    except psycopg.Error:
        raise ValueError(f"use an address of the form {form}, with libpq's parameters after a ?") from None


def check_networks(text: str) -> None:
    """Check a list of addresses and networks. Raises ValueError."""
    from ipaddress import ip_network

    for each in text.split(","):
        try:
            ip_network(each.strip())
        except ValueError:
            raise ValueError("use addresses or networks, separated by commas, such as 127.0.0.1,10.0.0.0/8") from None


def without_password(url: str) -> str:
    """Return a database URL without its secrets, as it may be shown."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    options = [option for option in parts.query.split("&") if not SECRET.search(unquote(option.partition("=")[0]))]
    query = f"?{'&'.join(options)}" if any(options) else ""
    return f"postgresql://{user.partition(':')[0]}{at}{host}{parts.path}{query}"


@section
class CoreSettings(Settings):
    """The location of the store, and the limits of every call."""

    home: Path = setting(Path("~/.nexus"), "The home directory; created if it is missing.", live=False)
    db_path: Path | None = setting(None, "SQLite database file. Default: nexus.db in the home directory.", live=False)
    database_url: str | None = setting(
        None,
        "PostgreSQL database that holds the store instead of a file: postgresql://user:password@host:5432/name.",
        check=check_url,
        live=False,
        shown=without_password,
    )
    busy_timeout_ms: int = setting(
        5000, "How long (ms) a call waits for the lock of another writer.", minimum=0, live=False
    )
    durability: str = setting(
        "full",
        "full: an answered write survives a power cut. normal: faster, but a power cut may lose the last writes.",
        choices=("full", "normal"),
        live=False,
    )
    poll_interval_ms: int = setting(
        200, "Shortest interval (ms) at which a wait reads changes that only time causes.", minimum=1
    )
    max_wait_timeout_seconds: int = setting(
        30,
        "Longest time (s) that a call may wait, unless its operation has a limit of its own.",
        minimum=0,
        maximum=86_400,
    )
    trusted_proxies: str | None = setting(
        None,
        "Addresses or networks of reverse proxies, separated by commas. A request through one has the address that "
        "X-Forwarded-For names, and is never local. Any Host is then accepted.",
        check=check_networks,
        live=False,
    )
    max_inline_bytes: int = setting(65_536, "Largest inline content, in UTF-8 bytes, inclusive.", minimum=1)

    @cached_property  # asked for twice in every call
    def database(self) -> Path:
        """The path of the store's file: `db_path`, or nexus.db in the home."""
        return self.db_path or self.home / "nexus.db"

    @property
    def location(self) -> str:
        """The location of the store as it may be shown: the file's path, or the URL without a password."""
        return str(self.database) if self.database_url is None else without_password(self.database_url)


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"NEXUS_{name.upper()}"


def flag(name: str) -> str:
    """Return the command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def parse(name: str, text: str, origin: str) -> Any:
    """Parse `text` as a value of the setting `name`.

    Raises CONFIG_ERROR, which names `origin` (the flag or the variable), for an invalid value.
    """
    declared = TABLE[name]

    def refuse(why: str) -> NexusError:
        got = "" if declared.shown else f" (got {text!r})"
        return NexusError(Code.CONFIG_ERROR, f"{origin}: {why}{got}.", {"setting": name})

    if "\x00" in text:
        raise refuse("a NUL character is not allowed")
    if declared.choices:
        if text not in declared.choices:
            raise refuse(f"use one of {', '.join(declared.choices)}")
        return text
    if declared.check:
        try:
            declared.check(text)
        except ValueError as error:
            raise refuse(str(error)) from None
        return text
    if isinstance(declared.default, bool):
        if text.lower() not in TRUE | FALSE:
            raise refuse("use true or false")
        return text.lower() in TRUE
    if isinstance(declared.default, int):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise refuse("use a whole number")
        assert declared.minimum is not None, "every number has its least"
        if not declared.minimum <= int(text) <= declared.maximum:
            raise refuse(_out_of_bounds(int(text), declared.minimum, declared.maximum))
        return int(text)
    if not text.strip():
        raise refuse("use a path")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise refuse("the home directory of that user is unknown") from None


def written(value: Any) -> str:
    """Return a setting's value as text that `parse` reads; empty for None."""
    return str(value).lower() if isinstance(value, bool) else str("" if value is None else value)


def inherited(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of settings with `retention_keep_days`, where only settings that it replaces are given: the
    longest of them, so that an upgrade deletes nothing early."""
    replaced = [text for name, text in texts.items() if KEEP in RETIRED.get(name, "")]
    days = [int(text) for text in replaced if re.fullmatch(r"[0-9]{1,5}", text)]
    if KEEP in texts or max(days, default=0) <= TABLE[KEEP].default:
        return dict(texts)
    return {**texts, KEEP: str(min(max(days), TABLE[KEEP].maximum))}


def retired(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that is no setting any more."""
    there = [name for name in RETIRED if variable(name) in environ]
    return [f"{variable(name)} is no setting any more: {RETIRED[name]}." for name in there]


def explicit() -> dict[str, str]:
    """Return the settings that this process got from flags and variables, as variables for a child process."""
    from django.conf import settings

    names = [name for name, source in settings.NEXUS_SOURCES.items() if source in ("flag", "environment")]
    return {variable(name): written(getattr(settings.NEXUS, name)) for name in names}


def _out_of_bounds(number: int, minimum: int, maximum: int) -> str:
    """Return what to write instead. A bound that only the machine sets is not mentioned: it would tell nobody
    anything."""
    if maximum < LARGEST:
        return f"use a number from {minimum} to {maximum}"
    return f"use a number of {minimum} or more" if number < minimum else "use a smaller number"


class Resolved(NamedTuple):
    """The settings of all apps in one object, and the origin of each: `flag`, `environment` or `default`."""

    settings: Any
    sources: Mapping[str, str]


def resolve(environ: Mapping[str, str], flags: Mapping[str, str]) -> Resolved:
    """Read the settings: a flag takes precedence over the environment, which does over the default. Raises
    CONFIG_ERROR."""
    values: dict[str, Any] = {"home": Path("~/.nexus").expanduser().absolute()}
    sources = dict.fromkeys(TABLE, "default")
    variables = inherited({name: environ[variable(name)] for name in (*TABLE, *RETIRED) if variable(name) in environ})
    for name in TABLE:
        if name in flags:
            values[name], sources[name] = parse(name, flags[name], flag(name)), "flag"
        elif name in variables:
            values[name], sources[name] = parse(name, variables[name], variable(name)), "environment"
    if "db_path" in values and "database_url" in values:
        raise NexusError(
            Code.CONFIG_ERROR,
            f"{flag('db_path')} and {flag('database_url')} both say where the store is: give one of them.",
            {"setting": "database_url"},
        )
    every = type("EverySetting", tuple(reversed(SECTIONS)), {})
    return Resolved(every(values), sources)


def package_version() -> str:
    """Return the installed distribution's version; `dev` for a source checkout that is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # here: a hook does not need it

    try:
        return version("nexus-hub")
    except PackageNotFoundError:
        return "dev"
