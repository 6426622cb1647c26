"""A plan as a person reads its drawing, decides and adds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.hub import Hub
from tests.browser import scene
from tests.browser.conftest import live, watch
from tests.browser.scene import Does
from tests.browser.test_pages import dark

TASKS = 60
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll("svg.nx-tasks a")].map((node) => ({
    rect: node.querySelector("rect").getBoundingClientRect(),
    texts: [...node.querySelectorAll("text")].map((text) => text.getBoundingClientRect()),
    name: node.textContent.trim(),
  }));
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const within = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const found = boxes.filter((box) => !box.texts.every((text) => within(text, box.rect))).map((box) => box.name);
  boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other) => {
    if (meet(one.rect, other.rect)) found.push(`${one.name} over ${other.name}`);
  }));
  return { nodes: boxes.length, found };
}"""


@pytest.fixture
def do(hub: Hub) -> Does:
    """Call an operation of planning on the hub."""
    return scene.planning_over_rest(hub.url)


@pytest.fixture(scope="module")
def project(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a plan of many tasks, some with titles that fit nowhere."""
    root = tmp_path_factory.mktemp("planned")
    do = scene.planning_over_rest(hub.url)
    scene.plan(do, root, TASKS)
    for title in ("W" * 200, "測" * 100, "<script>alert(1)</script> \u202etxt"):
        do("task_add", project_root=str(root), title=title, context=title, deps=[1], owner=title)
    return root


@pytest.fixture
def plan(page: Page, project: Path) -> Page:
    """The plan's page, live."""
    page.goto("/admin/plan/")
    page.get_by_role("group", name="Plans").get_by_role("link", name=project.name).click()
    live(page)
    return page


def test_it_draws_sixty_tasks_of_which_none_covers_another(plan: Page) -> None:
    assert plan.evaluate(OVERLAPS) == {"nodes": TASKS + 3, "found": []}
    expect(plan.locator("svg.nx-tasks path.line.critical").first).to_be_attached()
    plan.get_by_role("link", name=re.compile(r"^2\. .*: in progress")).focus()
    plan.keyboard.press("Enter")
    expect(plan.get_by_role("heading", name=re.compile(r"^2\. "))).to_be_visible()


@pytest.mark.long  # tests/browser/test_pages.py looks at both pages, of a smaller plan
def test_it_gives_a_screen_reader_nothing_serious_to_stumble_over(
    plan: Page, findings: Callable[..., list[str]]
) -> None:
    """The plan and its closed cycle, each in both themes."""
    plan.get_by_role("link", name=re.compile(r"^History \(")).click()
    plan.get_by_role("group", name="Closed cycles").get_by_role("link").first.click()
    cycle = plan.url
    plan.go_back()
    plan.go_back()
    here = plan.url
    visits: list[tuple[Literal["light", "dark"], str, list[str]]] = [
        ("light", here, []),
        ("dark", cycle, []),
        ("light", cycle, ["color-contrast"]),  # the other theme changes nothing but colours
        ("dark", here, ["color-contrast"]),
    ]
    for theme, address, rules in visits:
        plan.emulate_media(color_scheme=theme)
        watch(plan, address)
        assert dark(plan) == (theme == "dark")
        assert findings(plan, *rules) == []


def test_it_fits_a_narrow_window(plan: Page) -> None:
    plan.set_viewport_size({"width": 400, "height": 800})
    for link in (re.compile(r"^1\. Which grammar"), re.compile(r"^3\. ")):
        assert plan.evaluate("document.documentElement.scrollWidth") <= 400
        plan.get_by_role("link", name=link).first.click()
        assert plan.evaluate("document.documentElement.scrollWidth") <= 400
        plan.go_back()


def test_it_decides_and_adds_by_keyboard(plan: Page, do: Does, project: Path) -> None:
    plan.get_by_label("Another issue").fill("Which tests?")
    plan.keyboard.press("Enter")
    expect(plan.get_by_text("The issue is added.")).to_be_visible()
    plan.get_by_role("link", name=re.compile("Which tests")).focus()
    plan.keyboard.press("Enter")
    plan.get_by_label("Decision and its reasons").fill("Those that **fail** without the code.")
    plan.keyboard.press("Tab")
    plan.keyboard.press("Enter")
    expect(plan.get_by_text("The issue is decided.")).to_be_visible()
    issue: dict[str, Any] = do("plan_status", project_root=str(project))["issues"][-1]
    assert (issue["title"], issue["decision"]) == ("Which tests?", "Those that **fail** without the code.")
    plan.get_by_role("link", name="New task").focus()
    plan.keyboard.press("Enter")
    plan.get_by_label("Title").fill("Write them")
    plan.get_by_label("Context").fill("So that it stays right.")
    plan.get_by_label("Waits for the tasks").fill("1")
    plan.keyboard.press("Enter")
    expect(plan.get_by_text("The task is added.")).to_be_visible()
    expect(plan.get_by_role("group", name="Tasks by state")).to_contain_text("Write them")


def test_it_shows_what_agents_do_as_they_do_it(plan: Page, do: Does, project: Path) -> None:
    plan.evaluate("window.stayed = true")
    do("task_add", project_root=str(project), title="Added meanwhile", context="x")
    column = plan.get_by_role("region", name="In progress")
    number = do("task_list", project_root=str(project))["tasks"][-1]["id"]
    do("task_update", project_root=str(project), id=number, status="in_progress")
    expect(column).to_contain_text("Added meanwhile")
    assert plan.evaluate("window.stayed")
