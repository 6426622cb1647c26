"""Makes the pictures of docs/tour.md: a hub, a day of a team of twelve on it, and Chromium looking on.

Run `.venv/bin/python docs/make_tour.py` in a checkout with the development environment and Debian's chromium.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "tour"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
LARGE, NARROW, WIDE = (1280, 800), (400, 800), (2560, 1200)


def main() -> None:
    chromium = shutil.which("chromium") or sys.exit("chromium is not installed")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nexus-tour-") as room:
        home = f"{room}/home"  # which the day makes
        subprocess.run([sys.executable, "-m", "benchmarks.day", "--home", home], check=True, cwd=ROOT)  # noqa: S603  # our own
        with hub(home) as url, sync_playwright() as playwright:
            look(playwright.chromium.launch(executable_path=chromium, args=FLAGS), url, home)


def look(browser: Browser, url: str, home: str) -> None:
    """Take every picture."""
    for name, size, path in (
        ("home", LARGE, "/admin/"),
        ("home-dark", LARGE, "/admin/"),
        ("home-wide", WIDE, "/admin/"),
        ("board", LARGE, "/admin/board/"),
        ("timeline", LARGE, "/admin/timeline/?window=6h"),
        ("figures", LARGE, "/admin/figures/?hours=24"),
        ("files", LARGE, "/admin/files/"),
        ("graph", LARGE, "/admin/graph/?agent=ada"),
        ("graph-dark", LARGE, "/admin/graph/"),
        ("mail-narrow", NARROW, "/admin/mail/"),
    ):
        page = window(browser, url, size, "dark" if "dark" in name else "light")
        page.goto(path)
        take(page, name)
        page.close()
    quiet(browser, url)
    discussed(home)
    topics = window(browser, url, LARGE, "light")
    topics.goto("/admin/topics/")
    topics.get_by_role("link", name="cache-key").click()
    take(topics, "topic")
    planned(url, home)
    plan = window(browser, url, LARGE, "light")
    plan.goto("/admin/plan/")
    plan.get_by_role("group", name="Plans").get_by_role("link", name="parser").click()
    take(plan, "plan")
    plan.get_by_role("heading", name="In which order").evaluate("heading => heading.scrollIntoView()")
    take(plan, "plan-drawing")
    browser.close()


def quiet(browser: Browser, url: str) -> None:
    """What takes a hand."""
    light = window(browser, url, LARGE, "light")
    light.goto("/admin/mail/")
    expect(light.locator(".nx-prose")).to_be_visible()
    take(light, "mail")
    light.goto("/admin/agents/ada/mail/?peer=ines")
    take(light, "conversation")
    light.goto("/admin/board/")
    light.get_by_role("region", name="In Progress").get_by_role("link").first.click()
    take(light, "handoff")
    light.goto("/admin/events/")
    take(light, "events")
    light.goto("/admin/agents/+new/")
    light.get_by_label("Agent id").fill("reviewer-1")
    light.get_by_role("button", name="Create agent and key").click()
    take(light, "key")
    light.goto("/admin/speak/")
    take(light, "speak")
    light.goto("/admin/settings/")
    take(light, "settings")
    light.goto("/admin/")
    light.keyboard.press("Control+k")
    expect(light.get_by_label("Search everything")).to_be_focused()
    light.keyboard.type("login", delay=30)
    expect(light.locator("#command-results-list li").first).to_be_visible()
    take(light, "search")


def discussed(home: str) -> None:
    """A topic in which two peers talk."""
    said = [
        ("ann", "question", "Which **key** does the cache have? I see two:\n\n- the path\n- the digest"),
        ("bob", "answer", "The digest:\n\n```python\nkey = sha256(body)\n```"),
        ("reviewer", "message", "Agreed. I look at `cache.py` once it is in."),
    ]
    asked = ""
    for name, kind, text in said:
        reply = ["--reply-to", asked] if kind == "answer" else []
        about = ["topics", "post", "cache-key", text, "--as", name, "--type", kind, *reply, "--json", "--home", home]
        command = [sys.executable, str(ROOT / "manage.py"), *about]
        answer = subprocess.run(command, check=True, capture_output=True).stdout  # noqa: S603  # our own
        asked = asked or json.loads(answer)["message_id"]


def planned(url: str, home: str) -> None:
    """A plan that is half decided, with tasks that are half done."""
    root = Path(home) / "parser"
    root.mkdir()

    def do(operation: str, **arguments: object) -> None:
        about = {"project_root": str(root), **arguments}
        httpx.post(f"{url}/api/v1/planning/operations/{operation}", json=about).raise_for_status()

    httpx.post(
        f"{url}/api/v1/operations/workspace_resolve", json={"project_root": str(root), "display_name": "parser"}
    ).raise_for_status()
    issues = ["Which grammar do we take?", "Where is the cache?"]
    do("plan_start", topic="A parser of its own", issues=issues, research_summary="Three parsers were compared.")
    decision = "**PEG**: it is short, and its errors name the place."
    do("plan_decide", issue_id=1, summary=decision, how_agents=["architect"], how_summary={"architect": "Fewer rules"})
    tasks: list[tuple[str, str, list[int]]] = [
        ("Write the grammar", "engineer", []),
        ("Collect examples", "tester", []),
        ("Write the reader", "engineer", [1]),
        ("Test the grammar", "tester", [1, 2]),
        ("Cache what was read", "engineer", [3]),
        ("Measure it", "tester", [4, 5]),
        ("Document the format", "writer", [1]),
        ("Release it", "engineer", [6, 7]),
    ]
    for title, owner, deps in tasks:
        do("task_add", title=title, context="Because it was decided.", owner=owner, deps=deps)
    for number, status in ((1, "completed"), (2, "completed"), (3, "in_progress")):
        do("task_update", id=number, status=status)


@contextmanager
def hub(home: str) -> Iterator[str]:
    """A hub over a throwaway home, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with nexus("serve", "--port", str(port), "--home", home) as server:
        while True:
            try:
                if httpx.get(f"{url}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                assert server.poll() is None, "the hub did not start"
                time.sleep(0.2)
        yield url


@contextmanager
def nexus(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  # our own
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def window(browser: Browser, url: str, size: tuple[int, int], theme: str) -> Page:
    """A window of a size, in a theme, in UTC."""
    return browser.new_page(
        base_url=url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="UTC",
        locale="en-GB",
    )


def take(page: Page, name: str) -> None:
    """A picture of the window as it is, once it is live and its fonts are there."""
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(300)
    page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
    print(f"{name}.png, {(PICTURES / f'{name}.png').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
