from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from nexus.core.apps import NexusAppConfig

# These events end no reservation, so most calls on handoffs need no read of reservations.
GO_ON = {f"handoff.{what}" for what in "created started blocked extended".split()}


class FilesConfig(NexusAppConfig):
    name = "nexus.reservations"
    declared_in = ("toolset",)
    label = "files"  # the label in django_migrations and django_content_type
    clock_columns = {"file_reservations": "created_at"}
    commands = {
        "files_list": "nexus reservations",
        "files_reserve": "nexus reservations reserve",
        "files_release": "nexus reservations release",
        "files_extend": "nexus reservations extend",
        "files_who": "nexus reservations who",
        "files_end": "nexus reservations end",
        "timeout_seconds": "nexus reservations reserve --wait",
    }

    def ready(self) -> None:
        from coordination import clock_repair, debts, join_answer
        from coordination.log.emit import committed
        from coordination.services import agents
        from handoffs import transitions
        from nexus.reservations.config import MOST_SECONDS

        clock_repair.register(
            "reservations", "file_reservations", "expires_at", lambda: MOST_SECONDS, among="released_at IS NULL"
        )
        join_answer.register(
            "reserved", lambda *asked: import_module("nexus.reservations.selectors").reserved_in(*asked)
        )
        agents.register_renewal(
            "files",
            lambda agent_id, moment: import_module("nexus.reservations.services").renew(agent_id, moment),
        )
        debts.register(
            "question",
            lambda agents, moment: import_module("nexus.reservations.attention").reservation_debts(agents, moment),
        )
        transitions.register_reservations(
            lambda *asked: import_module("nexus.reservations.selectors").compared_with(*asked)
        )
        committed.connect(settle_with_claim)
        super().ready()

    def metrics(self) -> Iterable[Any]:
        from django.db.models import Count

        from nexus.core.clock import now
        from nexus.core.contributions import gauge
        from nexus.reservations import selectors

        counted = dict(selectors.held(now()).values_list("exclusive").annotate(Count("pk")).order_by())
        by_mode = {"exclusive": counted.get(True, 0), "shared": counted.get(False, 0)}
        yield gauge("nexus_file_reservations", "Reservations of files that are held.", "mode", by_mode)


def settle_with_claim(sender: object, event: Any, **_: object) -> None:
    """Record the end of reservations made for a handoff when its holder's claim ends, or another agent's begins. While
    the database is busy or away this is left to `record_ends`."""
    from django.db import OperationalError

    from handoffs.models import STREAM

    if event.handoff_id is not None and event.stream == STREAM and event.type not in GO_ON:
        with suppress(OperationalError):
            import_module("nexus.reservations.services").settle_reservations(event.handoff_id)
