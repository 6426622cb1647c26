"""What an agent changed, on the page of its work, and merged, kept or discarded by a person there."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.test import Client as Browser

from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.worktrees.lane import LANE_WORK
from nexus.core.background_work import work_once
from tests.control.playing import at_hand, pool, send, settle, take
from tests.git import git
from tests.pages import queries, shown

__all__ = ["at_hand"]


@pytest.fixture
def repository(runs_git: None, git_alone: None, committed: None, at_hand: Path) -> Path:
    """A repository with a commit; what is written is seen by the threads that git is waited for on."""
    (at_hand / "notes.txt").write_text("one\n")
    git(at_hand, "init", "--quiet")
    git(at_hand, "add", ".")
    git(at_hand, "commit", "--quiet", "-m", "Begin")
    return at_hand


@pytest.fixture
def smith(repository: Path) -> PoolAgent:
    """An agent with a worktree."""
    pool("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)
    return PoolAgent.objects.get()


@pytest.fixture
def place(smith: PoolAgent) -> Path:
    """The directory of the worktree."""
    return Path(smith.cwd)


def look(browser: Browser, agent: PoolAgent) -> str:
    return shown(browser.get(f"/admin/review/{agent.pk}/"))


def decide(browser: Browser, agent: PoolAgent, what: str, **form: str) -> str:
    row = PoolWorktree.objects.get(agent=agent)
    done = {"do": f"pool_worktree_{what}", "on": row.pk, "next": f"/admin/review/{agent.pk}/", **form}
    return shown(browser.post("/admin/act/", done, follow=True))


def words(page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.split("<main")[-1]))


def test_it_shows_what_was_changed_by_file_with_signs_and_elements_of_its_own(
    smith: PoolAgent, place: Path, browser: Browser
) -> None:
    assert "Nothing was changed." in look(browser, smith)
    (place / "notes.txt").write_text("two\n")
    (place / "new.txt").write_text("first\nsecond\n")
    (place / "empty").touch()
    page = look(browser, smith)
    assert "1 one 1 two" in re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert re.search(r'<del [^>]*data-side="old" data-line="1">.*<code>one </code></del><ins ', page)
    assert re.findall(r'nx-strong nx-lines">([\w.]+)</bdi>', page) == ["empty", "new.txt", "notes.txt"]
    assert "3 files" in page and "+2" in page and "−1" in page and ">new<" in page and "It is empty" in page


def test_the_agents_page_leads_to_it_and_says_what_became_of_it(
    smith: PoolAgent, place: Path, repository: Path, browser: Browser
) -> None:
    about = f"/admin/pool/{smith.pk}/"
    page = shown(browser.get(about))
    assert f"/admin/review/{smith.pk}/" in page and "nexus/smith" in page
    (place / "new.txt").write_text("new\n")
    send("smith")
    turn = take()
    assert "is running a turn" in words(look(browser, smith))
    assert "running a turn" in decide(browser, smith, "queue")
    settle(turn)
    assert "“nexus/smith” was put into the merge queue." in decide(browser, smith, "queue")
    work_once(LANE_WORK)
    assert (repository / "new.txt").read_text() == "new\n" and ">merged<" in shown(browser.get(about))
    assert "there is nothing to merge" in decide(browser, smith, "queue"), "the agent may change more"
    pool("pool_destroy_agent", agent_id="smith")
    assert "pool_worktree_queue" not in look(browser, smith)
    decide(browser, smith, "discard", asked="1")
    page = shown(browser.get(about))
    assert ">discarded<" in page and f"/admin/review/{smith.pk}/" not in page
    page = look(browser, smith)
    assert ">discarded<" in page and "pool_worktree_" not in page


def test_it_tells_the_files_in_conflict_and_merges_nothing_then(
    smith: PoolAgent, place: Path, repository: Path, browser: Browser
) -> None:
    (place / "notes.txt").write_text("mine\n")
    (place / "new.txt").write_text("new\n")
    (repository / "notes.txt").write_text("theirs\n")
    git(repository, "commit", "--quiet", "--all", "-m", "Theirs")
    decide(browser, smith, "queue")
    work_once(LANE_WORK)
    page = words(look(browser, smith))
    assert "changed the same places of 'notes.txt'" in page
    assert (repository / "notes.txt").read_text() == "theirs\n" and not (repository / "new.txt").exists()
    assert git(repository, "status", "--porcelain") == ""


def test_it_keeps_what_lay_there_and_asks_before_it_throws_away_what_was_not_merged(
    smith: PoolAgent, place: Path, browser: Browser
) -> None:
    (place / "new.txt").write_text("precious\n")
    page = decide(browser, smith, "keep")
    assert "“nexus/smith” was kept" in page and ">kept<" in page
    assert git(place, "status", "--porcelain") == "" and git(place, "show", "nexus/smith:new.txt") == "precious"
    assert "Discard…" not in look(browser, smith) and "once the agent has ended" in words(look(browser, smith))
    assert "end it first" in decide(browser, smith, "discard", asked="1", changes_too="on")
    pool("pool_destroy_agent", agent_id="smith")
    assert "Also discard changes that nobody merged" in decide(browser, smith, "discard")
    assert "holds unmerged changes" in decide(browser, smith, "discard", asked="1") and (place / "new.txt").exists()
    page = decide(browser, smith, "discard", asked="1", changes_too="on")
    assert "“nexus/smith” was discarded" in page and not place.exists()


def test_it_decides_about_the_tree_of_its_own_agent_alone(
    smith: PoolAgent, place: Path, repository: Path, browser: Browser
) -> None:
    (place / "old.txt").write_text("old\n")
    pool("pool_destroy_agent", agent_id="smith")
    pool("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)
    later = PoolAgent.objects.living().get()
    (Path(later.cwd) / "later.txt").write_text("later\n")
    assert "old.txt" in look(browser, smith) and "later.txt" not in look(browser, smith)
    decide(browser, smith, "queue")
    work_once(LANE_WORK)
    assert (repository / "old.txt").exists() and not (repository / "later.txt").exists()
    decide(browser, smith, "discard", asked="1")
    assert not place.exists() and Path(later.cwd).exists()


def test_it_shows_hostile_names_and_contents_as_the_text_they_are(
    smith: PoolAgent, place: Path, browser: Browser
) -> None:
    for name in ("<script>alert(1)</script>"[:-9], "\u202egpj.exe", "a\nb", '"quoted"', "ümlaut", "-rf", "{{ 7*7 }}"):
        (place / name).write_text("<img src=x onerror=alert(1)>\n\u202e{% csrf_token %}\r\n")
    (place / "bytes").write_bytes(bytes(range(256)))
    (place / "latin").write_bytes(b"\xe4\xf6\n")
    (place / "link").symlink_to("/etc/passwd")
    page = browser.get(f"/admin/review/{smith.pk}/").content.decode()
    assert "<script>alert" not in page and "<img src=x" not in page and "\u202e" not in page
    said = html.unescape(page)
    for name in ("<script>alert(1)", "⟨U+202E⟩gpj.exe", '"quoted"', "ümlaut", "-rf", "{{ 7*7 }}", "/etc/passwd"):
        assert name in said, name
    assert "Its content is not text" in page and "root:" not in page and "��" in said


def test_it_shows_a_part_of_what_is_too_much_and_names_the_rest(
    smith: PoolAgent, place: Path, browser: Browser
) -> None:
    (place / "a-long.txt").write_text("word\n" * 100_000)
    (place / "after.txt").write_text("after\n")
    page = look(browser, smith)
    assert page.count("<ins ") == 999 and len(page) < 400_000
    assert "the rest was not read" in page and "lines more" in page
    assert "1 more, of which only the names are shown" in page and "after.txt" in page


def test_it_says_that_a_directory_is_gone(smith: PoolAgent, place: Path, browser: Browser) -> None:
    place.rename(place.parent / "elsewhere")
    page = look(browser, smith)
    assert "WORKTREE_REFUSED" in page and "Traceback" not in page


def test_it_answers_404_where_there_is_no_worktree(smith: PoolAgent, at_hand: Path, browser: Browser) -> None:
    pool("pool_create_agent", agent_id="bare", cwd=str(at_hand), worktree=False)
    agent = PoolAgent.objects.get(agent_id="bare")
    assert f"/admin/review/{agent.pk}/" not in shown(browser.get(f"/admin/pool/{agent.pk}/"))
    for key in (agent.pk, "pool_x"):
        assert browser.get(f"/admin/review/{key}/").status_code == 404


def test_it_asks_no_more_queries_of_more_files(smith: PoolAgent, place: Path, browser: Browser) -> None:
    (place / "0").write_text("x")
    few = queries(lambda: look(browser, smith))
    for number in range(30):
        (place / f"{number}").write_text("x\n")
    assert queries(lambda: look(browser, smith)) == few


def act(browser: Browser, **form: str) -> str:
    return words(shown(browser.post("/admin/act/", {"next": "/admin/attention/", **form}, follow=True)))


def test_a_left_worktree_is_merged_kept_or_discarded_where_it_is_listed(
    smith: PoolAgent, place: Path, repository: Path, browser: Browser
) -> None:
    (place / "notes.txt").write_text("mine\n")
    (repository / "notes.txt").write_text("theirs\n")
    git(repository, "commit", "--quiet", "--all", "-m", "Theirs")
    assert "Worktrees to merge" not in shown(browser.get("/admin/"))
    pool("pool_destroy_agent", agent_id="smith")
    row = PoolWorktree.objects.get()
    assert f"/admin/review/{smith.pk}/" in shown(browser.get("/admin/"))
    assert "smith left nexus/smith" in (page := words(shown(browser.get("/admin/attention/"))))
    assert all(label in page for label in ("Put into the merge queue", "Keep", "Discard…"))
    assert f"“{row.branch}” was put into the merge queue." in act(browser, do=f"pool_worktree_queue {row.pk}")
    work_once(LANE_WORK)
    page = words(shown(browser.get("/admin/attention/")))
    assert f"{row.branch} of smith came back from the merge queue of main" in page
    assert "Also discard changes that nobody merged" in act(browser, do=f"pool_worktree_discard {row.pk}")
    said = act(browser, do="pool_worktree_discard", on=row.pk, asked="1")
    assert "holds unmerged changes" in said
    assert place.is_dir()
    said = act(browser, do="pool_worktree_discard", on=row.pk, asked="1", changes_too="on")
    assert f"“{row.branch}” was discarded." in said and not place.exists()
    assert "Worktrees to merge" not in shown(browser.get("/admin/"))


def test_what_takes_minutes_is_done_beside_the_other_pages(smith: PoolAgent, place: Path, browser: Browser) -> None:
    (place / "new.txt").write_text("new\n")
    row = PoolWorktree.objects.get()
    answer = browser.post("/admin/act/", {"do": f"pool_worktree_keep {row.pk}", "next": "/admin/attention/"})
    assert (answer.status_code, answer["Location"]) == (307, "/admin/act/minutes/")
    assert "was kept" in act(browser, do=f"pool_worktree_keep {row.pk}")
