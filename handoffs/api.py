"""REST resource of handoffs."""

from __future__ import annotations

from typing import Any

from django.utils.functional import cached_property
from django_filters import CharFilter, ChoiceFilter, NumberFilter
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from coordination import selectors as agents_known
from coordination.api import MadeFilters, Resource, answer_of, body_of
from handoffs import selectors
from handoffs.models import Handoff, HandoffStatus
from handoffs.rows import HandoffRow, handoff_row
from handoffs.selectors import containing
from nexus.core.clock import now

MOST_FOUND = 1_000  # handoffs, the newest, that other filters and the caller's eyes narrow down


class HandoffFilters(MadeFilters):
    """Filters of the list. The state is the current one: a claim whose lease expired counts as open."""

    prefix = "hnd"
    status = ChoiceFilter(choices=HandoffStatus.choices, method="in_state")
    workspace = CharFilter()
    from_agent_id = CharFilter()
    claimed_by = CharFilter()
    task_id = NumberFilter()
    title = CharFilter(lookup_expr="icontains")
    q = CharFilter(method="holding", label="Words in title, payload and result: the newest 1,000 with all of them.")

    def holding(self, rows: Any, name: str, words: str) -> Any:
        return rows.filter(created_event_id__in=containing(words, MOST_FOUND))

    def in_state(self, rows: Any, name: str, status: str) -> Any:
        return rows.in_state(status, now())


class Handoffs(Resource):
    """Work that exactly one agent takes. An agent sees what handoff_get would show it."""

    same_as = "handoff_get"
    queryset = Handoff.objects.all()
    filterset_class = HandoffFilters
    ordering = ["-handoff_id", "created_at", "updated_at"]
    unindexed = frozenset({"from_agent_id", "claimed_by", "task_id", "title"})
    needs_workspace = True

    def show(self, row: Handoff) -> HandoffRow:
        return handoff_row(row, now())

    def admits(self, row: Handoff) -> bool:
        agent_id = self.caller.agent_id
        return agent_id is None or row.claimed_by == agent_id or selectors.visible(row, *self.viewer)

    @cached_property
    def viewer(self) -> Any:
        """The caller's profile, and the time of the request."""
        assert self.caller.agent_id is not None
        return agents_known.profile_of(self.caller.agent_id), now()

    @extend_schema(request=body_of("handoff_create"), responses={201: answer_of("handoff_create")})
    def create(self, request: Request) -> Response:
        """Offer work, as the operation handoff_create."""
        return self.operate("handoff_create", self.body, success=201)

    @extend_schema(request=body_of("handoff_withdraw", "handoff_id"), responses={200: answer_of("handoff_withdraw")})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """Retract an open handoff, as an operator."""
        return self.operate("handoff_withdraw", {**self.body, "handoff_id": pk})


router = SimpleRouter(trailing_slash=False)
router.register("handoffs", Handoffs, basename="handoff")

routes = router.urls
