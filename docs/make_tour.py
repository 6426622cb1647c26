"""Makes the pictures of docs/tour.md: a hub, a day of a team of twelve on it, and Chromium looking on; and of setup.

Run `.venv/bin/python -m docs.make_tour` in a checkout with the development environment and Debian's
chromium or chromium-headless-shell.
"""

from __future__ import annotations

import html
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "tour"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
RUNNERS = """
[runners.stage]
kind = "rehearsal"
script = [
  { when = "tests", wait = 600 },
  { when = "digest", say = "The key is the **digest** now, and a test says so.", call = [
    { operation = "coordination.agent_list", arguments = {} } ] },
  { say = "The first nine bytes. *reader* takes the digest instead." },
]
"""
LARGE, NARROW, WIDE, PHONE = (1280, 800), (400, 800), (2560, 1200), (390, 844)
TERMINAL = """<!doctype html><body style="margin: 0; padding: 20px; width: fit-content; background: #0f172a;
color: #e2e8f0; font: 13px/1.5 ui-monospace, monospace"><pre style="margin: 0; width: 118ch; white-space: pre-wrap">"""
expect.set_options(timeout=60_000)  # a bound against hanging: five seconds are short on a loaded machine


def main() -> None:
    chromium = (
        shutil.which("chromium-headless-shell") or shutil.which("chromium") or sys.exit("chromium is not installed")
    )
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nexus-tour-") as room:
        said = set_up(Path(room).resolve() / "ann")
        home = f"{room}/home"  # which the day makes
        subprocess.run([sys.executable, "-m", "docs.day", "--home", home], check=True, cwd=ROOT)  # noqa: S603  # our own
        with hub(home) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            events = window(browser, url, LARGE, "light")
            events.goto("/admin/coordination/event/")
            take(events, "events")  # of the day, before what an operator does here
            discussed(home)
            planned(url, home)
            pooled(url, home)
            handed_in(url, home)
            look(browser, url)
            act(browser, url)
            printed(browser, "setup", said)
            browser.close()


def look(browser: Browser, url: str) -> None:
    """Take the other pictures."""
    for name, size, path in (
        ("home", LARGE, "/admin/"),
        ("home-dark", LARGE, "/admin/"),
        ("home-wide", WIDE, "/admin/"),
        ("board", LARGE, "/admin/board/"),
        ("timeline", LARGE, "/admin/timeline/?window=6h"),
        ("files", LARGE, "/admin/files/reservation/"),
        ("graph", LARGE, "/admin/graph/?agent=ada"),
        ("graph-dark", LARGE, "/admin/graph/"),
        ("mail-narrow", NARROW, "/admin/inbox/message/"),
    ):
        page = window(browser, url, size, "dark" if "dark" in name else "light")
        page.goto(path)
        take(page, name)
        page.close()
    quiet(browser, url)
    topics = window(browser, url, LARGE, "light")
    topics.goto("/admin/topics/topic/")
    topics.get_by_role("link", name="cache-key").click()
    take(topics, "topic")
    plan = window(browser, url, LARGE, "light")
    plan.goto("/admin/plan/")
    plan.get_by_role("group", name="Plans").get_by_role("link", name="parser").click()
    take(plan, "plan")
    pool(window(browser, url, LARGE, "light"))
    reviewed(browser, url)


def set_up(person: Path) -> str:
    """What `nexus setup` says to Ann, who has three clients and installed Nexus with uv, in a project of hers."""
    shop, port = person / "shop", free_port()
    for each in (shop, *(person / client for client in (".claude", ".codex", ".cursor", ".local/bin"))):
        each.mkdir(parents=True)
    link = person / ".local/bin/nexus"
    link.symlink_to(Path(sys.executable).with_name("nexus"))
    subprocess.run(["git", "init", "--quiet"], cwd=shop, check=True)  # noqa: S607  # our own
    environment = {"HOME": str(person), "PATH": f"{link.parent}:/usr/bin:/bin"}
    command = [str(link), "setup", "--yes"]

    def run(*more: str) -> str:
        ended = subprocess.run([*command, *more], cwd=shop, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603  # our own
        return ended.stdout

    try:
        output = run("--port", str(port))
    finally:
        run("--undo")  # which ends the hub
    return (
        f"$ nexus setup\n{output}".replace(str(person), "/home/ann")
        .replace(f"{port} ", "8420  ")
        .replace(str(port), "8420")
    )


def printed(browser: Browser, name: str, text: str) -> None:
    """A picture of what a terminal shows."""
    page = browser.new_page(viewport={"width": LARGE[0], "height": LARGE[1]})
    page.set_content(f"{TERMINAL}{html.escape(text)}</pre>")
    save(page.locator("body"), name)
    page.close()


def act(browser: Browser, url: str) -> None:
    """What an operator does: choose a workspace, answer a question on a phone."""
    page = window(browser, url, LARGE, "light")
    page.goto("/admin/")
    page.locator(".nx-switcher summary").click()
    take(page, "workspaces")
    page.close()
    page = window(browser, url, PHONE, "light")
    question = {"kind": "question", "title": "Which colour has the button?", "detail": "The design shows two."}
    call(url, "ask_operator", "control", agent_id="reader", timeout_seconds=0, **question)
    page.goto("/admin/")
    page.get_by_role("button", name=f"Answer… reader, below lead, asks: {question['title']}").click()
    page.get_by_label("Your answer").fill("Red, as on the old page.")
    take(page, "answer-narrow")
    page.get_by_role("dialog").get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").get_by_text("answered")).to_be_visible()
    take(page, "answered-narrow")
    page.close()


def quiet(browser: Browser, url: str) -> None:
    """What takes a hand."""
    light = window(browser, url, LARGE, "light")
    light.goto("/admin/inbox/message/")
    light.locator("#result_list .field-title a").first.click()
    expect(light.locator(".nx-prose")).to_be_visible()
    take(light, "mail")
    light.goto("/admin/board/")
    light.get_by_role("region", name="In Progress").get_by_role("link").first.click()
    take(light, "handoff")
    light.goto("/admin/coordination/agent/add/")
    light.get_by_label("Agent id").fill("reviewer-1")
    light.get_by_role("button", name="Add", exact=True).click()
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


def pool(page: Page) -> None:
    """The pool, and an agent of it."""
    page.goto("/admin/control/poolagent/")
    take(page, "pool")
    page.get_by_role("link", name="reader", exact=True).click()
    expect(page.get_by_role("heading", name="Agent reader")).to_be_visible()
    take(page, "pool-agent")


def reviewed(browser: Browser, url: str) -> None:
    """What waits for a review, one piece of work with a comment, and the lane that approved work goes through."""
    page = window(browser, url, LARGE, "light")
    for name, path in (("reviews", "/admin/review/"), ("lane", "/admin/control/worktreemerge/")):
        page.goto(path)
        take(page, name)
    page.goto("/admin/review/")
    page.get_by_role("link", name="Refuse empty bodies").click()
    work = page.url
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")  # before, a line's number is a link
    page.locator("ins[data-line='3'] > a").click()
    page.get_by_role("textbox", name="Comment").fill("Is an empty body a key at all? Please add a test.")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.locator(".nx-comment").first).to_be_visible()
    page.close()
    for name, size, theme in (
        ("review", LARGE, "light"),
        ("review-dark", LARGE, "dark"),
        ("review-narrow", PHONE, "light"),
    ):
        page = window(browser, url, size, theme)
        page.goto(work)
        page.locator("ins .nx-comment").evaluate("comment => comment.scrollIntoView({block: 'center'})")
        take(page, name)
        page.close()


def call(url: str, operation: str, toolset: str = "coordination", **arguments: object) -> dict[str, Any]:
    """What an operation answers over REST."""
    answer = httpx.post(f"{url}/api/v1/{toolset}/operations/{operation}", json=arguments, timeout=60)
    return dict(answer.raise_for_status().json()["data"])


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
        call(url, operation, "planning", project_root=str(root), **arguments)

    call(url, "workspace_resolve", project_root=str(root), display_name="parser")
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


def pooled(url: str, home: str) -> None:
    """A lead and two agents below it, of which one changed files in its worktree and one asks for permission."""
    shop = Path(home) / "shop"
    shop.mkdir(exist_ok=True)  # where the day played
    (shop / "cache.py").write_text("def key(body):\n    return body[:9]\n")
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "Begin"]):
        subprocess.run(["git", *words], cwd=shop, check=True)  # noqa: S603, S607  # our own

    def do(operation: str, **arguments: object) -> None:
        call(url, operation, "control", **arguments)

    def send(agent_id: str, content: str, **more: object) -> None:
        do("pool_send", agent_id=agent_id, content=content, **more)

    lead = {"preset": "trusted", "cwd": str(shop), "worktree": False}
    do("pool_create_agent", agent_id="lead", wake_on=["mail", "topic"], **lead)
    below: dict[str, object] = {"parent_agent_id": "lead", "cwd": str(shop)}
    do("pool_create_agent", agent_id="reader", worktree=True, wake_on=["mail"], wake_tokens=200_000, **below)
    do("pool_create_agent", agent_id="tester", preset="worker", **below)
    (place,) = (Path(home) / "worktrees").glob("reader-*")
    (place / "cache.py").write_text("from hashlib import sha256\n\n\ndef key(body):\n    return sha256(body)\n")
    (place / "test_cache.py").write_text("from cache import key\n\n\ndef test_key():\n    assert len(key(b'')) == 32\n")
    send("lead", "Which key does the cache have?")
    send("reader", "Take the **digest** as key.")
    send("tester", "Run the tests.", timeout_seconds=0)
    permission = {"kind": "permission", "title": "Delete cache.bin?", "subject": "rm cache.bin"}
    do("ask_operator", agent_id="reader", detail="It was written with the old key.", timeout_seconds=0, **permission)


def handed_in(url: str, home: str) -> None:
    """Work in three worktrees: one piece is merged, one met a conflict with that, one waits for its review."""
    shop = Path(home) / "shop"
    for name, body in (
        ("mason", "    return sha1(body)\n"),
        ("weaver", "    return md5(body)\n"),
        ("smith", '    if not body:\n        return b""\n    return body[:9]\n'),
    ):
        call(url, "pool_create_agent", "control", agent_id=name, cwd=str(shop), worktree=True)
        place = Path(call(url, "pool_worktree_diff", "control", agent_id=name)["path"])
        (place / "cache.py").write_text(f"def key(body):\n{body}")
        call(
            url, "pool_send", "control", agent_id=name, content="What is the key of an empty body?", timeout_seconds=60
        )
    work = {"project_root": str(shop), "payload": "An empty body gets no key.", "verifier": "operator"}
    to: dict[str, Any] = {"target": {"strategy": "direct", "agent_id": "smith"}, "visibility": "public"}
    task = call(url, "handoff_create", from_agent_id="lead", title="Refuse empty bodies", **work, **to)
    own = {"project_root": str(shop), "handoff_id": task["handoff_id"], "agent_id": "smith"}
    call(url, "handoff_claim", **own)
    call(url, "handoff_complete", result="An empty body has an empty key.", **own)
    seen = call(url, "pool_get_review", "control", agent_id="mason")["seen"]
    call(url, "pool_approve_work", "control", agent_id="mason", seen=seen)
    call(url, "pool_worktree_queue", "control", agent_id="weaver")  # which may be in conflict by now
    while call(url, "pool_list_merges", "control")["merges"]:
        time.sleep(0.2)


@contextmanager
def hub(home: str) -> Iterator[str]:
    """A hub over a throwaway home, on a free port."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    (Path(home) / "runners.toml").write_text(RUNNERS)
    present = ("--session-stale-ttl-seconds", "1200")  # all but the one who left: nobody acts while pictures are taken
    with nexus("serve", "--control", "--port", str(port), "--home", home, *present) as server:
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
    save(page, name)


def save(shown: Page | Locator, name: str) -> None:
    shown.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
    print(f"{name}.png, {(PICTURES / f'{name}.png').stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
