"""What an agent is just writing, on its page."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.hub import START_SECONDS, Hub
from tests.browser import scene
from tests.control.openai_server import Handler, Server, serving, stalls

RUNNERS = """
default = "small"
[runners.small]
kind = "model"
model = "openai:small"
base_url = "{url}"
"""
HARM = "<img src=x onerror='window.pwned=1'> {{ constructor }} "


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, str]]:
    with serving(stalls()) as started:
        yield started


@pytest.fixture(scope="module")
def runners(server: tuple[Server, str]) -> str:
    return RUNNERS.format(url=server[1])


def test_it_grows_while_it_is_written_and_gives_way_to_its_entry(
    page: Page, hub: Hub, server: tuple[Server, str]
) -> None:
    gate = threading.Event()

    def reply(handler: Handler) -> None:
        handler.begin()
        handler.chunk({"role": "assistant", "content": HARM})
        handler.chunk({"content": "I look"})
        assert gate.wait(START_SECONDS)
        handler.chunk({"content": " and **see**."})
        handler.chunk({}, "stop")
        handler.done((120, 7))

    server[0].replies = [reply]
    token = (hub.home / f"rpc-{hub.address[1]}.token").read_text()
    pool = scene.over_rest(hub.url, "control/operations", token)
    made = pool("pool_create_agent", agent_id="poet", worktree=False)
    assert made
    page.goto("/admin/control/poolagent/")
    page.get_by_label("Username").fill("local")
    page.get_by_label("Password").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="poet", exact=True).click()
    draft = page.locator("#draft")
    expect(draft).to_be_hidden()
    pool("pool_send", agent_id="poet", content="Look", timeout_seconds=0)
    expect(draft.locator("[data-text]")).to_have_text(HARM + "I look")
    page.reload()
    expect(draft.locator("[data-text]")).to_have_text(HARM + "I look")
    assert page.evaluate("window.pwned") is None
    gate.set()
    expect(page.locator("#e-1 strong")).to_have_text("see")
    expect(draft).to_be_hidden()
    expect(page.locator(".nx-said > li")).to_have_count(2)
