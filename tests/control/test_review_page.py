"""The pages of a review: what waits, and one piece of work, which a person comments on and decides about."""

from __future__ import annotations

import json
import re
from pathlib import Path

from django.test import Client as Browser

from nexus.control.models import PoolAgent, PoolWorktree, ReviewComment, Turn
from nexus.control.toolset import CONTROL
from nexus.core.operations import dispatch
from tests.control.played_git import played_git, repository
from tests.control.test_reviews import Make, as_agent, make, works
from tests.control.test_worktrees import pool
from tests.pages import shown

__all__ = ["make", "played_git", "pool", "repository"]


def address(agent_id: str = "smith") -> str:
    return f"/admin/review/{PoolAgent.objects.get(agent_id=agent_id).pk}/"


def act(browser: Browser, operation: str, subject: str, **more: str) -> str:
    form = {"do": f"{operation} {subject}", "next": address(), **more}
    return shown(browser.post("/admin/act/", form, follow=True))


def test_a_person_comments_sends_and_approves(committed: None, make: Make, browser: Browser) -> None:
    place = make("smith", notes="<b>two</b>\n")
    strange = "a\r\nb.txt"
    (place / strange).write_text("1\n")
    page = shown(browser.get("/admin/review/"))
    assert address() in page and "nexus/smith" in page and "1 file" in page
    page = shown(browser.get(address()))
    assert page.index("data-line=") < page.index("It is done.") < page.index('id="about-title"')  # the diff first
    assert "pool_send_comments" not in page and not re.search('id="approve"[^>]* disabled', page)
    seen = page.split('name="seen" value="')[1].split('"')[0]
    form = {"seen": seen, "text": "Why\r\n<i>so</i>?", "path": '"notes.txt"', "line": "1", "side": "new"}
    answer = browser.post(address(), form)
    assert answer["Location"].startswith(f"{address()}#comment_"), shown(answer)
    about = {"seen": seen, "text": "And this", "path": json.dumps(strange), "line": "", "side": "new"}
    assert browser.post(address(), about).status_code == 302
    first, second = ReviewComment.objects.order_by("pk")
    assert (first.text, first.first_line, second.path) == ("Why\n<i>so</i>?", 1, strange)
    page = browser.get(address()).content.decode()
    assert page.count("&lt;i&gt;so") >= 2 and "<i>so" not in page and "<b>two" not in page
    assert "send 2 comments" in page and re.search('id="approve"[^>]* disabled', page)
    assert "removed" in act(browser, "pool_remove_comment", second.pk)
    tree = PoolWorktree.objects.get()
    assert "not sent yet" in shown(browser.post(f"{address()}approve/", {"seen": seen}, follow=True))
    assert "sent back" in act(browser, "pool_send_comments", tree.pk)
    assert Turn.objects.filter(source="review").count() == 1
    works("smith")
    said = {"comment_id": first.pk, "outcome": "done", "words": "renamed"}
    assert dispatch.run(CONTROL, as_agent("smith"), "pool_review_answer", said)["ok"]
    page = shown(browser.get(address()))
    assert "renamed" in page and ">done<" in page
    (place / "notes.txt").write_text("three\n")
    assert "changed since" in shown(browser.post(f"{address()}approve/", {"seen": seen}, follow=True))
    seen = shown(browser.get(address())).split('name="seen" value="')[1].split('"')[0]
    assert "It waits in the merge queue" in shown(browser.post(f"{address()}approve/", {"seen": seen}, follow=True))
    assert "Nothing waits for review" in shown(browser.get("/admin/review/"))


def test_a_refused_comment_is_shown_with_what_was_typed(committed: None, make: Make, browser: Browser) -> None:
    make("smith", notes="two\n")
    form = {"seen": "", "text": "My words", "path": '"notes.txt"', "line": "99", "side": "new"}
    page = shown(browser.post(address(), form))
    assert "does not show these lines" in page and "My words" in page
    stale = shown(browser.post(address(), {**form, "line": "1", "seen": "abc"}))
    assert "changed since" in stale and "My words" in stale
    assert not ReviewComment.objects.exists()


def test_abandoning_asks_once_more(committed: None, make: Make, browser: Browser) -> None:
    make("smith", notes="two\n")
    tree = PoolWorktree.objects.get()
    assert "abandoned" not in act(browser, "pool_abandon_work", tree.pk)
    assert PoolAgent.objects.get().ended_at is None
    act(browser, "pool_abandon_work", tree.pk, asked="1")
    assert not Path(tree.path).exists()
    assert browser.get(address()).status_code == 200
