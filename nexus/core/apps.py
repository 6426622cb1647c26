"""The base class of Nexus's apps, which declares what an app can add, and the lists collected from all apps."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.apps import AppConfig, apps
from django.utils.module_loading import module_has_submodule

if TYPE_CHECKING:
    from datetime import datetime

    from nexus.core.contributions import (
        Action,
        Address,
        AsgiEndpoint,
        AttentionKind,
        BrowserNotification,
        DoctorCheck,
        EntityRef,
        ExportKind,
        Figure,
        Items,
        Page,
        PendingNotice,
        RetentionRule,
        Sentence,
        StartedBy,
        WakeKind,
    )
    from nexus.core.operations.caller import Caller
    from nexus.core.operations.registry import Operation


T = TypeVar("T")


class NexusAppConfig(AppConfig):
    """An app of Nexus. Most of what it adds is found in its modules, by their names, as Django finds `admin.py`:

    | module | what is read from it |
    |---|---|
    | `config.py` | its settings |
    | `operations.py` or `operations/` | its operations |
    | `events.py` | `SENTENCES` and `THINGS` |
    | `maintenance.py` | `RETENTION_RULES`, `KINDS` and `CHECKS` |
    | `attention.py` | `KINDS` and `ACTIONS` |
    | `metrics.py` | `collect` and `FIGURES` |
    | `models.py` | `STREAMS`, and `TRIGGERS` of its tables in each database |
    | `api.py` | `routes` |
    | `urls.py` | `PAGES` |

    The methods say what each of them is. An app that declares something elsewhere, or only sometimes, overrides the
    method. A module is imported when something is read from it, so that an agent's process loads neither pages nor
    routes. An app is added by its folder and one line in `nexus_site.launch.APPS`; no other app's file changes.
    """

    # What declares its operations and its texts for agents, in the order in which agents see them. A `toolset` names
    # the modules of operations that most agents do not need, and which are imported later.
    declared_in: Sequence[str] = ("operations",)
    # By table, the column that holds when a row was last written; none of these times may be in the future.
    clock_columns: Mapping[str, str] = {}
    # By operation, the command line that does the same; errors shown in a terminal name these.
    commands: Mapping[str, str] = {}
    # By operation that only agents call, the words that errors shown to people use instead.
    words: Mapping[str, str] = {}
    default = False  # Django takes an app's own subclass, and not this import of it

    def __init_subclass__(cls) -> None:
        cls.default = True

    def ready(self) -> None:
        for module in self.declared_in:
            _submodule(self.module, module)

    def check_call(self, caller: Caller, operation: Operation[Any], params: Any) -> None:
        """Check a call, and each look of a wait, of who is no operator. Raises NexusError to refuse it."""

    def share_of(self, agent_id: str) -> str | None:
        """Return the name of the share that an agent has together with others; None if it has none. Reads the store."""
        return None

    def check_settings(self) -> None:
        """Check settings that depend on those of other apps, before anything is written. Raises CONFIG_ERROR."""

    def streams(self) -> Mapping[str, str]:
        """Return the streams of the log that the app writes to: descriptions by name."""
        return self._declared("models", "STREAMS", {})

    def sentences(self) -> Mapping[str, Sentence]:
        """Return the types of events that the app writes, each with the sentence that pages show."""
        return self._declared("events", "SENTENCES", {})

    def entity_refs(self) -> Mapping[str, EntityRef]:
        """Return the entities that its sentences mention, by name."""
        return self._declared("events", "THINGS", {})

    def retention_rules(self) -> Sequence[RetentionRule]:
        """Return the kinds of rows that retention may delete."""
        return self._declared("maintenance", "RETENTION_RULES", ())

    def export_kinds(self) -> Sequence[ExportKind]:
        """Return the tables that belong to a workspace's history."""
        return self._declared("maintenance", "KINDS", ())

    def doctor_checks(self) -> Sequence[DoctorCheck]:
        """Return the checks of `nexus doctor`, besides those that it makes of every table."""
        return self._declared("maintenance", "CHECKS", ())

    def database_objects(self, vendor: str) -> Mapping[str, str]:
        """Return the triggers of its tables, by name, in the SQL of the database `vendor` (`sqlite` or `postgresql`).
        They are created again after every migrate, because a rebuilt table loses them."""
        triggers: Mapping[str, Mapping[str, str]] = self._declared("models", "TRIGGERS", {})
        return triggers.get(vendor, {})

    def metrics(self) -> Iterable[Any]:
        """Return Prometheus metric families of the store's current content."""
        return self._declared("metrics", "collect", tuple)()

    def figures(self) -> Sequence[Figure]:
        """Return the measurements of the app's work, which are histograms in /metrics."""
        return self._declared("metrics", "FIGURES", ())

    def attention_kinds(self) -> Sequence[AttentionKind]:
        """Return the kinds of items that may wait for an operator."""
        return self._declared("attention", "KINDS", ())

    def actions(self) -> Sequence[Action]:
        """Return the actions that an operator can take on these items and on the app's records."""
        return self._declared("attention", "ACTIONS", ())

    def routes(self) -> Sequence[Any]:
        """Return URL patterns below /api/v1/."""
        return self._declared("api", "routes", ())

    def pages(self) -> Sequence[Page]:
        """Return its pages below /admin/."""
        return self._declared("urls", "PAGES", ())

    def pending_notices(self) -> Sequence[PendingNotice]:
        """Return the kinds of items that may wait for an agent between its turns."""
        return ()

    def wake_kinds(self) -> Sequence[WakeKind]:
        """Return the kinds of items that may wake agents of the pool."""
        return ()

    def starters(self, senders: Collection[tuple[str, datetime]]) -> Mapping[tuple[str, datetime], StartedBy]:
        """Return who started these agents, each as it was at a moment. Who is unknown is left out."""
        return {}

    def browser_notifications(self) -> Sequence[BrowserNotification]:
        """Return the kinds of items that block agents until an operator answers."""
        return ()

    def websocket_routes(self) -> Sequence[Any]:
        """Return URL patterns of WebSockets."""
        return ()

    def mcp_servers(self) -> Mapping[str, Callable[[Caller], Any]]:
        """Return the MCP servers of other systems that `runmcp --as` takes the place of, by name: functions from the
        caller to a server of the SDK."""
        return {}

    def endpoints(self) -> Sequence[AsgiEndpoint]:
        """Return ASGI applications that answer HTTP requests without Django, at paths of their own."""
        return ()

    def addresses(self) -> Sequence[Address]:
        """Return the addresses of these applications in this run."""
        return ()

    def remarks(self) -> Mapping[str, str]:
        """Return lines that `serve` prints below its addresses, each by a word for it."""
        return {}

    def openapi_paths(self) -> Mapping[str, Any]:
        """Return paths of the OpenAPI schema that no view declares."""
        return {}

    def operators_token(self) -> str | None:
        """Return the token that makes its holder an operator of this hub; only who can read the home can read it."""
        return None

    def runs_others_programs(self) -> bool:
        """Return whether it runs programs here that are not the operator's own: a local connection proves nothing
        then."""
        return False

    def connection_state(self, connection: str) -> Any:
        """Return what it keeps in memory about a connection, as JSON; a relay passes that to the next hub."""
        return None

    def restore_connection(self, connection: str, state: Any) -> None:
        """Restore what `connection_state` returned in another process. Raises ValueError if it is invalid."""

    def on_start(self) -> None:
        """Run once the store of a server (the hub or an agent's own) is ready; the app logs its failures itself."""

    def on_serve(self) -> None:
        """Run in the hub before it accepts connections; if this raises, the hub does not start."""

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return coroutine functions that a server runs in the background until it ends."""
        return ()

    def _declared(self, module: str, name: str, otherwise: T) -> T:
        return cast(T, getattr(_submodule(self.module, module), name, otherwise))


@cache
def _submodule(package: ModuleType, name: str) -> ModuleType | None:
    """Return a module of a package, imported; None if there is none."""
    return import_module(f"{package.__name__}.{name}") if module_has_submodule(package, name) else None


class CoreConfig(NexusAppConfig):
    name = "nexus.core"


def nexus_apps() -> Sequence[NexusAppConfig]:
    """Return the apps of Nexus, in the order of the settings."""
    return [config for config in apps.get_app_configs() if isinstance(config, NexusAppConfig)]


def database_objects(vendor: str) -> dict[str, str]:
    """Return every app's triggers, by name."""
    return {name: statement for app in nexus_apps() for name, statement in app.database_objects(vendor).items()}


def kinds_of_needs() -> list[AttentionKind]:
    """Return every app's kinds of items that need an operator's attention, the most urgent first."""
    return sorted((kind for app in nexus_apps() for kind in app.attention_kinds()), key=lambda kind: kind.rank)


def needs(picture: Any, each: int) -> list[tuple[AttentionKind, Items]]:
    """Return what needs an operator's attention, the most urgent kind first, without empty kinds, at most `each` items
    a kind."""
    found = [(kind, kind.find(picture, each)) for kind in kinds_of_needs()]
    return [(kind, these) for kind, these in found if these.count]


def bells() -> list[BrowserNotification]:
    """Return every app's browser notifications."""
    return [bell for app in nexus_apps() for bell in app.browser_notifications()]


def actions() -> dict[str, Action]:
    """Return every app's actions, by name."""
    return {action.name: action for app in nexus_apps() for action in app.actions()}


def mcp_servers() -> dict[str, Callable[[Caller], Any]]:
    """Return the MCP servers of other systems, by name."""
    return {name: build for app in nexus_apps() for name, build in app.mcp_servers().items()}


def event_types() -> list[str]:
    """Return the types of all events, sorted."""
    return sorted({type for config in nexus_apps() for type in config.sentences()})


def own_labels() -> list[str]:
    """Return the labels of Nexus's own apps, whose tables and migrations are ours."""
    return [config.label for config in nexus_apps()]


def as_commands(text: str) -> str:
    """Return a message with command lines in place of the operations that it names, for a terminal."""
    known = {operation: f"`{line}`" for config in nexus_apps() for operation, line in config.commands.items()}
    return reword(text, known)


def reword(text: str, known: Mapping[str, str]) -> str:
    """Return a message for people: `known` words replace the operations, with their arguments, and the parameters that
    it names."""
    wording = {name: words for config in nexus_apps() for name, words in config.words.items()} | dict(known)
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)\b(\([^()]*\))?", lambda found: wording.get(found[1], found[0]), text)
