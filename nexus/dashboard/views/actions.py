"""What operators do from a page: the actions that the apps declare, and Compose for messages, handoffs and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from coordination import switcher
from coordination.models import Agent
from coordination.toolset import COORDINATION, run
from nexus.core import apps
from nexus.core.clock import now
from nexus.core.contributions import SEPARATOR, Action, Answerable
from nexus.core.operations import dispatch
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import ENVELOPE, Body
from nexus.dashboard.forms import ActForm, SpeakForm
from nexus.web.forms import OperationForm
from nexus.web.page import in_words_of_pages, operate, operator, render
from nexus.web.records import MOST_CHOSEN
from nexus.web.templatetags.nexus import UNDO, plain

UNDOABLE = 20  # more would not fit into the cookie for the next page
LONGEST_QUERY = 12_000  # characters; the server refuses a request line of 16 KiB
MOST_SHOWN = 5  # refusals that are shown one by one


def act(request: HttpRequest) -> HttpResponse:
    """Run the operation of the button `do` (`action`, or `action id`) on the chosen things, `on`; then redirect to
    `next`.

    An action that needs parameters, or cannot be undone, gets a form first, which GET shows.
    """
    given = request.POST if request.method == "POST" else request.GET
    if "do" not in given:
        return redirect("admin:attention")
    name, _, one = given["do"].partition(" ")
    action = apps.actions().get(name)
    if action is None:
        raise Http404
    values = [one] if one else given.getlist("on")
    chosen = list(dict.fromkeys(subject for value in values for subject in value.split(SEPARATOR)))
    back = _back(given)
    address = _address(action)
    if request.method == "POST" and address not in (request.path, reverse("admin:act")):
        return redirect(address, preserve_request=True)
    most = 1 if action.form or action.shows else MOST_CHOSEN
    if not chosen or len(chosen) > most:
        which = "Choose what it is about first." if not chosen else f"Choose {most} at most."
        messages.warning(request, f"Nothing was {action.done}. {which}")
        return redirect(back)
    called = action.called(chosen)
    asked = "asked" in request.POST
    form = _form(action, chosen, request.POST if asked else None)
    if request.method != "POST" or (asked and not form.is_valid()):
        return _ask(request, action, form, chosen, called, back)
    if not asked and (action.asks or action.danger or action.form):
        query = urlencode({"do": name, "on": chosen, "next": back}, doseq=True)
        if len(query) > LONGEST_QUERY:
            return _ask(request, action, form, chosen, called, back)
        return redirect(f"{reverse('admin:act')}?{query}")
    answers = _perform(request, action, chosen, form.arguments() if asked else {})
    refusals = [(subject, answer["error"]) for subject, answer in answers.items() if not answer["ok"]]
    if asked and len(refusals) == len(chosen) and form.refused(refusals[0][1]):
        return _ask(request, action, form, chosen, called, back)
    _flash(request, action, chosen, called, refusals)
    if action.shows and not refusals:
        shown: HttpResponse = action.shows(request, answers[chosen[0]]["data"])
        return shown
    return redirect(back)


def _form(action: Action, chosen: Sequence[str], data: Any) -> OperationForm:
    """Return the form of an action's parameters."""
    if action.form and chosen:
        own: OperationForm = action.form(chosen[0], data)
        return own
    return ActForm(action, data, chosen)


def _ask(
    request: HttpRequest, action: Action, form: OperationForm, chosen: Sequence[str], called: Any, back: str
) -> HttpResponse:
    things = [(subject, called.get(subject, subject)) for subject in chosen]
    title = f"{action.label.rstrip('…')}: {len(chosen)} {action.things[len(chosen) > 1]}"
    context: dict[str, Any] = {
        "whole": _whole(action, chosen[0]) if len(chosen) == 1 else None,
        "address": _address(action),
        "tells": action.tells(chosen[0]) if action.tells and len(chosen) == 1 else "",
    }
    return render(request, "dashboard/act.html", title, action=action, form=form, things=things, back=back, **context)


def _address(action: Action) -> str:
    """Return the address that takes an action's form: another one if it may take minutes."""
    takes_minutes = TOOLSETS[action.toolset].operations[action.operation].takes_minutes
    return reverse("admin:act_minutes" if takes_minutes else "admin:act")


def _whole(action: Action, subject: str) -> Answerable | None:
    """Return what a person should read before acting; None if its title says all."""
    kinds = (kind for kind in apps.kinds_of_needs() if kind.answerable and action.operation in kind.actions)
    return next((whole for kind in kinds if kind.answerable and (whole := kind.answerable(subject, now()))), None)


def _perform(request: HttpRequest, action: Action, chosen: Sequence[str], given: dict[str, Any]) -> dict[str, Body]:
    """Call the operation for each thing separately, so that a refusal does not stop the others; return the answers."""
    caller, answers = operator(request), {}
    for subject in chosen:
        arguments = {**action.arguments(subject), **given}
        if arguments.get("from_agent_id") == OPERATOR_AGENT:
            _be_known(request)
        outcome = dispatch.perform(TOOLSETS[action.toolset], caller, action.operation, arguments)
        answers[subject] = envelope = in_words_of_pages(ENVELOPE.body(outcome))
        for warning in envelope.get("data", {}).get("warnings", []):
            messages.warning(request, warning["message"] if isinstance(warning, dict) else warning)
    return answers


def _flash(
    request: HttpRequest, action: Action, chosen: Sequence[str], called: Any, refusals: list[tuple[str, dict[str, Any]]]
) -> None:
    """Show what was done, with an undo if there is one, and what was refused."""
    refused = dict(refusals)
    done = [subject for subject in chosen if subject not in refused]
    if done:
        what = f"“{_name(done[0], called)}”" if len(done) == 1 else f"{len(done)} {action.things[1]}"
        undo = f"{UNDO} {action.undo} {' '.join(done)}" if action.undo and len(done) <= UNDOABLE else ""
        messages.success(
            request, f"{what[:1].upper()}{what[1:]} {'was' if len(done) == 1 else 'were'} {action.done}.", undo
        )
    for subject, error in refusals[:MOST_SHOWN]:
        code = f" ({error['code']})" if "code" in error else ""
        messages.error(request, f"“{_name(subject, called)}” was not {action.done}: {error['message']}{code}")
    if len(refusals) > MOST_SHOWN:
        messages.error(request, f"Nor were {len(refusals) - MOST_SHOWN} more {action.done}.")


def _name(subject: str, called: Any) -> str:
    return plain(called.get(subject, subject))[:80]


def _back(given: QueryDict) -> str:
    """Return the page that the button was on; never one of another host."""
    back = given.get("next", "")
    local = url_has_allowed_host_and_scheme(back, allowed_hosts=None) and back.startswith(reverse("admin:index"))
    return back if local else reverse("admin:attention")


def speak(request: HttpRequest) -> HttpResponse:
    """Show the form; `?what=handoff`, `?to=agent` and `?reply=message` fill it."""
    if request.method != "POST":
        workspace = switcher.chosen_workspace(request)
        chosen = {"workspace": workspace.pk} if workspace else {}
        return _page(request, SpeakForm(initial={**chosen, **request.GET.dict()}))
    form = SpeakForm(request.POST)
    sent = _send(request, form) if form.is_valid() else None
    return sent or _page(request, form)


def _page(request: HttpRequest, form: SpeakForm) -> HttpResponse:
    return render(request, "dashboard/speak.html", "Compose", form=form, identity=OPERATOR_AGENT)


def _send(request: HttpRequest, form: SpeakForm) -> HttpResponse | None:
    """Send it and return a redirect to the page that shows it; None if it was refused."""
    _be_known(request)
    given = form.cleaned_data
    common = {
        "project_root": form.workspaces[given["workspace"]].root_realpath,
        "from_agent_id": OPERATOR_AGENT,
        "target": form.target(),
        "client_id": form.client_id,
    }
    if given["what"] == "handoff":
        work = {
            "visibility": given["visibility"] or "public",
            "payload": given["payload"],
            "title": given["title"] or None,
        }
        envelope = operate(COORDINATION, request, "handoff_create", "The handoff is open.", form, **common, **work)
    else:
        letter = {"subject": given["subject"], "body": given["body"], "parent_message_id": given["reply"] or None}
        envelope = operate(COORDINATION, request, "message_create", "The message is sent.", form, **common, **letter)
    if not envelope["ok"]:
        return None
    data = envelope["data"]
    if data.get("duplicate"):
        messages.info(request, "This form was sent before, with the same words: there is no second one.")
    if warning := data.get("warning"):
        messages.warning(request, warning)
    if "handoff_id" in data:
        return redirect("admin:handoffs_handoff_change", data["handoff_id"])
    return redirect("admin:inbox_message_change", data["message_id"])


def _be_known(request: HttpRequest) -> None:
    """Register the operator, because an agent can answer only somebody who is registered."""
    if not Agent.objects.filter(pk=OPERATOR_AGENT).exists():
        run(operator(request), "agent_register", {"agent_id": OPERATOR_AGENT, "role": "operator"})
