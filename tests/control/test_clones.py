"""Directories that the worker clones before an agent's first turn, as `[clones]` of runners.toml says."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nexus.control.models import PoolAgent
from nexus.control.runners import processes, sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import Clone, read_runners, runners
from nexus.control.worker import clones
from nexus.control.worker.scheduling import Worker
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread
from tests.conftest import does
from tests.control.pool import acancel, asend, create, ended

HANGS = "sleep 1000;:"  # as core.sshCommand: ssh that does not answer
FAR = "git@example.com:acme/shop.git"


def git(*arguments: str, cwd: Path) -> None:
    subprocess.run(["git", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def shop(runs_git: None, tmp_path: Path) -> Path:
    """A bare repository with a commit on main, and another on side."""
    work = tmp_path / "work"
    work.mkdir()
    git("init", "--initial-branch=main", cwd=work)
    for branch in ("main", "side"):
        git("checkout", "-B", branch, cwd=work)
        (work / "name").write_text(branch)
        git("add", ".", cwd=work)
        git("-c", "user.name=Ann", "-c", "user.email=ann@localhost", "commit", "--message=new", cwd=work)
    git("checkout", "main", cwd=work)
    git("clone", "--bare", str(work), str(tmp_path / "shop.git"), cwd=tmp_path)
    return tmp_path / "shop.git"


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of clones; an account of its own."""
    home = tmp_path / "account"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "below").mkdir()
    return tmp_path / "below"


def names(directory: Path) -> list[str]:
    """What is in a directory."""
    return sorted(path.name for path in directory.iterdir())


def hangs() -> None:
    """Let ssh of this account not answer."""
    Path.home().joinpath(".gitconfig").write_text(f'[core]\nsshCommand = "{HANGS}"\n')


@pytest.fixture(params=[True, False], ids=["sandbox", "none"])
def confined(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
    elif not sandbox.state().works:
        pytest.skip("no sandbox on this machine")


def entry(below: Path, git: str, **more: object) -> Clone:
    return Clone.model_validate({"directory": str(below), "git": git, **more})


async def ensure(clone: Clone, name: str = "ann") -> Path:
    cwd = Path(clone.directory, name)
    await clones.ensure(clone, PoolAgent(cwd=str(cwd), machine="hub"))
    return cwd


@pytest.mark.usefixtures("confined")
async def test_an_agent_gets_a_clone_of_the_branch(shop: Path, below: Path) -> None:
    first = await ensure(entry(below, str(shop)))
    assert (first / "name").read_text() == "main"
    second = await ensure(entry(below, str(shop), branch="side"), "bob")
    assert (second / "name").read_text() == "side"
    assert names(below) == ["ann", "bob"]
    config = (first / ".git" / "config").read_text()
    assert str(shop) in config and "hooksPath" not in config and "BatchMode" not in config
    shared = [path for path in (first / ".git" / "objects").rglob("*") if path.is_file() and path.stat().st_nlink > 1]
    assert shared == [], "what an agent writes there does not reach the repository"


async def test_no_template_and_no_hook_of_the_account_runs(shop: Path, below: Path, tmp_path: Path) -> None:
    hook = Path.home() / ".config" / "git" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    config = f'[init]\ntemplateDir = "{hook.parents[1]}"\n[core]\nhooksPath = "{hook.parent}"\n'
    (Path.home() / ".gitconfig").write_text(config)
    assert names(await ensure(entry(below, str(shop)))) == [".git", "name"]
    assert not (below / "ann" / ".git" / "hooks").exists()


async def test_git_is_not_asked_on_the_loop_of_all_turns(
    shop: Path, below: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clones, "operators_settings", lambda *_: asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="no running event loop"):
        await ensure(entry(below, str(shop)))


async def test_several_at_once_make_one(shop: Path, below: Path) -> None:
    await asyncio.gather(*(ensure(entry(below, str(shop))) for _ in range(3)))
    assert names(below) == ["ann"]


@pytest.mark.parametrize("what", ["directory", "file", "link"])
async def test_what_is_there_is_not_touched(shop: Path, below: Path, what: str) -> None:
    cwd = below / "ann"
    if what == "directory":
        cwd.mkdir()
    elif what == "file":
        cwd.touch()
    else:
        cwd.symlink_to(below.parent / "nowhere")
    before = cwd.lstat()
    await ensure(entry(below, str(shop)))
    assert cwd.lstat() == before and names(below) == ["ann"]
    assert not (below.parent / "nowhere").exists()


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.usefixtures("confined")
async def test_a_clone_that_fails_says_why_and_leaves_nothing(below: Path, tmp_path: Path) -> None:
    with pytest.raises(RunnerFailed, match=r"ann, could not be cloned: .*none"):
        await ensure(entry(below, str(tmp_path / "none")))
    (Path.home() / ".gitconfig").write_text('[core]\nsshCommand = "echo at https://me:a/b@c.example >&2; false;:"\n')
    with pytest.raises(RunnerFailed) as failed:
        await ensure(entry(below, FAR))
    assert "https://***@c.example" in str(failed.value) and "a/b" not in str(failed.value)
    hangs()
    with pytest.raises(RunnerFailed, match="it took longer than 1 seconds"):
        await ensure(entry(below, FAR, seconds=1))
    assert names(below) == []


async def test_nothing_is_written_through_a_link(shop: Path, below: Path) -> None:
    elsewhere = below.parent / "elsewhere"
    elsewhere.mkdir()
    below.rmdir()
    below.symlink_to(elsewhere)
    with pytest.raises(RunnerFailed, match="could not be cloned"):
        await ensure(entry(below, str(shop)))
    assert names(elsewhere) == []


async def test_what_a_kill_left_is_removed_and_nothing_else(shop: Path, below: Path) -> None:
    hangs()
    running = asyncio.create_task(ensure(entry(below, FAR)))
    while not (left := [*below.glob(f"{clones.PREFIX}*/.git/HEAD")]):
        await asyncio.sleep(0.01)
        assert not running.done()
    half = left[0].parents[1]
    running.cancel()
    await asyncio.wait((running,))
    assert names(below) == [], "a cancelled one leaves nothing"
    (half / ".git").mkdir(parents=True)
    (half / ".git" / "HEAD").touch()
    others = [below / f"{clones.PREFIX}other-1", below / "carl"]
    for each in others:
        each.mkdir()
    await ensure(entry(below, str(shop)))
    assert sorted(below.iterdir()) == sorted([*others, below / "ann"])


def configured(home: Path, below: Path, git: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "runners.toml").write_text(f'[clones."{below}"]\ngit = "{git}"\n')


async def test_a_directory_is_cloned_before_the_first_turn_alone(
    worker: Worker, shop: Path, below: Path, tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(home=tmp_path / "home")
    configured(tmp_path / "home", below, str(below / "none"))
    cwd = below / "ann"
    with pytest.raises(NexusError, match="existing directory"):
        await in_thread(WRITERS, partial(create, "deep", cwd=str(cwd / "deep")))
    agent: PoolAgent = await in_thread(WRITERS, partial(create, "ann", cwd=str(cwd)))
    assert agent.cwd == str(cwd) and not cwd.exists()
    turn = await ended(await asend("ann"))
    assert turn.status == "failed" and "could not be cloned" in (turn.why or "")
    configured(tmp_path / "home", below, str(shop) + "/")
    turn = await ended(await asend("ann"))
    assert (turn.status, (cwd / "name").read_text()) == ("done", "main"), turn.why
    shutil.rmtree(cwd)
    turn = await ended(await asend("ann"))
    assert turn.why == f"the agent's directory, {cwd}, is not there any more", "its work is lost: a person decides"
    assert names(below) == []


@pytest.mark.usefixtures("transactional_db")
async def test_a_clone_gets_the_approved_local_files_of_a_project_on_the_machine(
    shop: Path, below: Path, tmp_path: Path, configure: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    work = tmp_path / "work"
    (work / "nexus.toml").write_text('[worktrees]\ncopy = [".env", "none"]\nsymlink = ["modules"]\n')
    (work / ".env").write_text("KEY=1")
    (work / "modules").mkdir()
    configure(home=tmp_path / "home")
    configured(tmp_path / "home", below, f'{shop}"\nfiles = "{work}')
    clone = runners().clones[str(below)]
    assert names(await ensure(clone)) == [".git", "name"]
    assert "not approved" in caplog.text

    def approve() -> None:
        digest = does("checks_list", project_root=str(work))["data"]["digest"]
        assert does("checks_approve", project_root=str(work), digest=digest)["ok"]

    await in_thread(WRITERS, approve)
    made = await ensure(clone, "bob")
    assert names(made) == [".env", ".git", "modules", "name"]
    assert "'none' (it is not there)" in caplog.text
    git("add", "--all", cwd=made)
    git("diff", "--cached", "--exit-code", cwd=made)
    agent = PoolAgent(cwd=str(made), machine="hub")
    assert await in_thread(READERS, partial(processes.links, agent)) == [str(work / "modules")]


@pytest.mark.usefixtures("starts_processes")
async def test_a_cancelled_turn_leaves_no_half_clone(
    worker: Worker, below: Path, tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(home=tmp_path / "home")
    hangs()
    configured(tmp_path / "home", below, FAR)
    await in_thread(WRITERS, partial(create, "ann", cwd=str(below / "ann")))
    turn_id = await asend("ann")
    while not [*below.glob(f"{clones.PREFIX}*/.git/HEAD")]:
        await asyncio.sleep(0.01)
    await acancel(turn_id)
    assert (await ended(turn_id)).status == "cancelled"
    while names(below):  # its git ends
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "address",
    [
        *("ext::sh -c id", "http://example.com/a", "file:///srv/shop", "shop.git", "--upload-pack=id", "git://a/b"),
        *("ssh://-oProxyCommand=id/x", "https://me:secret@example.com/a", "/srv/a\\nb", "", " /srv/a", "-u@a:b"),
    ],
)
def test_an_address_that_git_must_not_get_is_refused(tmp_path: Path, address: str) -> None:
    (tmp_path / "runners.toml").write_text(f'[clones."/srv"]\ngit = "{address}"\n')
    with pytest.raises(NexusError, match=r"is wrong at clones\.'/srv'\.git: ") as refused:
        read_runners(tmp_path / "runners.toml")
    assert "secret" not in refused.value.message


@pytest.mark.parametrize("address", [FAR, "ssh://git@example.com:22/a.git", "https://example.com/a", "/srv/shop.git"])
def test_an_address_of_a_repository_is_taken(tmp_path: Path, address: str) -> None:
    (tmp_path / "runners.toml").write_text(f'[clones."/srv"]\ngit = "{address}"\nbranch = "main"\n')
    known = read_runners(tmp_path / "runners.toml")
    clone = known.clone_of("/srv/ann")
    assert clone is not None and (clone.git, clone.branch) == (address, "main")
    assert [known.clone_of(path) for path in ("/srv", "/srv/a/b", "/", "/srvx/a")] == [None] * 4


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('[clones.srv]\ngit = "/a"', "absolute path"),
        ('[clones."/srv/../etc"]\ngit = "/a"', "absolute path"),
        ('[clones."/srv/"]\ngit = "/a"', "absolute path"),
        ('[clones."/srv"]\ngit = "/a"\nbranch = "-x"', "branch"),
        ('[clones."/srv"]\ngit = "/a"\nhooks = true', "hooks"),
        ('[clones."/srv"]', "git"),
        ("clones = 1", "'clones'"),
        ('[clones]\n"/srv" = 1', "clones"),
    ],
)
def test_a_table_that_is_wrong_is_told(tmp_path: Path, table: str, why: str) -> None:
    (tmp_path / "runners.toml").write_text(table)
    with pytest.raises(NexusError, match=why) as refused:
        read_runners(tmp_path / "runners.toml")
    assert refused.value.code == "CONFIG_ERROR"
