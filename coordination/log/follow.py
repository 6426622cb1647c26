"""Following the event log live: the loop behind server-sent events and WebSockets (docs/how-to/write-a-client.md).

A follower reads page after page from its cursor and waits at the head of the log. Nothing is buffered for it: the log
is the buffer, and a follower that is slow or was away continues from its cursor.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from coordination.log.emit import streams
from coordination.log.selectors import event_visible, interest_keys, newest_event_id
from coordination.models import Event
from coordination.selectors import profile_of
from coordination.toolset import COORDINATION
from nexus.core.clock import now
from nexus.core.database.store import unless_busy
from nexus.core.domain import ANY, domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import invalid
from nexus.core.operations.parameters import MAX_ID, MAX_IDS_A_CALL, parse_cursor
from nexus.core.operations.validation import MAX_ITEMS, unstorable
from nexus.core.waiting import READERS, Interest, in_thread, waiter

PAGE = 100  # events read at once
SPAN = 50_000  # ids that one read passes: filters without a match must not block the readers' threads
FEW = 20  # up to so many workspaces are combined with the streams
HEARTBEAT_SECONDS = 15  # of silence, after which the client gets a heartbeat
AGAIN_SECONDS = 1  # before the log is read again after an error


@dataclass(frozen=True)
class Filters:
    """Which events to follow. One of the values of each field must match; an empty field matches everything."""

    workspace: frozenset[str] = frozenset()
    stream: frozenset[str] = frozenset()
    type: frozenset[str] = frozenset()
    agent: frozenset[str] = frozenset()

    def columns(self) -> dict[str, frozenset[str]]:
        """Return the columns that are filtered, with their accepted values."""
        named = {
            "workspace_id": self.workspace,
            "stream": self.stream,
            "type": self.type,
            "actor_agent_id": self.agent,
        }
        return {column: values for column, values in named.items() if values}

    def admit(self, event: Event) -> bool:
        """Return whether an event passes."""
        return all(getattr(event, column) in values for column, values in self.columns().items())

    def interest(self, agent_id: str | None) -> Interest:
        """Return the interest in events that pass and that an agent may see; None sees all."""
        streams = self.stream if len(self.workspace) <= FEW else frozenset[str]()  # avoids a large product
        return Interest(interest_keys(self.workspace or [ANY], streams or [ANY], agent_id), self.admit)


FILTERS = tuple(field.name for field in fields(Filters))


def parse_query(query: Mapping[str, list[str]]) -> tuple[Filters, int | None]:
    """Return the filters and the cursor of a client's query; without a cursor, None: the head of the log.

    Each parameter may be repeated or hold values between commas. Raises VALIDATION_ERROR.
    """
    if unknown := query.keys() - {*FILTERS, "cursor", "api_key"}:
        raise invalid(f"Unknown parameter {min(unknown)[:200]!r}; there are {', '.join(FILTERS)} and cursor.")
    given = {name: query[name] for name in FILTERS if name in query}
    if problem := unstorable(given, lambda name: MAX_ITEMS):  # a lone surrogate cannot be in a query
        raise problem
    filters = Filters(**{name: _values(name, texts) for name, texts in given.items()})
    if strangers := sorted(filters.stream - streams().keys()):
        raise invalid(f"No such stream: {strangers[0]!r}; use {', '.join(streams())}.", field="stream")
    cursor = query.get("cursor", [""])[-1]
    return filters, parse_cursor(cursor) if cursor else None


def _values(name: str, texts: list[str]) -> frozenset[str]:
    values = frozenset(part.strip() for text in texts for part in text.split(",")) - {""}
    if len(values) > MAX_IDS_A_CALL or any(len(value) > MAX_ID for value in values):
        raise invalid(f"{name} takes at most {MAX_IDS_A_CALL} values of {MAX_ID} characters.", field=name)
    return values


@dataclass(frozen=True)
class LogPage:
    """Events that passed, and the cursor after everything that was examined."""

    events: list[Event]
    cursor: int
    more: bool


def read_events(caller: Caller, filters: Filters, cursor: int) -> LogPage:
    """Return the next events after `cursor` that pass the filters and that the caller may see; an operator sees all."""
    matching = Event.objects.filter(event_id__gt=cursor, **{f"{name}__in": v for name, v in filters.columns().items()})
    head = newest_event_id()  # bounds the scan: events committed meanwhile belong to the next page
    end = min(head, cursor + SPAN)
    batch = list(matching.filter(event_id__lte=end).order_by("event_id")[:PAGE])
    full = len(batch) == PAGE
    return LogPage(_seen_by(caller, batch), batch[-1].event_id if full else max(cursor, end), full or end < head)


def _seen_by(caller: Caller, events: Iterable[Event]) -> list[Event]:
    if caller.agent_id is None:
        return list(events)
    agent, moment = profile_of(caller.agent_id), now()
    return [event for event in events if event_visible(event, agent, moment)]


def allowed(caller: Caller) -> Caller:
    """Return the caller. Raises NOT_ALLOWED where an operator has forbidden the agent `event_wait`, which shows the
    same."""
    domain().refresh_settings()
    if caller.agent_id is not None:
        domain().check_allowed(caller.agent_id, COORDINATION.operations["event_wait"])
    return caller


class Follower:
    """One client that follows the log. `identify` is called for every page, because a key may have been revoked
    meanwhile; it never returns another agent than `agent_id`, which is None where an operator follows."""

    def __init__(self, identify: Callable[[], Caller], agent_id: str | None, filters: Filters, cursor: int) -> None:
        self.identify = identify
        self.agent_id = agent_id
        self.filters = filters
        self.cursor = cursor

    async def follow(self) -> AsyncGenerator[Event | None, None]:
        """Yield each event in order, and None after a silence.

        `cursor` is the position after the items yielded before the current one: a client resumes there. Ends when
        the server shuts down; a database server that is away for a while ends nothing. Raises AccessDenied when
        the caller may no longer follow.
        """
        async with waiter().park(self.filters.interest(self.agent_id)) as parked:
            while not waiter().closing:
                page = None
                with unless_busy():
                    page = await in_thread(READERS, self._look)
                if page is None:
                    yield None
                    await parked.wait(AGAIN_SECONDS)
                    continue
                for event in page.events:
                    yield event
                    self.cursor = event.event_id
                self.cursor = page.cursor
                if not page.more and not await parked.wait(HEARTBEAT_SECONDS):
                    yield None

    def _look(self) -> LogPage:
        return read_events(self.identify(), self.filters, self.cursor)
