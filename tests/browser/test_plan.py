"""A plan of many tasks on a small screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.acceptance.hub import Hub
from tests.browser import scene
from tests.browser.conftest import live

TASKS = 60


@pytest.fixture(scope="module")
def project(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a plan of many tasks, some with titles that fit nowhere."""
    root = tmp_path_factory.mktemp("planned")
    do = scene.over_rest(hub.url, "planning/operations")
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


def test_it_fits_a_narrow_window(plan: Page) -> None:
    plan.set_viewport_size({"width": 400, "height": 800})
    for link in (re.compile(r"^1\. Which grammar"), re.compile(r"^3\. ")):
        assert plan.evaluate("document.documentElement.scrollWidth") <= 400
        plan.get_by_role("link", name=link).first.click()
        assert plan.evaluate("document.documentElement.scrollWidth") <= 400
        plan.go_back()
