"""Every page where there is little or nothing to show, and what a person sees when a page cannot be made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse
from django.urls.converters import IntConverter

from nexus.core.database.store import store
from nexus.dashboard.urls import pages
from tests.pages import LOCAL, do
from tests.store import Failure, failing


@pytest.fixture
def browser() -> Client:
    """A browser on this machine, which is shown the page for what failed."""
    return Client(headers=LOCAL, raise_request_exception=False)


@pytest.fixture
def empty_home(committed: None) -> None:
    """A store right after its first start."""


@pytest.fixture
def empty_workspace(committed: None, project: str) -> None:
    """A project that is known, and two agents who have said nothing yet."""
    do("workspace_resolve", project_root=project)
    for agent_id in ("ann", "bob"):
        do("agent_register", agent_id=agent_id)


@pytest.fixture(params=["empty_home", "empty_workspace"])
def little(request: pytest.FixtureRequest) -> None:
    """Each of those."""
    request.getfixturevalue(request.param)


def addresses() -> tuple[list[str], list[str]]:
    """Every page and list of the admin, and every page about one thing, which may be gone."""
    plain, about = ["/admin/", "/admin/login/"], []
    for page in pages(admin.site):
        try:
            plain.append(reverse(f"admin:{page.name}"))
        except NoReverseMatch:
            (converter,) = page.pattern.converters.values()
            about.append(reverse(f"admin:{page.name}", args=[1 if isinstance(converter, IntConverter) else "ann"]))
    for model in admin.site._registry:
        plain.append(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"))
    more = ["coordination/event/?export=csv", "graph/?hours=1", "graph/?agent=ann", "mail/?status=nobody"]
    more.append("search/?s=x")
    return [*plain, *(f"/admin/{path}" for path in more)], about


@pytest.mark.usefixtures("committed", "little")
def test_it_answers_every_page_where_there_is_little_to_show(browser: Client) -> None:
    plain, about = addresses()
    assert {url: got for url in plain if (got := browser.get(url).status_code) not in (200, 302)} == {}
    assert {url: got for url in about if (got := browser.get(url).status_code) not in (200, 302, 404)} == {}


def broken(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("unexpected")


def test_it_shows_our_page_with_a_way_back_where_a_page_fails(
    committed: None, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexus.dashboard.views.graph.GraphFilters", broken)
    answer = browser.get("/admin/graph/")
    assert answer.status_code == 500
    assert 'href="/admin/"' in answer.content.decode() and "hub's log" in answer.content.decode()


def told(kind: Failure) -> str:
    """The beginning of what a page says of such an error."""
    known = store().failure(failing(kind))
    assert known is not None
    return known.message.partition(":")[0].partition(";")[0]


@pytest.mark.parametrize("who", ["who sits here", "who has a session", "who runs a pool"])
def test_it_says_what_is_wrong_with_the_store_where_that_is_the_cause(
    committed: None, browser: Client, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], who: str
) -> None:
    if who == "who has a session":
        browser.cookies[settings.SESSION_COOKIE_NAME] = "s" * 32
    elif who == "who runs a pool":
        configure(control=True)

    def away() -> None:
        raise failing("away")

    connection.close()
    with monkeypatch.context() as patch:
        patch.setattr(connection, "ensure_connection", away)
        answers = [browser.get(url) for url in ("/admin/", "/admin/inbox/message/", "/admin/inbox/message/")]
    for answer in answers:
        assert answer.status_code == 503
        assert told("away") in answer.content.decode()
        assert 'href="/admin/"' in answer.content.decode()


def test_it_shows_every_page_on_a_full_disk_that_nobody_visited_before(committed: None, browser: Client) -> None:
    def full(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE", "DELETE")):
            raise failing("full")
        return execute(sql, *rest)

    plain, _ = addresses()
    with connection.execute_wrapper(full):
        answers = {url: browser.get(url) for url in plain}
        refused = browser.post("/admin/coordination/agent/add/", {"agent_id": "ann"})
    assert {url: got.status_code for url, got in answers.items() if got.status_code not in (200, 302)} == {}
    for page in (answers["/admin/"], answers["/admin/inbox/message/"], answers["/admin/inbox/message/"], refused):
        assert told("full") in page.content.decode()
    assert told("full") not in browser.get("/admin/").content.decode()


def test_no_page_fails_on_a_nul_in_its_address(empty_home: None, browser: Client) -> None:
    for page in pages(admin.site):
        route = re.sub(r"<int:\w+>", "1", str(page.pattern))
        at = f"/admin/{re.sub(r'<[^>]+>', 'a%00b', route)}"
        for query in ("", "?q=a%00b&s=a%00b&agent=a%00b&workspace=a%00b&type=a%00b&topic=a%00b&before=a%00b"):
            assert browser.get(at + query).status_code < 500, at + query
