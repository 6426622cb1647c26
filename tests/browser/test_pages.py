"""Every page as a person meets it: readable by a screen reader, in both themes, narrow and wide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.acceptance.hub import Hub
from tests.browser import scene
from tests.browser.conftest import Ids

PAGES = {
    "home": "/admin/",
    "attention": "/admin/attention/",
    "graph": "/admin/graph/?agent=planner",
    "board": "/admin/board/",
    "handoff": "/admin/handoffs/handoff/{open}/change/",
    "handoff_blocked": "/admin/handoffs/handoff/{blocked}/change/",
    "handoff_submitted": "/admin/handoffs/handoff/{submitted}/change/",
    "timeline": "/admin/timeline/?sender=planner&recipient=builder-1",
    "mail": "/admin/inbox/message/{reply}/change/",
    "events": "/admin/coordination/event/",
    "event": "/admin/coordination/event/9/change/",
    "topics": "/admin/topics/topic/",
    "topic_new": "/admin/topics/topic/add/",
    "topic": "/admin/topics/{topic}/",
    "topic_found": "/admin/topics/{topic}/?q=key",
    "topic_delete": "/admin/act/?do=topic_delete&on={topic}",
    "plans": "/admin/plan/",
    "plan": "/admin/plan/?workspace={workspace}",
    "plan_close": "/admin/plan/{workspace}/close/",
    "plan_issue": "/admin/plan/issues/{issue}/",
    "plan_cycle": "/admin/planning/cycle/{cycle}/change/",
    "task": "/admin/planning/task/{task}/change/",
    "questions": "/admin/control/question/",
    "question": "/admin/questions/{question}/",
    "files": "/admin/files/reservation/",
    "files_ended": "/admin/files/reservation/?state=ended&q=zzz",
    "reservation": "/admin/files/reservation/{reservation}/change/",
    "find": "/admin/find/?q=parser",
    "agents": "/admin/coordination/agent/",
    "agent": "/admin/agents/planner/",
    "limits": "/admin/coordination/agentlimits/add/?role=worker",
    "agent_new": "/admin/coordination/agent/add/",
    "agent_profile": "/admin/act/?do=agent_update&on=planner",
    "speak": "/admin/speak/",
    "notices": "/admin/hooks/noticeaddress/",
    "webhook_add": "/admin/hooks/webhook/add/",
    "forges": "/admin/forges/forge/",
    "webhooks": "/admin/hooks/webhook/",
    "settings": "/admin/settings/",
    "retention": "/admin/retention/",
    "help": "/admin/help/",
    "reference": "/admin/reference/settings.md",
    "sessions": "/admin/coordination/session/",
    "handoff_records": "/admin/handoffs/handoff/",
    "operators": "/admin/auth/user/",
    "artifact": "/admin/coordination/artifact/{artifact}/change/",
}
# Each is of one kind with another page, whose templates it shares: only `make long` visits it.
VARIANTS = {
    *("topic_found", "files_ended", "handoff_records", "operators"),
    *("handoff_blocked", "handoff_submitted", "plan_close", "topic_delete"),
    *("topics", "questions", "files", "forges", "webhooks", "notices", "topic_new", "limits", "reservation"),
}


@pytest.fixture(scope="module")
def team(team: Ids, hub: Hub) -> Ids:
    """The team, some of whose work needs a person."""
    control = scene.over_rest(hub.url, "control/operations")
    asks = {"title": "May I run the build?", "detail": "make -j2 all\n" + "word/" * 60, "subject": "run make"}
    asked = control("ask_operator", agent_id="planner", kind="permission", **asks, timeout_seconds=0)
    trouble = scene.trouble(scene.over_rest(hub.url), Path(team["root"]))
    return {**team, **trouble, "question": asked["question_id"]}


@pytest.mark.parametrize("widths", [(400, 1280), pytest.param((400, 2560, 1280), marks=pytest.mark.long)])
def test_it_gives_a_screen_reader_nothing_serious_to_stumble_over_and_fits_its_window(
    page: Page, team: Ids, findings: Callable[..., list[str]], widths: tuple[int, ...]
) -> None:
    """Each kind of page in one theme, in turn the light and the dark one; in all widths each page in both."""
    whole = len(widths) > 2
    pages = {name: path for name, path in PAGES.items() if whole or name not in VARIANTS}
    page.emulate_media(color_scheme="dark")
    found: dict[str, list[str]] = {}  # by finding, so that one fault of the frame is one line
    themes: dict[str, list[bool]] = {}
    too_wide: dict[tuple[str, int], int] = {}
    for number, (name, path) in enumerate(pages.items()):  # each is loaded once, which is what takes time
        if not whole:
            page.emulate_media(color_scheme="light" if number % 2 else "dark")
        page.set_viewport_size({"width": widths[0], "height": 900})
        page.goto(path.format(**team))
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            if (needs := page.evaluate("document.documentElement.scrollWidth")) > width:
                too_wide[name, width] = needs
        page.wait_for_function(
            "document.querySelector('[data-live]')?.dataset.state === 'live' || !document.querySelector('[data-live]')"
        )
        problems = findings(page)
        themes[name] = [dark(page)]
        if whole or number == len(pages) - 1:  # the other theme; the next page begins in it
            for _ in range(1 if themes[name][0] else 2):  # the key goes from what the system has to light, then to dark
                page.keyboard.press("Control+e")
            page.wait_for_function(
                "was => document.documentElement.classList.contains('dark') !== was"
                " && !document.getAnimations().some((moving) => moving instanceof CSSTransition)",
                arg=themes[name][0],
            )
            themes[name].append(dark(page))
        if whole:  # it changes nothing but colours
            problems += findings(page, "color-contrast")
        for problem in problems:
            found.setdefault(problem, []).append(name)
    assert not found, "\n".join(f"{problem} on {', '.join(names)}" for problem, names in found.items())
    begun = [first for first, *_ in themes.values()]
    assert begun == [number % 2 == 0 for number in range(len(pages))]
    assert all(len({*seen}) == len(seen) for seen in themes.values()), "the key changes the theme"
    assert too_wide == {}


def dark(page: Page) -> bool:
    """Whether the page is in the dark theme."""
    return bool(page.evaluate("document.documentElement.classList.contains('dark')"))


@pytest.mark.parametrize("name", ["home", "settings"])
def test_it_shows_a_table_whole_on_a_narrow_screen(page: Page, team: Ids, name: str) -> None:
    page.set_viewport_size({"width": 400, "height": 900})
    page.goto(PAGES[name])
    cells = page.locator(".nx-table tbody td")
    assert cells.count() > 5
    right = cells.evaluate_all("cells => Math.max(...cells.map((cell) => cell.getBoundingClientRect().right))")
    assert right <= 400
    heads = page.locator(".nx-stack thead")  # each cell has its label there
    sizes = heads.evaluate_all("heads => heads.map((head) => head.getBoundingClientRect().width)")
    assert sizes and max(sizes) <= 1


@pytest.mark.parametrize("name", ["home"])
def test_it_breaks_no_short_name_in_a_table(page: Page, team: Ids, name: str) -> None:
    page.goto(PAGES[name])
    names = page.locator(".nx-table .nx-name")
    assert names.count() > 1
    broken = names.evaluate_all(
        "names => names.filter((name) => name.getBoundingClientRect().height > 30)"
        ".map((name) => name.textContent).filter((text) => /^\\w{1,16}$/.test(text))"
    )
    assert broken == []


@pytest.mark.parametrize("width", [400, 1280, 2560])
def test_it_keeps_what_retention_found_inside_its_card(page: Page, team: Ids, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/retention/")
    page.get_by_role("button", name="Count what is past its window").click()
    table = page.locator(".nx-card table")
    past = table.evaluate(
        "table => table.getBoundingClientRect().right - table.closest('.nx-card').getBoundingClientRect().right"
    )
    assert past <= 0
