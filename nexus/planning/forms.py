"""Forms of the pages of plans and tasks."""

from __future__ import annotations

from nexus.web.forms import LinesField, OperationForm


class DecideForm(OperationForm):
    summary = LinesField(rows=6, label="Decision and its reasons (Markdown)")


class CommentForm(OperationForm):
    text = LinesField(rows=3, label="A comment for the agent that holds the plan")
