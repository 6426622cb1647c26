"""What needs an operator, by kind: the number of items, the first of them, and the actions on each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, JsonResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from inbox.monitoring import Picture
from nexus.core import apps
from nexus.core.clock import now
from nexus.core.contributions import Action, AttentionItem, AttentionKind
from nexus.web.page import render
from nexus.web.templatetags.nexus import plain

EACH = 3  # of one kind on Home, so that none hides the others
LISTED = 100  # of one kind on the Attention page


@dataclass(frozen=True)
class Shown:
    """One item as the page shows it: title, since or until when, and the page with its details."""

    subject: str
    title: str
    detail: str
    since: datetime | None
    until: datetime | None
    url: str


@dataclass(frozen=True)
class Group:
    """The items of a kind: their number, those that are shown, and the actions on them."""

    kind: AttentionKind
    count: int
    or_more: bool  # whether there may be more: not every row was examined
    needs: list[Shown]
    actions: list[Action]

    @property
    def tone(self) -> str:
        return "bad" if self.kind.bad else "warn"

    @property
    def hidden(self) -> bool:
        """Whether there are more than are shown."""
        return self.or_more or self.count > len(self.needs)


def attention(request: HttpRequest) -> TemplateResponse:
    """Show everything that needs an operator, grouped by kind."""
    return render(request, "dashboard/attention.html", "Needs a person", groups=needs(Picture(now()), LISTED))


def bell(request: HttpRequest) -> JsonResponse:
    """Return the number on the bell of every page: the things that an agent waits for."""
    moment = now()
    return JsonResponse({"waiting": sum(bell.waiting(moment) for bell in apps.bells())})


def needs(picture: Picture, each: int = EACH) -> list[Group]:
    """Return what needs an operator now, as the pages show it."""
    known = apps.actions()
    return [
        Group(
            kind,
            found.count,
            found.or_more,
            [_card(kind, need) for need in found.needs],
            [known[name] for name in kind.actions if name in known],
        )
        for kind, found in apps.needs(picture, each)
    ]


def _card(kind: AttentionKind, need: AttentionItem) -> Shown:
    about = need.page_of or need.subject
    url = reverse(f"admin:{kind.page}", args=[about] if about else []) if kind.page else ""
    return Shown(need.subject, plain(need.title), plain(need.detail), need.since, need.until, url)
