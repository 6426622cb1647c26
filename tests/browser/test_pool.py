"""The pool in a browser: an agent is created, sent work, watched, stopped and ended; whatever it is called and says."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.acceptance.hub import Hub
from tests.acceptance.pool import until
from tests.browser import scene
from tests.browser.conftest import live, watch
from tests.git import git

RUNNERS = r"""
default = "play"

[runners.play]
kind = "rehearsal"

[[runners.play.script]]
when = "slow"
wait = 600

[[runners.play.script]]
when = "harm"
say = '''<script>window.pwned=1</script> <img src=x onerror="window.pwned=2"> [x](javascript:window.pwned=3)'''
[[runners.play.script.call]]
operation = "coordination.agent_list"
arguments = {"<svg onload='window.pwned=4'>" = "{{ constructor }}"}

[[runners.play.script]]
say = "**Read**: {content}"
[[runners.play.script.call]]
operation = "coordination.agent_list"
arguments = {}
"""
POOL = "/admin/control/poolagent/"
WORD = "w" * 3_000
HARM = "<img src=x onerror=window.pwned=5>"


@pytest.fixture(scope="module")
def runners() -> str:
    return RUNNERS


def open_agent(page: Page, agent_id: str) -> None:
    page.goto(POOL)
    page.get_by_role("link", name=agent_id, exact=True).click()
    expect(page.get_by_role("heading", name=f"Agent {agent_id}")).to_be_visible()
    live(page)


def open_diff(page: Page, agent_id: str) -> str:
    """Open the page of an agent's work, and return its address."""
    open_agent(page, agent_id)
    address = page.get_by_role("link", name="What it changed").get_attribute("href") or ""
    watch(page, address)
    return address


def begin(repository: Path) -> None:
    """Make a repository of a directory's files."""
    git(repository, "init", "--quiet")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Begin")


def test_it_creates_an_agent_and_shows_its_turn_as_it_goes(page: Page, hub: Hub) -> None:
    page.goto(POOL)
    page.get_by_role("link", name="Add pool agent").click()
    page.get_by_label("Name (with").fill("walker")
    page.get_by_label("Works there in").select_option("the directory itself")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Nothing was said yet")).to_be_visible()
    page.get_by_label("Message (Markdown)").fill("the *files*")
    page.get_by_role("button", name="Send").click()
    answer = page.locator(".nx-said > li").last
    expect(answer.locator("strong")).to_have_text("Read")
    expect(page.locator("#about")).to_contain_text("in 1 turn")
    result = page.locator(".nx-said details").last
    expect(result.locator("pre")).to_be_hidden()
    result.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(result.locator("pre")).to_be_visible()


def test_it_appends_what_is_said_meanwhile_and_keeps_what_is_typed(page: Page, pool: scene.Does) -> None:
    pool("pool_create_agent", agent_id="talker", worktree=False)
    open_agent(page, "talker")
    box = page.get_by_label("Message (Markdown)")
    box.fill("half a sen")
    for number in range(3):
        pool("pool_send", agent_id="talker", content=f"part {number}")
    expect(page.locator(".nx-said > li")).to_have_count(12)
    expect(page.locator("#about")).to_contain_text("in 3 turns")
    expect(box).to_have_value("half a sen")
    ids = page.locator(".nx-said > li").evaluate_all("rows => rows.map((row) => row.id)")
    assert ids == [f"e-{number}" for number in range(12)]


@pytest.fixture
def smith(hub: Hub, pool: scene.Does, tmp_path: Path) -> tuple[str, Path, Path]:
    """An agent with changes in a worktree: its name, its directory and the repository."""
    repository, name = tmp_path / "repository", f"smith-{secrets.token_hex(4)}"
    repository.mkdir()
    (repository / "notes.txt").write_text("one\n")
    (repository / "total.py").write_text("".join(f"line_{number} = {number}\n" for number in range(9)))
    begin(repository)
    pool("pool_create_agent", agent_id=name, cwd=str(repository), worktree=True)
    tree = Path(pool("pool_worktree_diff", agent_id=name)["path"])
    (tree / "notes.txt").write_text("two\n")
    lines = (tree / "total.py").read_text()
    (tree / "total.py").write_text(lines.replace("= 4", '= sum(["4"])\n# ' + "long " * 40 + "\nmore = None"))
    (tree / f"{HARM}.txt").write_text(f"{HARM}\n{WORD}\n\u202e\n")
    (tree / "picture").write_bytes(bytes(range(256)))
    return name, tree, repository


def test_a_diff_stands_in_one_column_or_two_as_one_chose_and_as_fits(
    page: Page, findings: Callable[..., list[str]], smith: tuple[str, Path, Path]
) -> None:
    address = open_diff(page, smith[0])
    file = page.locator(".nx-file", has_text="total.py")
    removed, added = file.locator("del"), file.locator("ins")
    box = "each => { const at = each.getBoundingClientRect(); return [at.left, at.top]; }"
    assert removed.evaluate(box)[0] == added.first.evaluate(box)[0]
    page.get_by_role("link", name="Side by side").click()
    expect(file.locator(".nx-split")).to_be_visible()
    watch(page, address)
    (left, top), (right, beside), (below, _) = (line.evaluate(box) for line in (removed, added.first, added.last))
    assert left < right == below and top == beside
    expect(file.locator("ins mark").first).to_be_visible()
    expect(file.locator("ins .c")).to_contain_text("# long")
    page.set_viewport_size({"width": 390, "height": 900})
    assert removed.evaluate(box)[0] == added.first.evaluate(box)[0]
    expect(page.get_by_role("link", name="Side by side")).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert findings(page, "color-contrast") == []
    page.set_viewport_size({"width": 1280, "height": 900})
    for _ in range(2):  # the key goes from what the system has to light, then to dark
        page.keyboard.press("Control+e")
    page.wait_for_function("document.documentElement.classList.contains('dark')")
    page.wait_for_function("!document.getAnimations().some((moving) => moving instanceof CSSTransition)")
    assert findings(page) == []
    added.last.evaluate("line => getSelection().selectAllChildren(line)")
    assert page.evaluate("String(getSelection())").strip() == "more = None", "without number and sign"


def test_a_key_goes_to_the_next_file_and_an_address_opens_a_folded_one(
    page: Page, smith: tuple[str, Path, Path]
) -> None:
    open_diff(page, smith[0])
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator("#file-2 > summary")).to_be_focused()
    page.keyboard.press("p")
    expect(page.locator("#file-1 > summary")).to_be_focused()
    page.locator("#file-1 > summary").click()
    expect(page.locator("#file-1")).not_to_have_attribute("open", "")
    page.get_by_role("navigation", name="Changed files").get_by_role("link").first.click()
    expect(page.locator("#file-1")).to_have_attribute("open", "")


def test_an_operator_adds_a_rule_and_takes_it_back(page: Page, findings: Callable[..., list[str]]) -> None:
    page.goto("/admin/control/permissionrule/add/")
    page.get_by_label("Effect").select_option("deny")
    page.get_by_label("Kind").select_option("run")
    page.get_by_label("Pattern").fill("shred *")
    page.get_by_label("Scope").select_option("agent")
    page.get_by_label("Name").fill("nobody-yet")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#result_list")).to_contain_text("run shred *")
    page.goto("/admin/control/permissionrule/")
    assert findings(page) == []
    page.locator("#result_list tbody a").first.click()
    page.get_by_role("button", name="Take back").click()
    page.goto("/admin/control/permissionrule/")
    expect(page.locator("#rows")).not_to_contain_text("shred")


def test_without_scripts_one_sends_ends_and_discards(
    browser: Browser, hub: Hub, pool: scene.Does, smith: tuple[str, Path, Path]
) -> None:
    name, tree, _ = smith
    with browser.new_context(base_url=hub.url, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(POOL)
        page.goto(page.get_by_role("link", name=name, exact=True).get_attribute("href") or "")
        page.get_by_label("Message (Markdown)").fill("the *files*")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#about")).to_contain_text(re.compile(r"waits|at work|in\s+1 turn"))
        page.get_by_role("button", name="End…").click()
        page.get_by_role("button", name="End", exact=True).click()
        expect(page.locator("#about")).to_contain_text("ended")
        page.get_by_role("link", name="What it changed").click()
        page.get_by_role("button", name="Discard…").click()
        page.get_by_label("Also discard changes that nobody merged").check()
        page.get_by_role("button", name="Discard").click()
        expect(page.get_by_text("was discarded")).to_be_visible()
    assert not tree.exists()


@pytest.mark.parametrize("widths", [(400, 1280), pytest.param((400, 2560, 1280), marks=pytest.mark.long)])
def test_it_is_readable_fits_every_window_and_runs_nothing_that_an_agent_says(
    page: Page,
    pool: scene.Does,
    findings: Callable[..., list[str]],
    smith: tuple[str, Path, Path],
    widths: tuple[int, ...],
) -> None:
    """Each page in one theme, in turn the dark and the light one; in all widths in both: it changes only colours."""
    (smith[1] / "very-long.txt").write_text("word\n" * 60_000)
    pool("ask_operator", agent_id=smith[0], kind="permission", title=HARM, detail=WORD[:200], timeout_seconds=0)
    page.goto(POOL)
    forge = page.get_by_role("link", name=smith[0], exact=True).get_attribute("href") or ""
    name, child = f"{secrets.token_hex(4)}{'x' * 54}", secrets.token_hex(4)
    pool("pool_create_agent", agent_id=name, preset="trusted", worktree=False)
    pool("pool_create_agent", agent_id=child, preset="worker", parent_agent_id=name)
    for content in ("harm", WORD):
        pool("pool_send", agent_id=name, content=content)
    pool("pool_send", agent_id=child, content="slow " + WORD, timeout_seconds=0)
    page.goto(POOL)
    link = page.get_by_role("link", name=name, exact=True).get_attribute("href") or ""
    found: list[str] = []
    too_wide = []
    paths = (
        POOL,
        link,
        forge,
        forge.replace("/pool/", "/review/"),
        "/admin/control/poolagent/add/",
    )
    for number, path in enumerate((*paths, f"{POOL}add/?parent={name}", "/admin/control/machine/", "/admin/")):
        page.emulate_media(color_scheme="light" if number % 2 and len(widths) == 2 else "dark")
        page.set_viewport_size({"width": 400, "height": 900})
        watch(page, path)
        page.locator("main details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                too_wide.append((path, width))
        found += [f"{path} {problem}" for problem in findings(page)]
        if len(widths) > 2:
            page.keyboard.press("Control+e")
            page.wait_for_function("!document.getAnimations().some((moving) => moving instanceof CSSTransition)")
            found += [f"{path} {problem}" for problem in findings(page, "color-contrast")]
        assert page.evaluate("window.pwned") is None, path
    assert found == [] and too_wide == []


def tab_to(page: Page, name: str) -> None:
    """Go on by Tab, from wherever one is, to what is called so."""
    called = "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent).trim()"
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate(called).startswith(name):
            return
    raise AssertionError(f"Tab does not come to {name}")


def test_by_keys_alone_one_answers_sends_stops_and_merges(
    page: Page, pool: scene.Does, smith: tuple[str, Path, Path]
) -> None:
    name, _, repository = smith
    about = {"kind": "permission", "subject": "run make", "detail": "It builds.", "timeout_seconds": 0}
    pool("ask_operator", agent_id=name, title="Run make by keys?", **about)
    watch(page, "/admin/")
    tab_to(page, f"Allow once {name} asks: Run make by keys?")
    page.keyboard.press("Enter")
    expect(page.get_by_text("“Run make by keys?” was allowed, this once.")).to_be_visible()
    open_agent(page, name)
    page.get_by_label("Message (Markdown)").focus()
    page.keyboard.type("be slow")
    tab_to(page, "Send")
    page.keyboard.press("Enter")
    expect(page.locator("#now")).to_contain_text("at work")
    page.get_by_role("button", name="Send").focus()
    tab_to(page, "Stop")
    assert page.evaluate("document.activeElement.id") == "stop-now"  # it is the next one
    page.keyboard.press("Enter")
    expect(page.locator("#about")).to_contain_text("idle")
    expect(page.locator("#stop-now")).to_have_count(0)
    tab_to(page, "What it changed")
    page.keyboard.press("Enter")
    expect(page.locator("del code").first).to_have_text("one")
    tab_to(page, "Put into the merge queue")
    page.keyboard.press("Enter")
    expect(page.get_by_text("was put into the merge queue.")).to_be_visible()
    until(lambda: (repository / "notes.txt").read_text() == "two\n")


def test_while_turns_run_it_leaves_alone_what_did_not_change_and_keeps_the_place(page: Page, pool: scene.Does) -> None:
    pool("pool_create_agent", agent_id="calm", preset="trusted", worktree=False)
    pool("pool_create_agent", agent_id="calm-1", preset="worker", parent_agent_id="calm")
    open_agent(page, "calm")
    pool("pool_create_agent", agent_id="calm-2", preset="worker", parent_agent_id="calm")
    expect(page.locator("#children")).to_contain_text("2 living")
    page.evaluate("document.querySelector('.nx-say').dataset.seen = '1'")
    pool("pool_create_agent", agent_id="calm-3", preset="worker", parent_agent_id="calm")
    expect(page.locator("#children")).to_contain_text("3 living")
    assert page.locator(".nx-say[data-seen]").count() == 1
    page.set_viewport_size({"width": 1280, "height": 400})
    watch(page, POOL)
    row = page.locator("#result_list tr").filter(has=page.get_by_role("link", name="calm-3", exact=True))
    row.locator("summary").click()
    place = page.evaluate("window.scrollTo(0, 200); window.scrollY")
    assert place > 0
    pool("pool_send", agent_id="calm-3", content="be slow", timeout_seconds=0)
    expect(row).to_contain_text("at work")
    assert page.evaluate("window.scrollY") == place
    expect(row.locator("details[open]")).to_have_count(1)


def test_a_person_reviews_by_keys_and_at_390_pixels(page: Page, pool: scene.Does, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("".join(f"line = {n}\n" for n in range(40)))
    begin(tmp_path)
    pool("pool_create_agent", agent_id="reviewed", cwd=str(tmp_path), worktree=True)
    place = Path(pool("pool_worktree_diff", agent_id="reviewed")["path"])
    (place / "main.py").write_text("".join(f"line = {n if n != 20 else 'x' * 200}\n" for n in range(40)))
    (place / "new.md").write_text("# New\n")
    pool("pool_send", agent_id="reviewed", content="Do it.", timeout_seconds=30)
    page.goto("/admin/review/")
    page.get_by_role("link", name="Do it.").click()
    expect(page.get_by_role("button", name="Approve")).to_be_in_viewport()
    page.get_by_role("link", name="Ask for changes").click()
    expect(page.get_by_role("textbox", name="Comment")).to_be_focused()
    expect(page.get_by_role("region", name="What the agent says")).to_contain_text("Read: Do it.")
    live(page)  # before that, a line's number is a link
    page.locator("ins[data-line='21'] > a").click()
    page.get_by_role("textbox", name="Comment").fill("Too long.")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.locator("ins[data-line='21'] .nx-comment")).to_contain_text("Too long.")
    live(page)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.get_by_text("more_horiz")).to_be_hidden()  # the theme's menu of actions is empty here
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("c")
    expect(page.get_by_role("textbox", name="Comment")).to_be_focused()
    page.keyboard.type("And a test.")
    page.get_by_role("button", name="Add the comment").click()
    expect(page.locator("#comments .nx-comment")).to_have_count(2)
    live(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    expect(page.locator(".nx-comment").first).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    expect(page.get_by_text("sent back with the comments")).to_be_visible()
    pool("pool_send", agent_id="reviewed", content="Done?", timeout_seconds=30)
    page.goto("/admin/review/")
    page.get_by_role("link", name="Do it.").click()
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    live(page)
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url("/admin/control/worktreemerge/")
