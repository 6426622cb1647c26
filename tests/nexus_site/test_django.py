"""How Django serves in a hub: how many steps on its threads a request takes, and what the middleware still does."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.conf import settings

from nexus.core.operations import dispatch
from nexus.core.rest import viewsets
from nexus_site.asgi import DJANGO_THREADS, Hub


class Counted(ThreadPoolExecutor):
    """Threads that count the steps they were given."""

    steps = 0

    def submit(self, *call: Any, **how: Any) -> Future[Any]:
        self.steps += 1
        return super().submit(*call, **how)


@pytest.fixture
async def hub(committed: None) -> AsyncIterator[tuple[Counted, httpx.AsyncClient]]:
    """The threads of a hub's Django, and a client."""
    served = Hub()
    served.django.threads = threads = Counted(DJANGO_THREADS)
    transport = httpx.ASGITransport(app=served, client=("127.0.0.1", 1), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield threads, client


async def test_an_operation_passes_no_thread_for_its_middleware(hub: tuple[Counted, httpx.AsyncClient]) -> None:
    threads, client = hub
    answer = await client.post("/api/v1/operations/agent_register", json={"agent_id": "ann"})
    assert answer.json()["ok"], answer.text
    assert threads.steps <= 1, "Django closes the response on a thread"


async def test_a_page_is_made_in_one_step(hub: tuple[Counted, httpx.AsyncClient]) -> None:
    threads, client = hub
    assert (await client.get("/admin/help/")).status_code == 200
    assert threads.steps <= 2, "the page, and its end"


async def test_an_operation_has_the_headers_of_a_page(hub: tuple[Counted, httpx.AsyncClient]) -> None:
    _, client = hub
    page = await client.get("/admin/help/")
    answer = await client.post("/api/v1/operations/agent_list", json={})
    same = "content-security-policy cross-origin-opener-policy referrer-policy x-content-type-options x-frame-options"
    for name in same.split():
        assert answer.headers[name] == page.headers[name]
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_a_login_calls_operations_too(hub: tuple[Counted, httpx.AsyncClient], monkeypatch: Any) -> None:
    from django.contrib.auth.models import User

    await _in_thread(lambda: User.objects.create_superuser("olga", password="pw-pw-pw-1"))
    monkeypatch.setattr("nexus.core.access.settings.NEXUS_TRUSTS_LOCAL", False)
    _, client = hub
    assert (await client.post("/api/v1/operations/agent_list", json={})).status_code == 401
    await client.get("/admin/login/")
    form = {
        "username": "olga",
        "password": "pw-pw-pw-1",
        "csrfmiddlewaretoken": client.cookies[settings.CSRF_COOKIE_NAME],
    }
    assert (await client.post("/admin/login/", data=form)).status_code == 302
    assert (await client.post("/api/v1/operations/agent_list", json={})).json()["ok"]


async def test_a_view_that_breaks_is_answered_in_the_envelope(
    hub: tuple[Counted, httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, client = hub

    def breaks(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(viewsets, "explain", breaks)
    monkeypatch.setattr(dispatch, "aperform", breaks)
    answer = await client.post("/api/v1/operations/agent_list", json={})
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "INTERNAL_ERROR" and "secret" not in answer.text
    assert "secret" in caplog.text, "the log has the cause"


async def test_a_foreign_host_reaches_no_view(hub: tuple[Counted, httpx.AsyncClient]) -> None:
    _, client = hub
    answer = await client.post("/api/v1/operations/agent_list", json={}, headers={"host": "evil.example"})
    assert answer.status_code == 400 and not answer.json()["ok"]


async def _in_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
