"""Home, the attention page, and the help, which also says what hub this is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from django.http import HttpRequest, JsonResponse
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, reverse

from coordination import switcher
from coordination.log.selectors import recent_events
from coordination.log.sentences import EventLine, without_quiet, without_repeated_acts
from coordination.toolset import COORDINATION, run
from handoffs import selectors as handoffs_selectors
from handoffs.models import HELD, LIVE, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Picture
from nexus.control.agents import monitoring as pool_monitoring
from nexus.control.config import ControlSettings
from nexus.core import apps
from nexus.core.clock import now
from nexus.core.coding_clients import CLIENTS
from nexus.core.config import CoreSettings
from nexus.core.contributions import SEPARATOR, Action, AttentionItem, AttentionKind
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.dashboard.forms import RosterFilters
from nexus.dashboard.views.agents import AgentRow, count_states, roster
from nexus.hooks import setup_record
from nexus.hooks.harness import derived_id, first_words
from nexus.web.page import operator, render
from nexus.web.templatetags.nexus import plain
from nexus.web.theme import listed_pages

LISTED = 8
RECENT = 50  # events searched for those that are not signs of life
INBOX = "inbox_message_changelist"
AGENTS = 40  # rows of the roster; the list of agents has the rest


def home(request: HttpRequest) -> TemplateResponse:
    """Show what needs an operator, the roster (`?q=` filters it), unclaimed handoffs, traffic and events; with
    `?workspace=` those of one workspace."""
    filters = RosterFilters(request.GET)
    workspace = filters.chosen_workspace
    picture = Picture(now(), workspace)
    workspace_id = workspace.pk if workspace else None
    rows = roster(picture, filters.text("q"), workspace)
    minutes = inbox_monitoring.per_minute(picture.moment, workspace_id=workspace_id)
    agents = sum(state.agent_id != OPERATOR_AGENT for state in picture.agents)
    groups = needs(picture)
    urgent = [group for group in groups if group.kind.rank < CAN_WAIT]
    later = groups[len(urgent) :]
    return render(
        request,
        "dashboard/home.html",
        "Home",
        filters=filters,
        scope=f"workspace={workspace_id}" if workspace_id else "",
        rows=rows[:AGENTS],
        found=len(rows),
        agents=agents,
        to_tell=[] if agents else _to_tell(),
        glance=_glance(rows, workspace_id),
        waiting=handoffs_selectors.open_handoffs(picture.moment, LISTED, workspace_id=workspace_id),
        bars=_bars(minutes),
        last_hour=sum(minutes),
        busiest=max(minutes),
        groups=urgent,
        needs=sum(group.count for group in urgent),
        later=later,
        can_wait=sum(group.count for group in later),
        events=_latest(workspace_id),
    )


def _to_tell() -> list[tuple[str, str, str]]:
    """Return each client that `nexus setup` connected, its project, and what a person says to it first."""
    home = CoreSettings.current().home
    return [
        (CLIENTS[client].title, record.project_root, first_words(derived_id(client, record.project_root, home)))
        for _, record in setup_record.readable(home)
        for client in dict.fromkeys(
            client for written in record.files.values() for kind, client in written.parts if kind == "server"
        )
    ]


@dataclass(frozen=True)
class Figure:
    """A number of things, and the page that lists them."""

    word: str
    count: int
    page: str
    query: str = ""
    seldom: bool = False  # left out if it is 0


def _glance(rows: list[AgentRow], workspace_id: str | None) -> list[tuple[str, list[Figure]]]:
    """Return the numbers of things, by kind."""
    agents, inboxes = count_states(rows), [row.inbox for row in rows]
    handoffs = handoffs_selectors.counts(LIVE, workspace_id=workspace_id)
    groups = {
        "Agents": [
            Figure(word, count, "coordination_agent_changelist", seldom=word in ("waiting for you", "away"))
            for word, count in agents.items()
        ],
        "Handoffs": [
            Figure("open", handoffs[HandoffStatus.OPEN], "board"),
            Figure("claimed", sum(handoffs[status] for status in HELD), "board"),
            Figure("blocked", handoffs[HandoffStatus.BLOCKED], "board"),
            Figure("submitted", handoffs[HandoffStatus.SUBMITTED], "board", seldom=True),
        ],
        "Mail": [
            Figure("unread", sum(inbox.unread for inbox in inboxes), INBOX, "?status=unread"),
            Figure("being handled", sum(inbox.in_flight for inbox in inboxes), INBOX, "?status=delivered", seldom=True),
            Figure("dead letters", sum(inbox.parked for inbox in inboxes), INBOX, "?status=parked", seldom=True),
        ],
    }
    if ControlSettings.current().control:
        pool = pool_monitoring.counts()
        groups["Pool"] = [
            Figure("living", pool.agents, "control_poolagent_changelist"),
            Figure("at a turn", pool.running, "control_poolagent_changelist"),
            Figure("waiting", pool.waiting, "control_poolagent_changelist", seldom=True),
        ]
    return [(title, [it for it in figures if it.count or not it.seldom]) for title, figures in groups.items()]


def _latest(workspace_id: str | None) -> list[EventLine]:
    """Return the newest events as sentences, without signs of life."""
    return without_repeated_acts(without_quiet(recent_events(RECENT, workspace_id=workspace_id)))[:LISTED]


def _bars(minutes: list[int]) -> list[dict[str, int | float]]:
    """Return the columns of the chart, in a box of 600 by 100."""
    top = max(*minutes, 1)
    width = 600 / len(minutes)
    return [
        {
            "x": round(i * width, 1),
            "width": round(width - 2, 1),
            "height": round(max(count / top * 100, 1.5), 1),
            "y": round(100 - max(count / top * 100, 1.5), 1),
            "count": count,
            "ago": len(minutes) - 1 - i,
        }
        for i, count in enumerate(minutes)
    ]


CAN_WAIT = 50  # kinds from this rank on are folded
EACH = 3  # of one kind on Home, so that none hides the others
MOST_OF_A_KIND = 100  # of one kind on the Attention page


@dataclass(frozen=True)
class AttentionRow:
    """One item as the page shows it: title, since or until when, and the page with its details."""

    subject: str
    title: str
    detail: str
    since: datetime | None
    until: datetime | None
    url: str


@dataclass(frozen=True)
class AttentionGroup:
    """The items of a kind: their number, those that are shown, and the actions on them."""

    kind: AttentionKind
    count: int
    or_more: bool  # whether there may be more: not every row was examined
    needs: list[AttentionRow]
    actions: list[Action]

    @property
    def tone(self) -> str:
        return "bad" if self.kind.bad else "warn"

    @property
    def hidden(self) -> bool:
        """Whether there are more than are shown."""
        return self.or_more or self.count > len(self.needs)


def attention(request: HttpRequest) -> TemplateResponse:
    """Show everything that needs an operator, grouped by kind; with `?workspace=` in one workspace."""
    picture = Picture(now(), switcher.chosen_workspace(request))
    return render(request, "dashboard/attention.html", "Needs a person", groups=needs(picture, MOST_OF_A_KIND))


def bell(request: HttpRequest) -> JsonResponse:
    """Return the number on the bell of every page: the things that an agent waits for."""
    moment = now()
    return JsonResponse({"waiting": sum(bell.waiting(moment) for bell in apps.bells())})


def needs(picture: Picture, each: int = EACH) -> list[AttentionGroup]:
    """Return what needs an operator now, as the pages show it."""
    known = apps.actions()
    return [
        AttentionGroup(
            kind,
            found.count,
            found.or_more,
            [_card(kind, need) for need in found.needs],
            [known[name] for name in kind.actions if name in known],
        )
        for kind, found in apps.needs(picture, each)
    ]


def _card(kind: AttentionKind, need: AttentionItem) -> AttentionRow:
    about = need.page_of or need.subject
    url = reverse(f"admin:{kind.page}", args=[about] if about else []) if kind.page else ""
    return AttentionRow(
        SEPARATOR.join([need.subject, *need.also]), plain(need.title), plain(need.detail), need.since, need.until, url
    )


def help(request: HttpRequest) -> TemplateResponse:
    """Show how to connect an agent, what the pages and their terms mean, the version, and the licence."""
    root = request.build_absolute_uri(get_script_prefix())
    return render(
        request,
        "dashboard/help.html",
        "Help",
        mcp=f"{root}mcp",
        root=root,
        pages=[page for page in listed_pages() if page.name != "help"],
        info=run(operator(request), "nexus_info", {})["data"],
        tools=len(COORDINATION.tools),
        home=str(CoreSettings.current().home),
        licence=_licence(),
    )


def _licence() -> str:
    """Return the licence's text: from the checkout, or from the metadata of the installed package."""
    beside = Path(__file__).resolve().parents[3] / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    try:
        return distribution("nexus-hub").read_text("licenses/LICENSE") or "Apache License 2.0"
    except PackageNotFoundError:
        return "Apache License 2.0"
