"""Repositories that appear where an agent's program writes: set aside, whatever stands around them."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordination.models import Event
from nexus.control.models import PoolAgent
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners import contexts, new_repositories, repositories, sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.new_repositories import Unsafe, Watch
from nexus.core.waiting import WRITERS, in_thread
from tests.control.pool import create
from tests.git import git


@pytest.fixture
def place(runs_git: None, tmp_path: Path, configure: Callable[..., None]) -> Iterator[Path]:
    """Where an agent writes: a repository with another in it."""
    configure(control=True, home=tmp_path / "home")
    root = tmp_path / "place"
    repository(root / "old")
    git(root, "init", "--quiet")
    yield root
    new_repositories._watches.clear()


def repository(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "--quiet")
    return place


def begin(place: Path, *write_paths: Path) -> Watch:
    permissions = Permissions(Preset.TRUSTED, str(place), tuple(map(str, write_paths or (place,))))
    watch = new_repositories.begin("pag_1", permissions, None)
    assert watch is not None
    return watch


def is_repository(place: Path) -> bool:
    asked = subprocess.run(["git", "rev-parse", "--git-dir"], cwd=place, capture_output=True, text=True, check=True)
    return asked.stdout.strip() in (".", ".git")


def test_what_was_there_stays_and_what_is_new_is_renamed(place: Path) -> None:
    watch = begin(place)
    new = repository(place / "new" / "deep")
    (aside,) = watch.look()
    assert Path(aside).parent == new and Path(aside, "config").is_file()
    assert is_repository(place) and is_repository(place / "old") and not is_repository(new)
    assert watch.look() == []
    watch.over()
    (head,) = Path(aside).glob("HEAD.by-agent-*")
    head.rename(head.with_name("HEAD"))  # as its owner does
    Path(aside).rename(new / ".git")
    assert begin(place).look() == [] and is_repository(new)


def test_a_directory_that_git_takes_for_a_bare_repository_loses_its_head(place: Path) -> None:
    watch = begin(place)
    bare, linked = place / "bare", place / "linked"
    git(place, "init", "--quiet", "--bare", str(bare))
    linked.mkdir()
    (linked / "HEAD").write_text("ref: refs/heads/main\n")
    (linked / "commondir").write_text("../bare\n")
    assert is_repository(bare) and is_repository(linked)
    assert {Path(path).parent for path in watch.look()} == {bare, linked}
    assert not is_repository(bare) and not is_repository(linked)


def test_a_write_path_that_is_a_bare_repository_is_refused(place: Path) -> None:
    git(place, "init", "--quiet", "--bare", str(place / "bare"))
    with pytest.raises(RunnerFailed, match="is a git repository itself"):
        begin(place, place / "bare")


def test_it_finds_one_whose_path_is_longer_than_a_path_may_be(place: Path) -> None:
    watch = begin(place)
    here = os.open(place, os.O_RDONLY)
    for name in ["deep" * 50] * 30 + [".git", "refs"]:
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    (aside,) = watch.look()
    assert len(aside) > os.pathconf(place, "PC_PATH_MAX")
    subprocess.run(["rm", "-r", str(place)], check=True)  # what Python's own cannot


def test_it_looks_into_directories_that_a_program_closed(place: Path) -> None:
    watch = begin(place)
    new = repository(place / "a" / "b")
    for mode, path in ((0o311, new), (0o000, new.parent)):
        path.chmod(mode)
    assert [Path(path).parent for path in watch.look()] == [new] and watch.look() == []
    watch.over()
    (place / "a").chmod(0o311)
    with pytest.raises(RunnerFailed, match="make it readable"):
        begin(place)
    (place / "a").chmod(0o700)


@pytest.mark.parametrize("kind", ["symlink", "file"])
def test_a_link_that_leads_elsewhere_since_is_new(place: Path, kind: str) -> None:
    (place / "way").symlink_to("old")
    linked = place / "linked" / ".git"
    linked.parent.mkdir()
    if kind == "symlink":
        linked.symlink_to("../way/.git")
    else:
        linked.write_text("gitdir: ../way/.git\n")
    watch = begin(place)
    assert watch.look() == []
    other = repository(place / "other")
    (place / "way").unlink()
    (place / "way").symlink_to("other")
    assert {Path(path).parent for path in watch.look()} == {other, linked.parent}


def test_what_takes_the_place_of_a_repository_that_is_gone_is_new(place: Path) -> None:
    watch = begin(place)
    (place / "old" / ".git").rename(place / "moved")
    assert [Path(path).parent for path in watch.look()] == [place / "moved"]  # its HEAD
    repository(place / "old")
    assert [Path(path).parent for path in watch.look()] == [place / "old"]


def test_what_the_ceiling_opens_stays(place: Path) -> None:
    watch = begin(place, place, place / "new" / ".git")
    repository(place / "new")
    assert watch.look() == [] and is_repository(place / "new")


def test_an_empty_git_directory_stays_until_something_is_in_it(place: Path) -> None:
    watch = begin(place)
    (place / "new" / ".git").mkdir(parents=True)
    assert watch.look() == []
    repository(place / "new")
    assert len(watch.look()) == 1


def shown(agent: PoolAgent) -> Any:
    """What who looks at an agent sees of new repositories."""
    return contexts.context(PoolAgent.objects.get(pk=agent.pk))["new_repositories"]


def test_what_appeared_while_another_program_ran_is_known_to_nobody(place: Path) -> None:
    first = begin(place)
    new = repository(place / "new")
    second = begin(place)
    (aside,) = first.look()
    first.over()
    Path(aside).rename(new / ".git")
    assert len(second.look()) == 1 and not is_repository(new)


def test_a_worker_looks_again_after_a_crash(db: None, place: Path) -> None:
    watch = begin(place)
    new = repository(place / "n\udcffw \n")
    new_repositories._watches.clear()  # with the worker
    half = Path(watch.path).with_name("half.json")
    half.write_text("{")
    new_repositories.look_after_crash()
    assert not is_repository(new) and is_repository(place / "old")
    assert not Path(watch.path).exists() and not half.exists()


def test_what_cannot_be_searched_is_told_and_looked_at_again(db: None, place: Path, monkeypatch: Any) -> None:
    agent = create("ann", cwd=str(place))
    watch = new_repositories.begin(agent.pk, agent.permissions, None)
    repository(place / "new")
    assert watch is not None
    with monkeypatch.context() as patched:
        patched.setattr(new_repositories, "SECONDS", 0)
        with pytest.raises(Unsafe, match="cannot be searched"):
            watch.look()
        new_repositories.look_after_crash()
    (event,) = Event.objects.filter(type="pool.repositories_unsafe")
    assert event.payload["agent_id"] == "ann" and "cannot be searched" in event.payload["why"]
    assert shown(agent) == {"set_aside": [], "unsafe": event.payload["why"]}
    new_repositories.look_after_crash()
    (event,) = Event.objects.filter(type="pool.repositories_set_aside")
    assert event.payload["count"] == 1 and event.payload["paths"][0].startswith(str(place / "new"))
    assert shown(agent) == {"set_aside": event.payload["paths"], "unsafe": ""}


def test_what_was_set_aside_is_told_though_not_all_could_be(db: None, place: Path, monkeypatch: Any) -> None:
    agent = create("ann", cwd=str(place))
    assert "new_repositories" not in contexts.context(agent)
    watch = new_repositories.begin(agent.pk, agent.permissions, None)
    assert watch is not None
    for name in ("a", "b"):
        repository(place / name)
    rename = new_repositories._set_aside

    def only_a(path: str) -> str | None:
        if "/b/" in path:
            raise PermissionError(1, "not permitted")
        return rename(path)

    with monkeypatch.context() as patched:
        patched.setattr(new_repositories, "_set_aside", only_a)
        new_repositories.look_after_crash()
    (first,) = shown(agent)["set_aside"]
    assert first.startswith(str(place / "a")) and "not permitted" in shown(agent)["unsafe"]
    new_repositories.look_after_crash()
    second, third = shown(agent)["set_aside"]
    assert second.startswith(str(place / "b")) and (third, shown(agent)["unsafe"]) == (first, "")


def test_more_than_a_look_can_list_is_set_aside_part_by_part(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = begin(place)
    for number in range(100):
        (place / str(number) / ".git" / "refs").mkdir(parents=True)
    monkeypatch.setattr(repositories, "FOUND_BYTES", 1_000)
    assert len(watch.look()) == 100
    watch = begin(place)
    for number in range(100):
        (place / str(number) / ".git").mkdir()
    with pytest.raises(Unsafe, match="bytes of paths"):
        watch.look()


@pytest.mark.usefixtures("runs_sandbox")
async def test_it_looks_while_a_program_runs_and_after_it_though_it_is_cancelled(
    committed: None, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    agent: PoolAgent = await in_thread(WRITERS, lambda: create("ann", cwd=str(place)))
    running = asyncio.Event()

    async def run() -> None:
        async with new_repositories.watched(agent) as aside:
            repository(place / "new")
            while not aside:
                await asyncio.sleep(0.01)
            repository(place / "late")
            monkeypatch.setattr(new_repositories, "PAUSE_SECONDS", 3600)
            running.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(new_repositories, "PAUSE_SECONDS", 0)
    task = asyncio.create_task(run())
    await running.wait()
    assert not is_repository(place / "new")
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=0.01)
    assert task.cancelled() and not is_repository(place / "late")
    assert list((place.parent / "home" / "programs").iterdir()) == []
