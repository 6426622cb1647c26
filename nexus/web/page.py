"""What every page of the dashboard shares: its frame, and the one way to act."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse

from nexus.core.apps import bells, nexus_apps, reword
from nexus.core.clock import now
from nexus.core.domain import domain
from nexus.core.operations import runner
from nexus.core.operations.caller import Caller, operator_connection
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import ENVELOPE, Body
from nexus.core.waiting import MINUTES
from nexus.web.forms import OperationForm

View = Callable[..., HttpResponse]


def render(request: HttpRequest, template: str, title: str, *, about: str = "", **context: Any) -> TemplateResponse:
    """A page in the admin's frame; `about` is what the thing is called that it shows, for the browser's tab."""
    shown = {**frame(request), "title": title, "about": about, **context}
    return TemplateResponse(request, template, shown)


def frame(request: HttpRequest) -> dict[str, Any]:
    """What the admin's frame shows. `cursor` is the newest event the page can know of: where its live part starts."""
    cursor, moment, ring = domain().newest_event_id(), now(), bells()
    return {
        "cursor": cursor,
        "bell": sum(bell.waiting(moment) for bell in ring),
        "bell_types": [type for bell in ring for type in bell.types],
        **admin.site.each_context(request),
    }


def beside(view: Callable[..., Any]) -> Callable[..., Any]:
    """A view that may take minutes, on the threads for that: those of the pages are everybody's."""
    vars(view)["threads"] = MINUTES  # the hub's Django looks there
    return view


def form_only(back: View) -> Callable[[View], View]:
    """For a view that only takes a form: who comes by its address, from the login say, is led `back` to the form."""

    def decorate(view: View) -> View:
        @wraps(view)
        def asked(request: HttpRequest, **about: Any) -> HttpResponse:
            return view(request, **about) if request.method == "POST" else back(**about)

        return asked

    return decorate


def posted(request: HttpRequest) -> QueryDict | None:
    """What a form was sent with; None where none was sent."""
    return request.POST if request.method == "POST" else None


def operator(request: HttpRequest) -> Caller:
    """The person at the page, as the operations know them."""
    name = request.user.get_username()
    return Caller(transport="admin", operator=name, connection=operator_connection(name))


def operate(
    toolset: Toolset,
    request: HttpRequest,
    name: str,
    done: str,
    form: OperationForm | None = None,
    /,
    **arguments: Any,
) -> Body:
    """Call an operation as the operator and show the outcome: at the form's field that an error names, or above.

    Without `done` the page itself shows a success. Returns the usual envelope, whatever form the toolset answers in.
    """
    outcome = runner.perform(toolset, operator(request), name, arguments)
    envelope = in_words_of_pages(ENVELOPE.body(outcome))
    if envelope["ok"]:
        if done:
            messages.success(request, done)
    elif form is None or not form.refused(envelope["error"]):
        error = envelope["error"]
        messages.error(request, f"{error['message']} ({error['code']})")
    return envelope


def in_words_of_pages(envelope: Body) -> Body:
    """An envelope whose error or warning names the way by what a person finds on the pages."""
    known = {name: words for app in nexus_apps() for page in app.pages() for name, words in page.words.items()}
    if not envelope["ok"]:
        message = reword(envelope["error"]["message"], known)
        return {**envelope, "error": {**envelope["error"], "message": message}}
    if warning := envelope["data"].get("warning"):
        return {**envelope, "data": {**envelope["data"], "warning": reword(warning, known)}}
    return envelope


async def streamed(texts: Iterator[str]) -> AsyncIterator[str]:
    """Each text is made when the last one was taken, and none once the client has gone.

    An iterator that is not asynchronous would be played to its end before the first byte is sent.
    """
    while (text := await sync_to_async(lambda: next(texts, None))()) is not None:
        yield text
