"""The apps of Nexus: each declares what it brings, and the rooms above collect it."""

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
    """An app of Nexus. Its settings stand in `config.py`; the rest it lists here.

    An app is added by its folder and one line in `nexus_site.launch.APPS`; no other app's file changes. What a method
    needs it imports itself: an agent's process loads neither pages nor routes.
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
        """Raises CONFIG_ERROR for a setting that only all apps together can judge; before anything is written."""

    def streams(self) -> Mapping[str, str]:
        """By name, the streams of the log that it writes to, with what each holds."""
        return {}

    def event_types(self) -> Sequence[str]:
        """The types of the events that it writes."""
        return ()

    def sentences(self) -> Mapping[str, Sentence]:
        """By type of event, how it reads to people; one without a sentence reads as its type in words."""
        return {}

    def entity_refs(self) -> Mapping[str, EntityRef]:
        """By name, what its sentences tell of."""
        return {}

    def retention_lanes(self) -> Sequence[RetentionLane]:
        """What retention may delete."""
        return ()

    def export_kinds(self) -> Sequence[ExportKind]:
        """What belongs to a workspace's history."""
        return ()

    def doctor_checks(self) -> Sequence[DoctorCheck]:
        """What `nexus doctor` looks for, beside what it checks of every table."""
        return ()

    def impossible_states(self) -> Sequence[ImpossibleState]:
        """The rows that `nexus doctor` finds and brings back among the possible ones."""
        return ()

    def clock_columns(self) -> Mapping[str, str]:
        """By table, the column that holds when a row was last written: none of them is in the future."""
        return {}

    def database_objects(self, vendor: str) -> Mapping[str, str]:
        """By name, the triggers of its tables, in the words of the database `vendor` (`sqlite` or `postgresql`): made
        again after every migrate, because a rebuilt table loses them."""
        return {}

    def metrics(self) -> Iterable[Any]:
        """Prometheus metric families of what the store holds now."""
        return ()

    def figures(self) -> Sequence[Figure]:
        """What is measured of how well it goes, over any window and as histograms."""
        return ()

    def pending_notices(self) -> Sequence[PendingNotice]:
        """What may wait for an agent between its turns."""
        return ()

    def wake_kinds(self) -> Sequence[WakeKind]:
        """What may wake agents that Nexus runs."""
        return ()

    def attention_kinds(self) -> Sequence[AttentionKind]:
        """What may wait for a person."""
        return ()

    def browser_notifications(self) -> Sequence[BrowserNotification]:
        """What agents stand still for until a person answers."""
        return ()

    def actions(self) -> Sequence[Action]:
        """What a person can do about that, and about its records."""
        return ()

    def routes(self) -> Sequence[Any]:
        """URL patterns below /api/v1/."""
        return ()

    def websocket_routes(self) -> Sequence[Any]:
        """URL patterns of WebSockets."""
        return ()

    def endpoints(self) -> Sequence[Endpoint]:
        """HTTP beside Django, at paths of its own."""
        return ()

    def addresses(self) -> Sequence[Address]:
        """Where it is reached beside Django, by the settings of this run."""
        return ()

    def remarks(self) -> Mapping[str, str]:
        """What `serve` tells beside its addresses: by a word for it, in a line."""
        return {}

    def openapi_paths(self) -> Mapping[str, Any]:
        """Paths of the OpenAPI schema that no view declares."""
        return {}

    def pages(self) -> Sequence[Page]:
        """Its pages below /admin/: `PAGES` in its `urls.py`."""
        if not module_has_submodule(self.module, "urls"):
            return ()
        return getattr(import_module(f"{self.name}.urls"), "PAGES", ())

    def commands(self) -> Mapping[str, str]:
        """By operation, the command line that does the same: errors shown in a terminal name these."""
        return {}

    def words(self) -> Mapping[str, str]:
        """By operation that only agents call, what errors shown to people say instead."""
        return {}

    def operators_token(self) -> str | None:
        """A token of this run that makes its holder an operator: it lies in the home, for who can read that."""
        return None

    def runs_others_programs(self) -> bool:
        """Whether it runs programs here that are not the operator's own: to be on this machine proves nothing then."""
        return False

    def connection_state(self, connection: str) -> Any:
        """What it holds in memory of a connection, as JSON: a relay brings that to the hub that comes next."""
        return None

    def restore_connection(self, connection: str, state: Any) -> None:
        """Hold again what `connection_state` told another process of a connection. Raises ValueError for none."""

    def on_start(self) -> None:
        """What a server, the hub or an agent's own, does once its store is ready; a failure is the app's to log."""

    def on_serve(self) -> None:
        """What the hub alone does before it takes connections; where it raises, the hub does not start."""

    def workers(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """What a server runs beside its requests, for as long as it lives."""
        return ()


class CoreConfig(NexusAppConfig):
    name = "nexus.core"


def nexus_apps() -> Sequence[NexusAppConfig]:
    """The apps of Nexus, in the order of the settings."""
    return [config for config in apps.get_app_configs() if isinstance(config, NexusAppConfig)]


def database_objects(vendor: str) -> dict[str, str]:
    """Every app's triggers, by name."""
    return {name: statement for app in nexus_apps() for name, statement in app.database_objects(vendor).items()}


def needs(picture: Any, each: int) -> list[tuple[AttentionKind, Found]]:
    """What needs a person, the worst kind first, without the kinds of which there is nothing; `each` are shown."""
    kinds = sorted((kind for app in nexus_apps() for kind in app.attention_kinds()), key=lambda kind: kind.rank)
    found = [(kind, kind.find(picture, each)) for kind in kinds]
    return [(kind, these) for kind, these in found if these.count]


def bells() -> list[BrowserNotification]:
    """What rings."""
    return [bell for app in nexus_apps() for bell in app.browser_notifications()]


def actions() -> dict[str, Action]:
    """Every app's actions, by their operation."""
    return {action.operation: action for app in nexus_apps() for action in app.actions()}


def event_types() -> list[str]:
    """The types of all events that there are, sorted."""
    return sorted({type for config in nexus_apps() for type in config.event_types()})


def own_labels() -> list[str]:
    """The labels of the apps of Nexus: whose tables and migrations are ours."""
    return [config.label for config in nexus_apps()]


def as_commands(text: str) -> str:
    """A message with the commands in place of the operations it names: the way, in the words of a terminal."""
    known = {operation: f"`{line}`" for config in nexus_apps() for operation, line in config.commands().items()}
    return reword(text, known)


def reword(text: str, known: Mapping[str, str]) -> str:
    """A message for people: in place of the operations, with their arguments, and parameters that it names stands what
    a place calls them."""
    told = {name: words for config in nexus_apps() for name, words in config.words().items()} | dict(known)
    return re.sub(r"\b([a-z]+(?:_[a-z]+)+)\b(\([^()]*\))?", lambda found: told.get(found[1], found[0]), text)
