"""What agents ask the people, on the pages: read whole, answered there and then, told by the bell."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from nexus.control.agents import questions
from nexus.control.attention import VERDICTS, WHOLE, WORDS
from nexus.control.models import PoolAgent, PoolWorktree, Question, QuestionKind, QuestionStatus
from nexus.control.toolset import CONTROL
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from tests.conftest import OPERATOR
from tests.control.playing import at_hand, lead, writer
from tests.pages import act, do, shown

__all__ = ["at_hand", "lead", "writer"]
Ask = Callable[..., str]


@pytest.fixture
def ask(db: None) -> Ask:
    """Ask as ana, for a permission unless told otherwise; the question's id."""
    do("agent_register", agent_id="ana")

    def ask(title: str = "Run make?", **more: Any) -> str:
        arguments = {"agent_id": "ana", "kind": "permission", "title": title, "timeout_seconds": 0, **more}
        envelope = dispatch.run(CONTROL, Caller("test"), "ask_operator", arguments)
        assert envelope["ok"], envelope
        question_id: str = envelope["data"]["question_id"]
        return question_id

    return ask


def buttons(page: str) -> list[str]:
    """The operations that a page offers."""
    return re.findall(r'name="do"\s+value="(\w+) qst_', page)


def bell(page: str) -> tuple[bool, int]:
    """Whether the bell of a page rings, and what it counts."""
    found = re.search(r'class="nx-bell"[^>]*?(hidden)?\s*>.*?data-waiting\s*>(\d+)</span><span>to answer<', page)
    assert found
    return found[1] is None, int(found[2])


def test_it_shows_on_home_what_an_agent_asks_with_its_verdicts(ask: Ask, browser: Client) -> None:
    ask("Run make?", detail="It builds the parser.", subject="run make")
    page = shown(browser.get("/admin/"))
    assert "ana asks: Run make?" in page
    assert "It builds the parser. – “always” writes the rule: allow run make, for this agent" in page
    assert buttons(page) == list(VERDICTS)


def test_an_agent_that_asks_is_neither_free_nor_at_work(ask: Ask, browser: Client) -> None:
    question_id = ask()
    page = shown(browser.get("/admin/"))
    assert "<strong>1</strong> waiting for you" in " ".join(page.split()) and "1</strong> free" not in page
    assert "ana is waiting for you" not in page  # its question says so
    for address in ("/admin/", "/admin/coordination/agent/"):
        assert re.search(r'waiting for you,\s+<time [^>]*data-when="for"', browser.get(address).content.decode())
    act(browser, do=f"pool_allow {question_id}")
    page = shown(browser.get("/admin/"))
    assert "waiting for you" not in page and "<strong>1</strong> free" in " ".join(page.split())


def test_it_shows_what_cannot_be_seen_of_what_is_asked(ask: Ask, browser: Client) -> None:
    asked = ask("Run ls\n# \u202e", subject="run ls\nrm \u200dx")
    for page in ("/admin/", "/admin/control/question/", f"/admin/questions/{asked}/"):
        assert "Run ls⟨U+000A⟩# ⟨U+202E⟩" in shown(browser.get(page)), page
    assert "run ls⟨U+000A⟩rm ⟨U+200D⟩x" in shown(browser.get(f"/admin/questions/{asked}/"))


def test_it_offers_words_alone_where_words_are_asked_for(ask: Ask, browser: Client) -> None:
    ask("Which colour?", kind="question")
    page = shown(browser.get("/admin/"))
    assert buttons(page) == list(WORDS)


@pytest.mark.parametrize(
    ("verdict", "status", "always"),
    [("pool_allow", "allowed", False), ("pool_allow_always", "allowed", True), ("pool_refuse", "refused", False)],
)
def test_it_answers_on_home(ask: Ask, browser: Client, verdict: str, status: str, always: bool) -> None:
    question_id = ask()
    page = act(browser, do=f"{verdict} {question_id}")
    assert "“Run make?” was" in page
    assert buttons(page) == []
    question = Question.objects.get()
    assert (question.status, question.always, question.answered_by) == (status, always, "local")


def test_it_answers_in_words_on_home(ask: Ask, browser: Client) -> None:
    question_id = ask("Which colour?", kind="question", detail="The design shows two.")
    form = act(browser, do=f"pool_answer {question_id}")
    assert "Your answer" in form
    assert "The design shows two." in form
    assert Question.objects.get().status == QuestionStatus.ASKED
    act(browser, do="pool_answer", on=question_id, asked="1", words="")
    assert Question.objects.get().status == QuestionStatus.ASKED
    assert "was answered" in act(browser, do="pool_answer", on=question_id, asked="1", words="Blue.")
    assert Question.objects.get().words == "Blue."


def test_what_is_too_long_for_home_is_answered_where_it_is_shown_whole(ask: Ask, browser: Client) -> None:
    question_id = ask(detail="a" * 3 * WHOLE + " and rm -rf /")
    home = shown(browser.get("/admin/"))
    assert buttons(home) == []
    assert f"/admin/questions/{question_id}/" in home
    page = shown(browser.get(f"/admin/questions/{question_id}/"))
    assert "and rm -rf /" in page
    assert buttons(page) == [verdict for verdict in VERDICTS if verdict != "pool_allow_always"]
    assert 'id="do-always"' in page


def test_a_long_subject_hides_nothing_that_always_would_hold_for(ask: Ask, browser: Client) -> None:
    ask(subject="run " + "a" * WHOLE)
    assert buttons(shown(browser.get("/admin/"))) == []


def test_it_lists_what_waits_and_what_is_over(ask: Ask, browser: Client) -> None:
    act(browser, do=f"pool_allow_always {ask('Run make?')}")
    act(browser, do=f"pool_refuse {ask('Run rm?')}")
    ask("Run ls?")
    page = "/admin/control/question/?which="
    waits, ended = (shown(browser.get(f"{page}{which}")).split('id="result_list"')[1] for which in ("asked", "ended"))
    assert "Run ls?" in waits and "Run rm?" not in waits
    assert "Run rm?" in ended and "Run make?" in ended and "Run ls?" not in ended
    asked = Question.objects.get(title="Run ls?").pk
    assert browser.get(f"/admin/control/question/{asked}/change/")["Location"] == f"/admin/questions/{asked}/"


def test_it_finds_no_question_that_is_none(db: None, browser: Client) -> None:
    assert browser.get("/admin/questions/qst_x/").status_code == 404


def test_the_bell_rings_on_every_page_while_an_agent_waits(ask: Ask, browser: Client) -> None:
    assert bell(shown(browser.get("/admin/board/"))) == (False, 0)
    question_id = ask()
    ask("Which?", kind="question")
    assert bell(shown(browser.get("/admin/board/"))) == (True, 2)
    assert browser.get("/admin/bell/").json() == {"waiting": 2}
    act(browser, do=f"pool_refuse {question_id}")
    assert browser.get("/admin/bell/").json() == {"waiting": 1}


def test_it_reads_as_sentences(ask: Ask, browser: Client) -> None:
    question_id = ask()
    act(browser, do=f"pool_refuse {question_id}")
    text = re.sub(r"\s+", " ", re.sub("<[^>]*>", "", shown(browser.get("/admin/coordination/event/"))))
    assert "ana asks: Run make?" in text
    assert "Run make? was refused by local, for ana" in text


def test_a_childs_question_is_shown_with_its_parent(lead: PoolAgent, writer: PoolAgent, browser: Client) -> None:
    for agent_id in ("lead", "writer"):
        questions.ask(agent_id=agent_id, kind="permission", title=f"May {agent_id}?")
    page = shown(browser.get("/admin/attention/"))
    assert "writer, below lead, asks: May writer?" in page and "lead asks: May lead?" in page
    asked = Question.objects.get(agent_id="writer")
    assert f"/admin/pool/{lead.pk}/" in shown(browser.get(f"/admin/questions/{asked.pk}/"))
    listed = re.sub("<[^>]+>", "", shown(browser.get("/admin/control/question/")))
    assert "writer, below lead" in " ".join(listed.split())
    rows = dispatch.run(CONTROL, OPERATOR, "pool_list_questions", {})["data"]["questions"]
    assert [row["parent_agent_id"] for row in rows] == [None, "lead"]


def test_a_page_of_an_agent_has_its_questions_and_those_of_agents_below_it(
    lead: PoolAgent, writer: PoolAgent, browser: Client
) -> None:
    for agent_id in ("lead", "writer"):
        questions.ask(agent_id=agent_id, kind="permission", title=f"May {agent_id}?")
    page = shown(browser.get(f"/admin/pool/{lead.pk}/"))
    assert "It asks you" in page and "Agents below it ask you" in page and "May writer?" in page
    assert "Agents below it" not in shown(browser.get(f"/admin/pool/{writer.pk}/"))
    path = f"/admin/questions/{Question.objects.get(agent_id='lead').pk}/"
    assert "It is answered." in shown(browser.post(path, {"verdict": "pool_allow"}, follow=True))
    assert "was first" in shown(browser.post(path, {"verdict": "pool_refuse"}, follow=True))
    for wrong in ("", "pool_destroy_agent"):
        assert browser.post(path, {"verdict": wrong}).status_code == 200


def test_what_an_agent_asks_in_a_worktree_belongs_to_its_project(
    lead: PoolAgent, browser: Client, tmp_path: Path
) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "other").mkdir()
    shop, other = (
        do("workspace_resolve", project_root=str(tmp_path / name))["workspace_id"] for name in ("shop", "other")
    )
    do("agent_register", agent_id="lead")
    PoolWorktree.objects.create(
        worktree_id="tree_1", agent=lead, path="/trees/lead", git_dir="/trees/.git", branch="nexus/lead", base="0" * 40,
        origin=str((tmp_path / "shop").resolve()), origin_git_dir="/shop/.git", created_at=now(),
    )  # fmt: skip
    Question.objects.create(
        question_id="qst_1", agent_id="lead", pool_agent=lead, kind=QuestionKind.QUESTION, title="Which colour?",
        asked_at=now(), expires_at=now() + timedelta(hours=1),
    )  # fmt: skip
    there, elsewhere = (shown(browser.get(f"/admin/?workspace={each}")) for each in (shop, other))
    assert "lead asks: Which colour?" in there and "/admin/agents/lead/" in there
    assert "lead asks" not in elsewhere and "/admin/agents/lead/" not in elsewhere


def test_its_text_is_markdown_with_its_line_breaks_and_a_text_area_answers_it(ask: Ask, browser: Client) -> None:
    asked = ask("Which?", kind="question", detail="One of\n*these*:\n\n- red <script>alert(1)</script>\n- blue")
    page = browser.get(f"/admin/questions/{asked}/").content.decode()
    assert (
        "<p>One of<br>\n<em>these</em>:</p>" in page
        and "&lt;script&gt;alert(1)" in page
        and "<script>alert" not in page
    )
    assert re.search('<textarea id="words" name="words"[^>]* required', page) and buttons(page) == [
        "pool_answer",
        "pool_refuse",
    ]
    act(browser, do=f"pool_answer {asked}", asked="1", words="Blue,\nnot red.")
    assert "<p>Blue,<br>\nnot red.</p>" in browser.get(f"/admin/questions/{asked}/").content.decode()
    exact = ask("Run it?", detail="echo *a*\n  b")
    assert "echo *a*\n  b</pre>" in browser.get(f"/admin/questions/{exact}/").content.decode()
