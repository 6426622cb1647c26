"""A real browser on a real hub: Debian's Chromium, driven by Playwright, and axe-core from npm."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    ViewportSize,
    WebError,
    expect,
    sync_playwright,
)

from tests.acceptance.hub import START_SECONDS, Hub, serving
from tests.browser import scene
from tests.conftest import Furnish
from tests.outside import npm_packages, program

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-extensions", "--in-process-gpu"),
    "--font-render-hinting=none",  # without a window, too, letters are as wide as in one
    "--disable-features=RenderDocument",  # or a page that is closed as another comes may never be: crbug 536385539
]
SIZE: ViewportSize = {"width": 1280, "height": 900}
Ids = dict[str, str]
expect.set_options(timeout=START_SECONDS * 1000)  # a bound against hanging: five seconds are short on a loaded machine


def live(page: Page) -> None:
    """Wait until a page follows what happens."""
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")


def watch(page: Page, path: str) -> None:
    """Open a page, and wait until it follows what happens."""
    page.goto(path)
    live(page)


@pytest.fixture(autouse=True)
def driven(runs_browser: None) -> None:
    """Every test of this folder drives a browser."""


@pytest.fixture(scope="session")
def chromium() -> str:
    """Debian's Chromium without a window, which draws for half of the CPU time, or else the one with."""
    return shutil.which("chromium-headless-shell") or program("chromium")


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser process for the tests of this folder: a start costs as much as ten pages.

    It does not outlive them: while it is open, Playwright's event loop runs in this thread, and async tests cannot.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS, timeout=START_SECONDS * 1000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def runners() -> str:
    """The text of runners.toml. A module that gives one has a hub with a pool."""
    return ""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish, runners: str) -> Iterator[Hub]:
    """A hub for the tests of a module."""
    home = furnish(tmp_path_factory.mktemp("hub") / "home")
    if runners:
        (home / "runners.toml").write_text(runners, encoding="utf-8")
    with serving(home, *(("--home", str(home), "--control") if runners else ())) as served:
        yield served


@pytest.fixture
def pool(hub: Hub) -> scene.Does:
    """Call an operation of the pool."""
    return scene.over_rest(hub.url, "control/operations")


@pytest.fixture(scope="module")
def team(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Ids:
    """A small team at work on the hub."""
    root = tmp_path_factory.mktemp("parser")
    do = scene.over_rest(hub.url)
    do("webhook_add", url="https://example.com/nexus", types=["operator.created"])  # never called: nobody makes one
    topic = scene.talk(scene.topics_over_rest(hub.url))
    played = scene.play(do, root)
    scene.plan(scene.over_rest(hub.url, "planning/operations"), root)
    addresses = (f"plan/?workspace={played['workspace']}", "planning/cycle/")
    pages = [httpx.get(f"{hub.url}/admin/{address}") for address in addresses]
    planned = scene.plan_places(*(page.text for page in pages))
    held = scene.hold(scene.over_rest(hub.url, "files/operations"), root, played["claimed"])
    about = {"root": str(root), "reservation": held}
    return {**played, **topic, **planned, **about}


@pytest.fixture
def do(hub: Hub) -> scene.Does:
    """Call an operation on the hub."""
    return scene.over_rest(hub.url)


@pytest.fixture(scope="module")
def context(browser: Browser, hub: Hub) -> Iterator[BrowserContext]:
    """What the windows of a module share: scripts, styles and fonts are fetched and compiled once."""
    context = browser.new_context(base_url=hub.url, viewport=SIZE, timezone_id="Asia/Tokyo")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(START_SECONDS * 1000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def window(context: BrowserContext) -> Page:
    """The window of a module: to open one starts a renderer, which costs more than most tests."""
    return context.new_page()


@pytest.fixture
def page(window: Page, hub: Hub) -> Iterator[Page]:
    """A window on the hub, as on a first visit. The test fails when a script failed or the policy was violated."""
    context = window.context
    window.goto("/healthz")  # of the same origin, so that the renderer stays; what the former test showed has ended
    window.evaluate("sessionStorage.clear()")
    session = context.new_cdp_session(window)
    session.send("Storage.clearDataForOrigin", {"origin": hub.url, "storageTypes": "cookies,local_storage"})
    session.detach()
    window.set_viewport_size(SIZE)
    window.emulate_media(color_scheme="light")
    window.mouse.move(0, 0)
    faults: list[str] = []

    def heard(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            faults.append(message.text)

    def asked(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def requested(request: Request) -> None:
        if not request.url.startswith((hub.url, "data:")):
            faults.append(request.url)

    def failed(error: WebError) -> None:
        faults.append(str(error.error))

    listeners = {"weberror": failed, "console": heard, "dialog": asked, "request": requested}
    for event, listener in listeners.items():
        context.on(event, listener)  # type: ignore[call-overload]
    yield window
    for opened in context.pages:
        if opened != window:
            opened.close()
    for event, listener in listeners.items():
        context.remove_listener(event, listener)
    assert faults == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    return (npm_packages() / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def findings(axe: str) -> Callable[..., list[str]]:
    """What axe-core finds serious or critical on a page, by all of its rules or by some."""

    def run(page: Page, *rules: str) -> list[str]:
        if not page.evaluate("'axe' in window"):
            page.evaluate(axe)
        only = {"runOnly": list(rules)} if rules else {}
        result: Any = page.evaluate("o => axe.run(document, o)", {"resultTypes": ["violations"], **only})
        return [
            f"{found['id']}: {node['html'][:160]}"
            for found in result["violations"]
            if found["impact"] in ("serious", "critical")
            for node in found["nodes"]
        ]

    return run
