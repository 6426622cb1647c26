"""Declarations of what an app adds to the packages above it, found by its `NexusAppConfig`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Model, QuerySet

from nexus.core.config import KEEP

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


@dataclass(frozen=True)
class RetentionRule:
    """Rows that are finished. Old ones may be deleted."""

    name: str
    rows: Callable[[datetime], QuerySet[Any]]  # the rows older than a moment, in the order they go
    keep: str | int = KEEP  # the setting that says for how many days they are kept, or the days
    # The first of them, as many as a number at most, where it would take long to find where all of them end.
    first: Callable[[datetime, int], QuerySet[Any]] | None = None
    # How many there are, or nearly, where it would take long to count them.
    estimate: Callable[[datetime], int] | None = None


@dataclass(frozen=True)
class ExportKind:
    """A table of a workspace's history; `export` writes it."""

    name: str
    model: type[Model]
    position: int  # among all kinds: a kind comes after those that its rows refer to
    rows: Callable[[str], QuerySet[Any]]  # of a workspace_id
    agents: tuple[str, ...] = ()  # its columns that name agents


def rows_in_workspace(model: type[Model], column: str = "workspace") -> Callable[[str], QuerySet[Any]]:
    """Return a function from a workspace_id to the rows of a model that belong to it."""
    return lambda workspace_id: model._base_manager.filter(**{column: workspace_id})


@dataclass(frozen=True)
class Finding:
    """A problem that doctor found."""

    problem: str  # what was seen
    advice: str  # what to do
    mend: Callable[[], None] | None = None  # what --fix does, where that is safe
    mending: str = ""  # and what that is, in words
    note: bool = False  # worth knowing, and no fault


@dataclass(frozen=True)
class DoctorCheck:
    """A check of the store's content; it gets the open examination (`nexus.maintenance.check_inputs.Examination`)."""

    name: str
    check: Callable[[Any], Iterator[Finding]]


@dataclass(frozen=True)
class Notice:
    """One item that waits for an agent."""

    identifier: str
    what: str  # it is, in words of our own
    said: Mapping[str, str]  # what others wrote, by what it is
    personal: bool = False  # it is for this agent itself


@dataclass(frozen=True)
class PendingNotice:
    """A kind of items that may wait for an agent between its turns: hooks, signal files and webhooks announce them.

    Whether any item waits can also be asked without Django: the app's module `hook` registers the same as SQL.
    """

    name: str  # of one
    how: str  # what an agent does about it
    events: frozenset[str]  # the types of the log that may be news
    concerned: Callable[[Any], Iterable[str]]  # the agents for whom such an event is
    waiting: Callable[[str], Iterable[Notice]]  # what waits for an agent_id, oldest first


@dataclass(frozen=True)
class WakeReason:
    """One item that may wake an agent, and its sender."""

    identifier: str
    what: str  # it is, and what to do about it, in words of our own
    said: Mapping[str, str]  # what others wrote, by what it is
    sender: str | None
    sent_at: datetime
    since: datetime  # it calls: later than `sent_at` where it was taken, and came back
    received: bool = False  # the agent has it already, by a way of its own: it calls where a turn for it failed alone


@dataclass(frozen=True)
class WakeKind:
    """A kind of items, besides mail, that may start a turn of an agent of the pool."""

    name: str  # as `wake_on` has it
    title: str  # what calls, for people
    events: frozenset[str]  # the types of the log after which something may call
    calling: Callable[[str, Collection[str]], Iterable[WakeReason]]  # an agent_id, in these workspaces; oldest first


@dataclass(frozen=True)
class StartedBy:
    """Who started an agent. What is recorded of it never changes."""

    agents: Sequence[str]  # the one that started it, the one that started that one, and so on; empty for an operator's
    operator: str  # who started the last of these, or the agent itself
    above: str | None  # the agent at the top, if the operator started an agent below another


@dataclass(frozen=True)
class Sentence:
    """The sentence that pages show for events of a type.

    Braces hold a name: `actor`, `target`, an `EntityRef` by its name in the app, or a field of the payload. A part in
    brackets is left out if the event does not have what it names.
    """

    one: str
    many: str  # so many of them in a row: "{count} handoffs created"
    quiet: bool = False  # a sign of life, hidden unless it is asked for
    mark: bool = False  # a step of its actor's work that the timeline shows


@dataclass(frozen=True)
class EntityRef:
    """An entity that events name by an id, and people by a name; `names` returns the names of ids that still exist."""

    word: str  # for it, where it has no name
    page: str  # of the dashboard, that shows it
    key: str  # the field of an event that holds its id
    argument: str = ""  # of the page's address that takes the id; without one the id is part of the route
    name: str = ""  # the field of an event that holds its name
    names: Callable[[Collection[str]], Mapping[str, str]] | None = None


SEPARATOR = "\x1f"  # of the subjects of an item with several, in a form


@dataclass(frozen=True)
class AttentionItem:
    """One item that waits for an operator: its subject, since when or until when. Its texts are agents' words,
    unchanged."""

    title: str
    detail: str
    subject: str = ""  # the id of what it is about, which its kind's actions take
    page_of: str = ""  # the id that its kind's page takes, where that is another
    since: datetime | None = None
    until: datetime | None = None
    also: Sequence[str] = ()  # other subjects that have the same cause: its buttons act on them, too


@dataclass(frozen=True)
class Answerable:
    """An item in full, as a person reads it before acting, also by a link. Its texts are agents' words."""

    title: str
    text: str
    facts: Mapping[str, str]
    actions: Sequence[str]  # that it admits now by a link: names of actions
    over: str = ""  # why it admits none, in words


@dataclass(frozen=True)
class Items:
    """The items of a kind: their number, and some of them."""

    count: int
    needs: Sequence[AttentionItem]
    or_more: bool = False  # not every row was examined


@dataclass(frozen=True)
class AttentionKind:
    """A kind of items that wait for an operator: on Home, on the page behind it and in `nexus status`."""

    name: str
    title: str
    icon: str
    # Among all kinds, by what it costs to wait: under 10 agents that ask, under 20 what they wrote, under 30 reviews,
    # under 50 failures. The rest, from 50 on, is folded.
    rank: int
    find: Callable[[Any, int], Items]  # of the open picture (`inbox.monitoring.Picture`); so many are shown
    bad: bool = False  # else a warning
    page: str = ""  # that shows one of them, by its name among the dashboard's
    look: str = "Look"  # what one does there
    actions: Sequence[str] = ()  # what can be done about one, the likeliest first: names of actions
    command: str = ""  # that lists them in a terminal; those without one are shown on pages only
    # By the id of a subject and a moment, the item in full; None where it is gone. A link can answer such items.
    answerable: Callable[[str, datetime], Answerable | None] | None = None


@dataclass(frozen=True)
class BrowserNotification:
    """A kind of items that block agents until an operator answers; the bell on every page counts only these."""

    waiting: Callable[[datetime], int]  # how many there are at a moment; one cheap query
    types: Collection[str]  # of the events after which they are counted again


@dataclass(frozen=True)
class Action:
    """An action that an operator can take on one item or on many: an operation that operators may call."""

    operation: str
    label: str  # on its button
    done: str  # what it did to the things: "released"
    things: tuple[str, str]  # what they are, one and many: ("handoff", "handoffs")
    arguments: Callable[[str], Mapping[str, Any]]  # that name the thing, by its id
    called: Callable[[Sequence[str]], Mapping[str, str]]  # what things are called, by id; those that are gone lack
    asks: Mapping[str, str] = field(default_factory=dict)  # by parameter that a person types, what it is
    needed: Sequence[str] = ()  # those of them that must be typed
    # A parameter that a person may change first, in a form: its name, what it is, and what it is of a thing by its id.
    edits: tuple[str, str, Callable[[str], str]] | None = None
    undo: str = ""  # the name of another action, which takes it back
    danger: bool = False  # it is asked for once more
    toolset: str = "coordination"
    tells: Callable[[str], str] | None = None  # what to know before it is done to one thing, by its id
    variant: str = ""  # sets it apart from other actions with its operation
    # Of actions on one thing alone: the form of the parameters, by its id and what was posted; and the page that shows
    # what the operation returned, by the request and the data.
    form: Callable[[str, Any], Any] | None = None
    shows: Callable[[Any, Mapping[str, Any]], Any] | None = None

    @property
    def name(self) -> str:
        """What buttons and addresses call it."""
        return f"{self.operation}:{self.variant}" if self.variant else self.operation


@dataclass(frozen=True)
class Page:
    """A page of the dashboard; with a title and an icon it has an entry in the sidebar's section.

    Its view answers with `nexus.web.page.render`; the template extends `web/page.html`. Without a view it is the
    admin's list of this name, such as `inbox_message_changelist`.
    """

    name: str
    route: str = ""  # below /admin/
    view: Callable[..., Any] | None = None
    title: str = ""
    icon: str = ""
    section: str = "Work"
    position: int = 100  # in its section, lowest first
    in_use: Callable[[], bool] = lambda: True  # else it has no entry in the sidebar; the help lists it
    words: Mapping[str, str] = field(default_factory=dict)  # what errors on pages call operations that are done here
    about: str = ""  # what it is for, in a line of the help; of every page in the sidebar
    takes_minutes: bool = False  # such as one that calls git
    waits: Callable[[], int] | None = None  # how many there wait for an operator; one cheap query
    by_workspace: bool = False  # `?workspace=` makes it show one workspace alone: it follows the choice in the header


@dataclass(frozen=True)
class AsgiEndpoint:
    """An ASGI application of an app that answers HTTP requests without Django, and which requests it answers."""

    serves: Callable[[Mapping[str, Any]], bool]  # given the scope; not slow
    application: Callable[..., Any]
    refusal: Callable[[Any], str]  # the JSON that answers a request which is refused at once, by NexusError


@dataclass(frozen=True)
class Address:
    """An address of an app, as `serve` prints it: a path of the server, or of a port on this machine that serves only
    its ASGI application."""

    name: str
    path: str
    port: int | None = None
    application: Callable[..., Any] | None = None


class Sample(NamedTuple):
    """One measurement, taken when it happened."""

    key: str  # of the row or event that tells it: the same thing is counted once
    kind: str
    value: float


class SampleWindow(NamedTuple):
    """Which samples of a figure are wanted: at most so many of a time."""

    since: datetime
    until: datetime
    limit: int


@dataclass(frozen=True)
class Figure:
    """A measurement of how well something goes, which Prometheus gets as a histogram `nexus_<name>`."""

    name: str
    what: str  # a sentence that says between what and what it is measured
    kinds: tuple[str, ...]
    bounds: tuple[float, ...]  # upper bounds of the histogram's buckets
    samples: Callable[[SampleWindow], Sequence[Sample]]


def gauge(name: str, help: str, label: str, values: Mapping[str, float], known: Iterable[Any] | None = None) -> Metric:
    """Return a Prometheus gauge with one label; a `known` value of the label that `values` lacks is 0."""
    from prometheus_client.metrics_core import GaugeMetricFamily

    family = GaugeMetricFamily(name, help, labels=[label])
    for value in values if known is None else known:
        family.add_metric([str(value)], values.get(value, 0))
    return family
