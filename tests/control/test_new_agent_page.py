"""The form that creates an agent of the pool."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser

from nexus.control.agents import wake_kinds
from nexus.control.forms import NewPoolAgentForm
from nexus.control.models import PoolAgent, PoolWorktree, Turn
from nexus.control.permissions.rules import DEEPEST
from nexus.control.runners import sandbox
from nexus.control.toolset import CONTROL
from nexus.web.login import local_account
from tests.control.playing import at_hand, lead, pool, writer
from tests.git import git
from tests.pages import shown

NEW = "/admin/control/poolagent/add/"
__all__ = ["at_hand", "lead", "writer"]
pytestmark = pytest.mark.usefixtures("committed")  # the page is made on the threads that git is waited for on


def leads_here(browser: Browser, agent: PoolAgent) -> bool:
    """Whether an agent's page offers a child."""
    return "New agent below" in shown(browser.get(f"/admin/pool/{agent.pk}/"))


def offered(page: str, name: str = "preset") -> list[str]:
    """What a field of the form offers."""
    return re.findall(rf'name="{name}" value="(\w+)"', page)


@pytest.fixture
def narrow(lead: PoolAgent, at_hand: Path) -> PoolAgent:
    """A child of lead's that creates agents itself, in src, without glob."""
    given = {"cwd": str(at_hand / "src"), "disable_tools": ["glob"]}
    pool("pool_create_agent", agent_id="narrow", preset="trusted", parent_agent_id="lead", **given)
    return PoolAgent.objects.get(agent_id="narrow")


def test_it_offers_what_the_parents_ceiling_leaves(
    narrow: PoolAgent, writer: PoolAgent, at_hand: Path, browser: Browser
) -> None:
    page = shown(browser.get(NEW))
    assert offered(page) == ["trusted", "sandboxed", "worker"]
    parents = page.partition('name="parent_agent_id"')[2].partition("</select>")[0]
    assert re.findall(r'<option value="(\w*)"', parents) == ["", "narrow", "lead"]
    page = shown(browser.get(f"{NEW}?parent=narrow"))
    assert f"It writes at and below {at_hand}/src at most" in page and f"Its directory lies in {at_hand}/src" in page
    assert f'placeholder="{at_hand}/src"' in page and "goes without glob, as its parent does" in page


def test_it_offers_nothing_below_who_may_have_no_children(lead: PoolAgent, writer: PoolAgent, browser: Browser) -> None:
    page = shown(browser.get(f"{NEW}?parent=writer"))
    assert offered(page) == [] and "has no children" in page
    assert not leads_here(browser, writer) and leads_here(browser, lead)
    PoolAgent.objects.update(depth=DEEPEST)
    page = shown(browser.get(f"{NEW}?parent=lead"))
    assert offered(page) == [] and "levels deep" in page
    assert not leads_here(browser, lead)


@pytest.mark.parametrize(
    ("depth", "said"),
    [
        (0, f"Creates agents, down to {DEEPEST} levels below itself"),
        (DEEPEST - 1, "Creates agents, down to 1 level below itself"),
        (DEEPEST, "Creates no agents"),
    ],
)
def test_an_agents_page_says_how_deep_below_itself_it_creates_agents(
    lead: PoolAgent, browser: Browser, depth: int, said: str
) -> None:
    PoolAgent.objects.update(depth=depth)
    assert f"<bdi>{said}</bdi>" in shown(browser.get(f"/admin/pool/{lead.pk}/"))


def test_it_creates_an_agent_once_however_often_the_form_is_sent(
    lead: PoolAgent, at_hand: Path, browser: Browser
) -> None:
    page = shown(browser.get(f"{NEW}?parent=lead"))
    found = re.search(r'name="agent_id" value="([0-9a-f]{8})"', page)
    assert found is not None
    form = {
        "agent_id": found[1], "parent_agent_id": "lead", "preset": "sandboxed", "cwd": str(at_hand),
        "allowed_write_paths": "src\r\n\r\n", "disable_tools": ["grep", "glob"], "model": "rehearsal",
        "initial_message": "Begin\r\nnow",
    }  # fmt: skip
    answer = browser.post(NEW, form)
    made = PoolAgent.objects.get(agent_id=found[1])
    assert answer.headers["Location"] == f"/admin/pool/{made.pk}/"
    assert (made.parent, made.preset, made.write_paths) == (lead, "sandboxed", [f"{at_hand}/src"])
    assert made.disabled_tools == ["glob", "grep"] and Turn.objects.get().content == "Begin\nnow"
    page = shown(browser.post(NEW, form))
    assert "There is an agent" in page and PoolAgent.objects.count() == 2


def test_it_asks_for_whatever_an_agent_is_created_with() -> None:
    taken = set(CONTROL.operations["pool_create_agent"].params.model_fields)
    form = NewPoolAgentForm()
    waiting = {"wait_for_initial_response", "timeout_seconds"}  # its page shows the answer as it comes
    assert taken - form.fields.keys() == waiting


def test_it_creates_an_agent_that_wakes_within_a_budget(lead: PoolAgent, browser: Browser) -> None:
    page = shown(browser.get(NEW))
    assert offered(page, "wake_on") == ["mail", *wake_kinds.declared()]
    assert "handoffs in its project that it may claim" in page
    form = {"agent_id": "new", "preset": "sandboxed", "model": "rehearsal", "wake_on": ["mail", "topic"]}
    for name, typed, budget in (("a", "5000", 5000), ("b", "0", 0), ("c", "", None)):
        browser.post(NEW, {**form, "agent_id": name, "wake_tokens": typed})
        made = PoolAgent.objects.get(agent_id=name)
        assert (made.wake_on, made.wake_tokens) == (["mail", "topic"], budget)


@pytest.mark.usefixtures("runs_sandbox")
def test_it_creates_an_agent_in_a_worktree_of_its_own_or_says_why_not(
    lead: PoolAgent, at_hand: Path, browser: Browser
) -> None:
    form = {"agent_id": "new", "preset": "sandboxed", "model": "rehearsal", "cwd": str(at_hand), "worktree": "true"}
    page = shown(browser.post(NEW, form))
    told = re.findall(r'<p class="nx-wrong" id="id_(\w+?)_error" role="alert">(.*?)</p>', page)
    assert [name for name, _ in told] == ["worktree"] and "WORKTREE_REFUSED" in told[0][1]
    assert not PoolAgent.objects.filter(agent_id="new").exists()
    git(at_hand, "init", "--quiet")
    git(at_hand, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    browser.post(NEW, form)
    assert PoolAgent.objects.get(agent_id="new").worktree.branch == "nexus/new"
    for name, choice, has_one in (("left-open", "", True), ("in-place", "false", False)):
        here = {**form, "agent_id": name, "preset": "trusted", "worktree": choice}
        page = shown(browser.post(NEW, here, follow=True))
        assert PoolWorktree.objects.filter(agent__agent_id=name).exists() == has_one
        assert ("Writes where you work, so you trust it" in page) != has_one


def test_it_offers_no_tool_to_go_without_that_the_parent_has_not(narrow: PoolAgent, browser: Browser) -> None:
    for parent, tools in (("", 11), ("narrow", 10)):
        page = shown(browser.get(f"{NEW}?parent={parent}"))
        found = offered(page, "disable_tools")
        assert len(found) == tools and ("glob" in found) == (parent == "") and {"run", "grep"} < {*found}


def test_it_says_that_a_runner_without_its_sandbox_is_refused(
    lead: PoolAgent, browser: Browser, monkeypatch: pytest.MonkeyPatch, at_hand: Path, configure: Callable[..., None]
) -> None:
    configure(control=True, home=at_hand.parent / "home", pool_sandbox="required")
    browser.force_login(local_account())
    (at_hand.parent / "home" / "runners.toml").write_text('[runners.coder]\nkind = "acp"\ncommand = ["coder"]\n')
    monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "no such luck"))
    page = shown(browser.post(NEW, {"agent_id": "new", "preset": "worker", "model": "coder"}))
    assert re.search(r'id="id_model_error"[^>]*>[^<]*no such luck', page)


def test_it_shows_what_is_refused_where_it_was_typed(narrow: PoolAgent, browser: Browser) -> None:
    wrongs: list[tuple[dict[str, Any], str, str]] = [
        ({"wake_tokens": "many"}, "wake_tokens", "whole number"),
        ({"wake_tokens": "9" * 30}, "wake_tokens", "whole number"),
        ({"wake_on": ["alarm"]}, "wake_on", "Select a valid choice"),
        ({"agent_id": "a/b"}, "agent_id", "letters, digits"),
        ({"cwd": "not/there"}, "cwd", "existing directory"),
        ({"cwd": "/"}, "cwd", "NOT_PERMITTED"),
        ({"preset": "yolo"}, "preset", "Select a valid choice"),
        ({"allowed_write_paths": "/etc"}, "allowed_write_paths", "NOT_PERMITTED"),
        ({"disable_tools": ["teleport"]}, "disable_tools", "Select a valid choice"),
        ({"model": "gone"}, "model", "Select a valid choice"),
    ]
    for typed, field, said in wrongs:
        form = {"agent_id": "new", "parent_agent_id": "narrow", "preset": "sandboxed", "model": "rehearsal", **typed}
        page = shown(browser.post(NEW, form))
        told = re.findall(r'<p class="nx-wrong" id="id_(\w+?)_error" role="alert">(.*?)</p>', page)
        assert [name for name, _ in told] == [field] and said in told[0][1]
        assert not PoolAgent.objects.filter(agent_id="new").exists()


def test_it_says_that_a_parent_is_gone(lead: PoolAgent, browser: Browser) -> None:
    form = {"agent_id": "new", "parent_agent_id": "lead", "preset": "worker", "model": "rehearsal"}
    pool("pool_destroy_agent", agent_id="lead")
    page = shown(browser.post(NEW, form))
    assert "lead is not one of the available choices" in page and not PoolAgent.objects.living().exists()
