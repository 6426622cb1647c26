"""The base class of Nexus's apps, which declares what an app can add, and the lists collected from all apps."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig, apps
from django.utils.module_loading import module_has_submodule

if TYPE_CHECKING:
    from nexus.core.contributions import (
        Action,
        Address,
        AttentionKind,
        BrowserNotification,
        DoctorCheck,
        Endpoint,
        EntityRef,
        ExportKind,
        Figure,
        Found,
        ImpossibleState,
        Page,
        PendingNotice,
        RetentionLane,
        Sentence,
        WakeKind,
    )


class NexusAppConfig(AppConfig):
    """An app of Nexus. Its settings are in `config.py`; each method lists one kind of addition.

    An app is added by its folder and one line in `nexus_site.launch.APPS`; no other app's file changes. Each method
    imports what it needs, so that an agent's process loads neither pages nor routes.
    """

    # What declares its operations and its texts for agents, in the order in which agents see them.
    declared_in: Sequence[str] = ("operations", "resources")
    default = False  # Django takes an app's own subclass, and not this import of it

    def __init_subclass__(cls) -> None:
        cls.default = True

    def ready(self) -> None:
        for module in self.declared_in:
            if module_has_submodule(self.module, module):
                import_module(f"{self.name}.{module}")

    def check_settings(self) -> None:
        """Check settings that depend on those of other apps, before anything is written. Raises CONFIG_ERROR."""

    def streams(self) -> Mapping[str, str]:
        """Return the streams of the log that the app writes to: descriptions by name."""
        return {}

    def event_types(self) -> Sequence[str]:
        """Return the types of the events that the app writes."""
        return ()

    def sentences(self) -> Mapping[str, Sentence]:
        """Return the sentences for its events, by type; pages show a type without a sentence as words."""
        return {}

    def entity_refs(self) -> Mapping[str, EntityRef]:
        """Return the entities that its sentences mention, by name."""
        return {}

    def retention_lanes(self) -> Sequence[RetentionLane]:
        """Return the kinds of rows that retention may delete."""
        return ()

    def export_kinds(self) -> Sequence[ExportKind]:
        """Return the tables that belong to a workspace's history."""
        return ()

    def doctor_checks(self) -> Sequence[DoctorCheck]:
        """Return the checks of `nexus doctor`, besides those that it makes of every table."""
        return ()

    def impossible_states(self) -> Sequence[ImpossibleState]:
        """Return the states of rows that `nexus doctor` finds and repairs."""
        return ()

    def clock_columns(self) -> Mapping[str, str]:
        """Return, by table, the column that holds when a row was last written; none of these times may be in the
        future."""
        return {}

    def database_objects(self, vendor: str) -> Mapping[str, str]:
        """Return the triggers of its tables, by name, in the SQL of the database `vendor` (`sqlite` or `postgresql`).
        They are created again after every migrate, because a rebuilt table loses them."""
        return {}

    def metrics(self) -> Iterable[Any]:
        """Return Prometheus metric families of the store's current content."""
        return ()

    def figures(self) -> Sequence[Figure]:
        """Return the measurements of the app's work, over any window and as histograms."""
        return ()

    def pending_notices(self) -> Sequence[PendingNotice]:
        """Return the kinds of items that may wait for an agent between its turns."""
        return ()

    def wake_kinds(self) -> Sequence[WakeKind]:
        """Return the kinds of items that may wake agents of the pool."""
        return ()

    def attention_kinds(self) -> Sequence[AttentionKind]:
        """Return the kinds of items that may wait for an operator."""
        return ()

    def browser_notifications(self) -> Sequence[BrowserNotification]:
        """Return the kinds of items that block agents until an operator answers."""
        return ()

    def actions(self) -> Sequence[Action]:
        """Return the actions that an operator can take on these items and on the app's records."""
        return ()

    def routes(self) -> Sequence[Any]:
        """Return URL patterns below /api/v1/."""
        return ()

    def websocket_routes(self) -> Sequence[Any]:
        """Return URL patterns of WebSockets."""
        return ()

    def endpoints(self) -> Sequence[Endpoint]:
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

    def pages(self) -> Sequence[Page]:
        """Return its pages below /admin/: `PAGES` in its `urls.py`."""
        if not module_has_submodule(self.module, "urls"):
            return ()
        return getattr(import_module(f"{self.name}.urls"), "PAGES", ())

    def commands(self) -> Mapping[str, str]:
        """Return, by operation, the command line that does the same; errors shown in a terminal name these."""
        return {}

    def words(self) -> Mapping[str, str]:
        """Return, by operation that only agents call, the words that errors shown to people use instead."""
        return {}

    def operators_token(self) -> str | None:
        """Return a token of this run that makes its holder an operator; only who can read the home can read it."""
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

    def workers(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return coroutine functions that a server runs in the background until it ends."""
        return ()


class CoreConfig(NexusAppConfig):
    name = "nexus.core"


def nexus_apps() -> Sequence[NexusAppConfig]:
    """Return the apps of Nexus, in the order of the settings."""
    return [config for config in apps.get_app_configs() if isinstance(config, NexusAppConfig)]


def database_objects(vendor: str) -> dict[str, str]:
    """Return every app's triggers, by name."""
    return {name: statement for app in nexus_apps() for name, statement in app.database_objects(vendor).items()}


def needs(picture: Any, each: int) -> list[tuple[AttentionKind, Found]]:
    """Return what needs an operator's attention, the most urgent kind first, without empty kinds, at most `each` items
    a kind."""
    kinds = sorted((kind for app in nexus_apps() for kind in app.attention_kinds()), key=lambda kind: kind.rank)
    found = [(kind, kind.find(picture, each)) for kind in kinds]
    return [(kind, these) for kind, these in found if these.count]


def bells() -> list[BrowserNotification]:
    """Return every app's browser notifications."""
    return [bell for app in nexus_apps() for bell in app.browser_notifications()]


def actions() -> dict[str, Action]:
    """Return every app's actions, by operation."""
    return {action.operation: action for app in nexus_apps() for action in app.actions()}


def event_types() -> list[str]:
    """Return the types of all events, sorted."""
    return sorted({type for config in nexus_apps() for type in config.event_types()})


def own_labels() -> list[str]:
    """Return the labels of Nexus's own apps, whose tables and migrations are ours."""
    return [config.label for config in nexus_apps()]


def as_commands(text: str) -> str:
    """Return a message with command lines in place of the operations that it names, for a terminal."""
    known = {operation: f"`{line}`" for config in nexus_apps() for operation, line in config.commands().items()}
    return reword(text, known)


def reword(text: str, known: Mapping[str, str]) -> str:
    """Return a message for people: `known` words replace the operations, with their arguments, and the parameters that
    it names."""
    told = {name: words for config in nexus_apps() for name, words in config.words().items()} | dict(known)
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)\b(\([^()]*\))?", lambda found: told.get(found[1], found[0]), text)
