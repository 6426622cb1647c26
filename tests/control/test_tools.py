"""What an agent reads, writes, finds and runs: where its permissions hold, and nowhere else."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.control.models import PoolAgent
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners.tools import files, searching
from nexus.control.runners.tools.files import ToolFailed, ToolRefused
from nexus.core.foreign_files import Bounds

SECRET = "not for agents"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory beside the agent's, with a secret."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_text(SECRET)
    return place


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """The agent's directory."""
    place = tmp_path / "cwd"
    (place / "out").mkdir(parents=True)
    (place / "src" / "deep").mkdir(parents=True)
    (place / "notes.txt").write_text("one\ntwo\nthree")
    (place / "src" / "a.py").write_text("import os\n# two\n")
    (place / "src" / "deep" / "b.py").write_text("two = 2\n")
    return place


@pytest.fixture
def may(cwd: Path) -> Permissions:
    """Reads below cwd, writes below cwd/out."""
    return Permissions(Preset.SANDBOXED, str(cwd), (str(cwd / "out"),))


def listing(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def test_it_reads_and_writes_and_edits(may: Permissions, cwd: Path) -> None:
    assert files.read_text(may, "notes.txt") == "one\ntwo\nthree"
    assert files.read_text(may, str(cwd / "notes.txt"), line=2, limit=1) == "two"
    assert files.read_text(may, "notes.txt", line=9) == ""
    files.write_text(may, "out/new/deep/a.txt", "grüße\r\nzwei")
    assert files.read_text(may, "out/new/deep/a.txt") == "grüße\r\nzwei"
    assert files.edit_text(may, "out/new/deep/a.txt", "zwei", "drei") == 1
    assert (cwd / "out/new/deep/a.txt").read_bytes() == "grüße\r\ndrei".encode()
    assert files.list_directory(may) == (["notes.txt", "out/", "src/"], True)
    (cwd / "latest").symlink_to(cwd / "src")  # which stays inside
    assert "two" in files.read_text(may, "latest/a.py")


async def test_files_that_do_not_answer_hold_up_their_own_family_alone(db: None, may: Permissions) -> None:
    """As on a mount whose server is gone."""
    answers, ann = threading.Event(), PoolAgent(pk="ann")
    family = [ann, *(PoolAgent(pk=f"child-{number}", parent=ann) for number in range(99))]
    stuck = [asyncio.create_task(files.on_disk(agent, answers.wait)) for agent in family]
    try:
        await asyncio.sleep(0)
        read = files.on_disk(PoolAgent(pk="bob"), partial(files.read_text, may, "notes.txt"))
        assert await asyncio.wait_for(read, files.SECONDS / 2) == "one\ntwo\nthree"
    finally:
        answers.set()
    assert all(await asyncio.gather(*stuck))


def test_it_replaces_a_file_in_one_step_and_keeps_its_mode(may: Permissions, cwd: Path, outside: Path) -> None:
    script, linked = cwd / "out" / "go.sh", cwd / "out" / "linked"
    script.write_text("old")
    script.chmod(0o750)
    linked.hardlink_to(outside / "secret")
    with script.open() as reader:
        files.write_text(may, "out/go.sh", "new")
        assert reader.read() == "old"
    assert script.stat().st_mode & 0o777 == 0o750
    files.write_text(may, "out/linked", "mine")
    assert (outside / "secret").read_text() == SECRET
    assert listing(cwd / "out") == ["go.sh", "linked"]


def test_it_edits_only_what_stands_there_once(may: Permissions, cwd: Path) -> None:
    (cwd / "out" / "a").write_text("x y x")
    for old in ("z", "x"):
        with pytest.raises(ToolFailed):
            files.edit_text(may, "out/a", old, "new")
    assert files.edit_text(may, "out/a", "x", "z", everywhere=True) == 2
    assert (cwd / "out" / "a").read_text() == "z y z"


READ_PATHS = [
    "../outside/secret",
    "link/secret",
    "filelink",
    "out/../../outside/secret",
    "{outside}/secret",
    "/etc/passwd",
]
WRITE_PATHS = [
    "../outside/new",
    "link/new",
    "filelink",
    "notes.txt",
    "src/new",
    "out/../new",
    "out/up/new",
    "{outside}/x",
]


@pytest.mark.parametrize("path", READ_PATHS)
def test_it_reads_nothing_outside(may: Permissions, cwd: Path, outside: Path, path: str) -> None:
    (cwd / "link").symlink_to(outside)
    (cwd / "filelink").symlink_to(outside / "secret")
    named = path.format(outside=outside)
    reads: list[Callable[[], Any]] = [
        lambda: files.read_text(may, named),
        lambda: files.list_directory(may, str(Path(named).parent)) if "link/" in named else files.read_text(may, named),
        lambda: searching.grep(may, "agents", named),
        lambda: searching.glob(may, "*", named),
    ]
    for read in reads:
        with pytest.raises(ToolRefused) as refused:
            read()
        assert refused.value.rule == "cwd"


@pytest.mark.parametrize("path", WRITE_PATHS)
def test_it_writes_nothing_but_where_it_was_allowed(may: Permissions, cwd: Path, outside: Path, path: str) -> None:
    (cwd / "link").symlink_to(outside)
    (cwd / "filelink").symlink_to(outside / "secret")
    (cwd / "out" / "up").symlink_to(cwd)
    before = listing(cwd) + listing(outside)
    with pytest.raises(ToolRefused) as refused:
        files.write_text(may, path.format(outside=outside), "mine")
    assert refused.value.rule == "write_paths"
    assert listing(cwd) + listing(outside) == before
    assert (outside / "secret").read_text() == SECRET


def test_the_hubs_home_and_database_are_no_agents_though_its_directory_holds_them(
    may: Permissions, cwd: Path, configure: Callable[..., None]
) -> None:
    home = cwd / ".nexus"
    configure(home=home, db_path=cwd / "nexus.db")
    (home / "logs").mkdir(parents=True)
    (home / "rpc.token").write_text(SECRET)
    (cwd / "latest").symlink_to(home)
    everywhere = replace(may, preset=Preset.TRUSTED, write_paths=(may.cwd,))
    acts: list[Callable[[], Any]] = [
        lambda: files.read_text(everywhere, ".nexus/rpc.token"),
        lambda: files.read_text(everywhere, "latest/rpc.token"),
        lambda: files.list_directory(everywhere, ".nexus"),
        lambda: files.edit_text(everywhere, ".nexus/rpc.token", SECRET, "mine"),
        lambda: files.write_text(everywhere, ".nexus/runners.toml", "mine"),
        lambda: files.write_text(everywhere, "nexus.db-wal", "mine"),
        lambda: searching.grep(everywhere, ".", ".nexus/rpc.token"),
        lambda: searching.glob(everywhere, "**", "latest/logs"),
    ]
    before = listing(cwd)
    for act in acts:
        with pytest.raises(ToolRefused) as refused:
            act()
        assert refused.value.rule == "home"
    assert searching.grep(everywhere, "agents") == ([], None)
    assert searching.glob(everywhere, "**/rpc.token") == ([], None)
    assert listing(cwd) == before and (home / "rpc.token").read_text() == SECRET


def test_an_agent_whose_directory_lies_in_the_hubs_home_has_that(
    may: Permissions, cwd: Path, configure: Callable[..., None]
) -> None:
    configure(home=cwd.parent)
    assert files.read_text(may, "notes.txt") == "one\ntwo\nthree"
    assert searching.grep(may, "^t.o", "src") == (["deep/b.py:1: two = 2"], None)
    files.write_text(may, "out/new", "text")


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", "out/.GIT/config", "out/deep/.git", "link/config", "out/HEAD"]
)
def test_it_writes_in_no_git_directory_that_no_write_path_names_and_makes_none(
    may: Permissions, cwd: Path, path: str
) -> None:
    everywhere = replace(may, write_paths=(str(cwd),))
    (cwd / "out" / ".git").mkdir()
    (cwd / "link").symlink_to("out/.git")
    with pytest.raises(ToolRefused) as refused:
        files.write_text(everywhere, path, "mine")
    assert refused.value.rule == "git"
    opened = replace(may, write_paths=(str(cwd), str(cwd / "out" / ".git")))
    files.write_text(opened, "out/.git/config", "mine")
    assert (cwd / "out" / ".git" / "config").read_text() == "mine"


def test_it_refuses_a_tool_that_was_taken_away_and_a_worker_that_writes(may: Permissions) -> None:
    acts: dict[str, Callable[[Permissions], Any]] = {
        "read_file": lambda may: files.read_text(may, "notes.txt"),
        "list_directory": files.list_directory,
        "glob": lambda may: searching.glob(may, "*"),
        "grep": lambda may: searching.grep(may, "two"),
        "write_file": lambda may: files.write_text(may, "out/a", "b"),
        "edit_file": lambda may: files.edit_text(may, "out/a", "b", "c"),
    }
    for tool, act in acts.items():
        with pytest.raises(ToolRefused) as refused:
            act(Permissions(may.preset, may.cwd, may.write_paths, frozenset((tool,))))
        assert refused.value.rule == "tools"
    with pytest.raises(ToolRefused):
        files.write_text(Permissions(Preset.WORKER, may.cwd, may.write_paths), "out/a", "b")


BAD_FILES: list[Callable[[Path], object]] = [
    lambda place: os.mkfifo(place),
    lambda place: place.mkdir(),
    lambda place: place.write_bytes(b"\xff\xfe binary"),
    lambda place: place.write_bytes(b"nul \0"),
    lambda place: place.symlink_to(place),
    lambda place: None,
]


@pytest.mark.parametrize("make", BAD_FILES, ids=["fifo", "directory", "latin", "nul", "loop", "absent"])
def test_it_tells_why_a_file_cannot_be_read_and_hangs_on_none(
    may: Permissions, cwd: Path, make: Callable[[Path], object]
) -> None:
    make(cwd / "out" / "bad")
    with pytest.raises(ToolFailed):
        files.read_text(may, "out/bad")
    searching.grep(may, "x", "out")


@pytest.mark.parametrize("path", ["nul\0", "x" * 5_000, "half \ud800", "notes.txt/below"])
def test_it_refuses_what_is_no_path(may: Permissions, path: str) -> None:
    with pytest.raises(ToolFailed):
        files.read_text(may, path)
    with pytest.raises(ToolFailed):
        files.write_text(may, f"out/{path}" if path[0] != "n" or "/" not in path else path, "x")


def test_it_says_what_is_missing_and_keeps_no_descriptor_open(may: Permissions, cwd: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for path in ("nowhere/deep/a", "notes.txt/below/a", "nowhere"):
        with pytest.raises(ToolFailed, match=r"No such file|Not a directory"):
            files.read_text(may, path)
    with pytest.raises(ToolFailed, match="Not a directory"):
        files.list_directory(may, "notes.txt")
    files.list_directory(Permissions(Preset.WORKER, "/", ()), "/")
    searching.grep(may, "two")
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 1  # of looking


def test_it_bounds_sizes(may: Permissions, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_FILE", 100)
    monkeypatch.setattr(files, "MOST_ENTRIES", 2)
    (cwd / "large").write_bytes(b"x" * 101)
    with pytest.raises(ToolFailed, match="over 100 bytes"):
        files.read_text(may, "large")
    with pytest.raises(ToolFailed, match="100 bytes at most"):
        files.write_text(may, "out/large", "ü" * 51)
    assert listing(cwd / "out") == []
    names, whole = files.list_directory(may)
    assert (len(names), whole) == (2, False)


def test_it_leaves_nothing_half_written(may: Permissions, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cwd / "out" / "a").write_text("old")

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ToolFailed, match="No space left"):
        files.write_text(may, "out/a", "new")
    assert listing(cwd / "out") == ["a"]
    assert (cwd / "out" / "a").read_text() == "old"


def test_it_says_that_its_directory_is_gone(may: Permissions, cwd: Path, tmp_path: Path) -> None:
    everywhere = replace(may, write_paths=(may.cwd,))
    cwd.rename(tmp_path / "elsewhere")
    for act in (
        lambda: files.read_text(may, "notes.txt"),
        lambda: files.list_directory(may),
        lambda: files.write_text(everywhere, "new", "text"),
    ):
        with pytest.raises(ToolFailed, match="No such file or directory"):
            act()
    assert not cwd.exists(), "nothing is made in its place"


@contextmanager
def swapping(place: Path, target: Path) -> Iterator[None]:
    """Meanwhile, another thread makes a directory a symlink and back, as fast as it can."""
    stop, aside, link = threading.Event(), place.with_name("aside"), place.with_name("becomes")

    def swap() -> None:
        while not stop.is_set():
            with suppress(OSError):
                place.rename(aside)
                link.symlink_to(target)
                link.rename(place)
            with suppress(OSError):
                place.unlink()
            with suppress(OSError):
                aside.rename(place)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        yield
    finally:
        stop.set()
        attacker.join()


def attacked(base: Path) -> tuple[Permissions, list[Callable[[], Any]]]:
    """An agent whose directory `out` is attacked, with what it does there."""
    cwd, outside = base / "cwd", base / "outside"
    (cwd / "out").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    (cwd / "out" / "secret").write_text("own")
    may = Permissions(Preset.SANDBOXED, str(cwd), (str(cwd / "out"),))
    return may, [
        lambda: files.read_text(may, "out/secret"),
        lambda: searching.grep(may, ".", "out"),
        lambda: searching.grep(may, "."),
        lambda: files.list_directory(may, "out"),
        lambda: files.write_text(may, "out/secret", "own"),
        lambda: files.edit_text(may, "out/secret", "own", "own"),
        lambda: files.write_text(may, "out/new/file", "own"),
    ]


@given(act=st.integers(0, 6), swapped=st.integers(1, 30), back=st.integers(1, 30))
def test_it_is_led_out_at_no_instant(
    tmp_path_factory: pytest.TempPathFactory, act: int, swapped: int, back: int
) -> None:
    base = tmp_path_factory.mktemp("instant")
    _, acts = attacked(base)
    out, aside = base / "cwd" / "out", base / "cwd" / "aside"
    (base / "outside" / "elsewhere").write_text("")
    seen = 0

    def attack(call: Callable[..., Any]) -> Callable[..., Any]:
        def attacking(*arguments: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == swapped:
                out.rename(aside)
                out.symlink_to(base / "outside")
            if seen == swapped + back:
                out.unlink()
                aside.rename(out)
            return call(*arguments, **named)

        return attacking

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "lstat", "scandir"):  # what a path is judged by, and what opens it
            patch.setattr(os, name, attack(getattr(os, name)))
        with suppress(ToolFailed):
            said = str(acts[act]())
            assert SECRET not in said and "elsewhere" not in said
    assert listing(base / "outside") == ["elsewhere", "secret"]
    assert (base / "outside" / "secret").read_text() == SECRET


@settings(max_examples=3)
@given(tries=st.integers(150, 250))
def test_it_is_led_out_by_no_thread(tmp_path_factory: pytest.TempPathFactory, tries: int) -> None:
    base = tmp_path_factory.mktemp("race")
    may, acts = attacked(base)
    with swapping(Path(may.cwd) / "out", base / "outside"):
        for number in range(tries):
            with suppress(ToolFailed):
                assert SECRET not in str(acts[number % len(acts)]())
    assert listing(base / "outside") == ["secret"]
    assert (base / "outside" / "secret").read_text() == SECRET


def test_it_finds_files_by_name_and_lines_by_content(may: Permissions, cwd: Path, outside: Path) -> None:
    (cwd / ".git").mkdir()
    (cwd / ".git" / "two.py").write_text("two")
    (cwd / "src" / "link").symlink_to(outside)
    assert searching.glob(may, "**/*.py") == (["src/a.py", "src/deep/b.py"], None)
    assert searching.glob(may, "*.py", "src") == (["a.py"], None)
    assert searching.grep(may, "^t.o") == (["notes.txt:2: two", "src/deep/b.py:1: two = 2"], None)
    assert searching.grep(may, "two", names="*.py") == (["src/a.py:2: # two", "src/deep/b.py:1: two = 2"], None)
    assert searching.grep(may, "two", "notes.txt") == (["notes.txt:2: two"], None)


def test_it_bounds_a_search(may: Permissions, cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (cwd / "out" / f"{number}.txt").write_text("word\n" * 20)
    monkeypatch.setattr(searching, "MOST_FOUND", 10)
    for found, cut in (searching.glob(may, "**/*.txt"), searching.grep(may, "word")):
        assert (len(found), cut) == (10, "10 were found")
    monkeypatch.setattr(searching, "Bounds", partial(Bounds, 5))
    assert searching.grep(may, "nowhere")[1] == "5 entries were looked at"
    monkeypatch.setattr(searching, "Bounds", partial(Bounds, seconds=-1.0))
    assert searching.glob(may, "nowhere")[1] == "-1 seconds were over"


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){30}x"])
def test_it_is_stalled_by_no_pattern(may: Permissions, cwd: Path, pattern: str) -> None:
    (cwd / "out" / "a").write_text("a" * 50_000 + "!")
    assert searching.grep(may, pattern, "out") == ([], None)


@given(pattern=st.text(max_size=50))
def test_it_takes_or_refuses_any_pattern(tmp_path_factory: pytest.TempPathFactory, pattern: str) -> None:
    place = tmp_path_factory.getbasetemp() / "patterns"
    place.mkdir(exist_ok=True)
    (place / "a").write_text("text")
    may = Permissions(Preset.WORKER, str(place), ())
    for search in (searching.glob, searching.grep):
        with suppress(ToolFailed):
            search(may, pattern)


NAMES = st.text("ab.[]!-", min_size=1, max_size=6)


@given(pattern=st.text("ab.*?", min_size=1, max_size=6), name=NAMES)
def test_it_reads_names_as_shells_do(pattern: str, name: str) -> None:
    wanted = re2.compile(searching.translated(pattern))
    assert bool(wanted.fullmatch(name)) == fnmatch.fnmatchcase(name, pattern)


@given(parts=st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4))
def test_it_takes_two_stars_for_any_depth(parts: list[str]) -> None:
    path = "/".join(parts)
    fits = {pattern: bool(re2.fullmatch(searching.translated(pattern), path)) for pattern in ("**/b", "a/**")}
    assert fits == {"**/b": parts[-1] == "b", "a/**": parts[0] == "a" and len(parts) > 1}
