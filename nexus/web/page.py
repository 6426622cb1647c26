"""The parts that every page of the dashboard shares: its frame, and the one way to call operations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin, messages
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import get_script_prefix

from nexus.core.access import is_viewer
from nexus.core.apps import bells, nexus_apps, reword
from nexus.core.clock import now
from nexus.core.domain import domain
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller, operator_connection
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import ENVELOPE, Body
from nexus.core.waiting import MINUTES
from nexus.web.forms import OperationForm

View = Callable[..., HttpResponse]


class CookieMessages(CookieStorage):
    cookie_name = "nexus_messages"  # another Django site on this host has Django's name


class StaticFiles(StaticFilesStorage):
    def url(self, name: str | None) -> str:
        """Return a static file's address below the path that the request's proxy names; Django's own is made once."""
        return get_script_prefix().removesuffix("/") + super().url(name)


class Messages(FallbackStorage):
    """Where messages for the next page are kept, as by default."""

    storage_classes = (CookieMessages, SessionStorage)


def render(request: HttpRequest, template: str, title: str, *, about: str = "", **context: Any) -> TemplateResponse:
    """Return a page in the admin's frame; `about` names the thing that it shows, for the browser's tab."""
    shown = {**admin.site.each_context(request), **frame(), "title": title, "about": about, **context}
    return TemplateResponse(request, template, shown)


def frame() -> dict[str, Any]:
    """Return what every page has besides the admin's own context. `cursor` is the newest event that the page can
    include: its live part starts there."""
    cursor, moment, ring = domain().newest_event_id(), now(), bells()
    return {
        "cursor": cursor,
        "bell": sum(bell.waiting(moment) for bell in ring),
        "bell_types": [type for bell in ring for type in bell.types],
    }


def beside(view: Callable[..., Any]) -> Callable[..., Any]:
    """Run a view that may take minutes on separate threads, so that it does not block other pages."""
    vars(view)["threads"] = MINUTES  # read by the hub's request handler
    return view


def form_only(back: View) -> Callable[[View], View]:
    """Restrict a view to POST: other requests, for example after a login, are redirected `back` to the form."""

    def decorate(view: View) -> View:
        @wraps(view)
        def asked(request: HttpRequest, **about: Any) -> HttpResponse:
            return view(request, **about) if request.method == "POST" else back(**about)

        return asked

    return decorate


def posted(request: HttpRequest) -> QueryDict | None:
    """Return the submitted form data; None if the request is not a POST."""
    return request.POST if request.method == "POST" else None


def operator(request: HttpRequest) -> Caller:
    """Return the user of the page as a caller of operations."""
    name = request.user.get_username()
    connection = operator_connection(name)
    return Caller(transport="admin", operator=name, viewer=is_viewer(request.user), connection=connection)


def operate(
    toolset: Toolset,
    request: HttpRequest,
    name: str,
    done: str,
    form: OperationForm | None = None,
    /,
    **arguments: Any,
) -> Body:
    """Call an operation as the operator and show the outcome: an error at the form's field that it names, otherwise at
    the top.

    Without `done` the page itself shows a success. Returns the usual envelope, whatever the toolset's form of reply.
    """
    outcome = dispatch.perform(toolset, operator(request), name, arguments)
    envelope = in_words_of_pages(ENVELOPE.body(outcome))
    if envelope["ok"]:
        if done:
            messages.success(request, done)
    elif form is None or not form.refused(envelope["error"]):
        error = envelope["error"]
        messages.error(request, f"{error['message']} ({error['code']})")
    return envelope


def in_words_of_pages(envelope: Body) -> Body:
    """Return an envelope whose errors and warnings name pages and buttons in place of operations."""
    known = {name: words for app in nexus_apps() for page in app.pages() for name, words in page.words.items()}
    if not envelope["ok"]:
        message = reword(envelope["error"]["message"], known)
        return {**envelope, "error": {**envelope["error"], "message": message}}
    if warning := envelope["data"].get("warning"):
        return {**envelope, "data": {**envelope["data"], "warning": reword(warning, known)}}
    return envelope


async def streamed(texts: Iterator[str]) -> AsyncIterator[str]:
    """Yield the texts one by one: each is made when the last one was sent, and none after the client has gone.

    Django would read a synchronous iterator to its end before it sent the first byte.
    """
    while (text := await sync_to_async(lambda: next(texts, None))()) is not None:
        yield text
