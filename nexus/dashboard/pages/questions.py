"""What agents ask the people: what waits, what is allowed always, what was answered."""

from __future__ import annotations

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse

from nexus.control import selectors
from nexus.control.attention import of_question
from nexus.control.models import Question
from nexus.core.apps import actions
from nexus.core.clock import now
from nexus.dashboard.page import render

SHOWN = 100  # of each
LISTS = (("asked", "Wait for an answer"), ("always", "Allowed always"), ("ended", "Answered, or asked no more"))


def questions(request: HttpRequest) -> TemplateResponse:
    """The questions, by what becomes of them."""
    lists = [(which, title, selectors.questions(which, None, SHOWN)) for which, title in LISTS]
    return render(request, "questions", "Questions", lists=lists)


def question(request: HttpRequest, question_id: str) -> TemplateResponse:
    """One question, whole, and what a person can say to it."""
    found = get_object_or_404(Question.objects.select_related("pool_agent", "turn"), pk=question_id)
    known = actions()
    possible = [known[name] for name in of_question(found, now())]
    return render(request, "question", "Question", about=found.title, question=found, actions=possible)
