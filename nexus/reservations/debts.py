"""Answers that holders of files owe to those who asked for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import groupby

from coordination.debts import Debt
from nexus.reservations import questions


def owed(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """One for each reservation, to whoever asked first."""
    waiting = questions.unanswered(questions.wanted(moment, agents), until=moment)
    for row, these in groupby(waiting, key=lambda question: question.row):
        first = min(these, key=lambda question: question.at)
        yield Debt(row.agent_id, "question", row.pk, row.pattern, first.agent_id, first.at, row.workspace_id)
