"""Setting git's hooks and taking them out: what was there is there again, and nothing is half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from nexus.core import files
from nexus.core.operations.errors import NexusError
from nexus.reservations.guard import hooks
from nexus.reservations.guard.hooks import KEPT, NAMES
from tests.reservations.git import Repo

ASKED = ("/home/nexus.db", "open", "--home /home")
State = dict[str, tuple[str, int, str]]


@pytest.fixture
def repo(runs_git: None, tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "a shop")


def directory(repo: Repo) -> Path:
    return repo.top / ".git" / "hooks"


def state(where: Path) -> State:
    """The files of a directory: content, mode, and where a link leads."""
    return {
        file.name: (file.read_text(), file.lstat().st_mode, str(file.readlink()) if file.is_symlink() else "")
        for file in where.iterdir()
    }


def put(repo: Repo, name: str, text: str = "true") -> Path:
    file = directory(repo) / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o751)
    return file


def install(repo: Repo, *asked: str) -> list[str]:
    return [file.name for file in hooks.install(str(repo.top), *(asked or ASKED))]


def refusal(repo: Repo) -> str:
    """Why nothing can be installed; nothing is changed."""
    before = state(directory(repo))
    with pytest.raises(NexusError) as refused:
        install(repo)
    assert refused.value.code == "CONFIG_ERROR"
    assert refused.value.message.endswith(" Nothing was changed.")
    assert state(directory(repo)) == before
    return refused.value.message


def test_it_installs_once_and_takes_out_exactly_what_it_put_in(repo: Repo) -> None:
    before = state(directory(repo))
    assert install(repo) == list(NAMES)
    assert [hook.state for hook in hooks.hooks_directory(str(repo.top)).hooks] == ["installed"] * len(NAMES)
    assert install(repo) == []
    assert [file.name for file in hooks.uninstall(str(repo.top))] == list(NAMES)
    assert state(directory(repo)) == before
    assert hooks.uninstall(str(repo.top)) == []


def test_it_keeps_what_was_there_and_puts_it_back(repo: Repo) -> None:
    put(repo, "pre-commit")
    (repo.top / "shared.sh").write_text("#!/bin/sh\n")
    (directory(repo) / "pre-push").symlink_to("../../shared.sh")
    before = state(directory(repo))
    install(repo)
    install(repo, "/elsewhere.db", "closed", "")
    assert (directory(repo) / f"pre-push{KEPT}").is_symlink()
    hooks.uninstall(str(repo.top))
    assert state(directory(repo)) == before


def test_it_leaves_a_hook_that_was_changed_by_hand(repo: Repo) -> None:
    install(repo)
    mine = directory(repo) / "pre-push"
    mine.write_text(mine.read_text() + "echo mine\n")
    assert "pre-push was changed by hand since it was installed" in refusal(repo)
    before = state(directory(repo))
    with pytest.raises(NexusError, match="pre-push was changed by hand"):
        hooks.uninstall(str(repo.top))
    assert state(directory(repo)) == before


def test_it_puts_back_what_was_there_when_ours_was_deleted(repo: Repo) -> None:
    put(repo, "pre-commit")
    before = state(directory(repo))
    install(repo)
    (directory(repo) / "pre-commit").unlink()
    hooks.uninstall(str(repo.top))
    assert state(directory(repo)) == before


def test_it_leaves_a_hook_that_others_wrote_over_ours(repo: Repo) -> None:
    put(repo, "pre-commit", "echo old")
    install(repo)
    put(repo, "pre-commit", "echo new")
    assert "are both of other programs" in refusal(repo)
    hooks.uninstall(str(repo.top))
    assert "echo new" in (directory(repo) / "pre-commit").read_text()


def test_it_goes_on_where_an_installation_was_killed(repo: Repo) -> None:
    put(repo, "pre-commit")
    before = state(directory(repo))
    put(repo, f"pre-commit{KEPT}")
    install(repo)
    hooks.uninstall(str(repo.top))
    assert state(directory(repo)) == before


@pytest.mark.parametrize("manager", ["husky", "lefthook"])
def test_it_tells_what_to_add_where_a_hook_manager_writes_the_hooks(repo: Repo, manager: str) -> None:
    put(repo, "pre-push", f"# {manager} made this")
    said = refusal(repo)
    assert f"is {manager}'s, which writes it again" in said
    assert "run.py pre-commit '' /home/nexus.db open '--home /home' \"$@\"" in said


def test_it_tells_what_to_add_where_core_hooks_path_leads_elsewhere(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.ok("config", "core.hooksPath", ".husky/_")
    (repo.top / ".husky" / "_").mkdir(parents=True)
    assert f"core.hooksPath (local) leads to {repo.top}/.husky/_" in refusal(repo)
    assert not list((repo.top / ".husky" / "_").iterdir())
    repo.ok("config", "--unset", "core.hooksPath")
    everywhere = tmp_path / "gitconfig"
    everywhere.write_text(f'[core]\nhooksPath = "{tmp_path}/hooks"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(everywhere))
    assert f"core.hooksPath (global) leads to {tmp_path}/hooks" in refusal(repo)
    repo.ok("config", "core.hooksPath", ".git/hooks")
    assert install(repo) == list(NAMES)


def test_it_installs_for_all_work_trees_and_for_a_bare_repository(repo: Repo, tmp_path: Path) -> None:
    repo.ok("worktree", "add", "-q", str(tmp_path / "linked"))
    assert install(repo.of("ben", tmp_path / "linked")) == list(NAMES)
    assert install(repo) == []
    repo.ok("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    hooks.install(str(tmp_path / "bare.git"), *ASKED)
    assert (tmp_path / "bare.git" / "hooks" / "pre-push").exists()


@pytest.mark.usefixtures("runs_git")
def test_it_makes_the_directory_of_hooks_where_there_is_none(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "empty")
    repo.top.mkdir()
    repo.ok("init", "-q", "--template=")
    assert install(repo) == list(NAMES)


def test_it_says_what_is_wrong_with_a_place(tmp_path: Path, repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NexusError) as refused:
            hooks.install(str(place), *ASKED)
        assert refused.value.code == "CONFIG_ERROR"
        assert str(place) in refused.value.message
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for name, said in {
        ".": f"{tmp_path} is in no git repository",
        "missing": f"There is no directory {tmp_path}/missing",
        "file": f"There is no directory {tmp_path}/file",
    }.items():
        with pytest.raises(NexusError, match=said):
            hooks.install(name, *ASKED)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(NexusError, match="the working directory, which is gone, is in no git repository"):
        hooks.install(".", *ASKED)
    monkeypatch.chdir(tmp_path)
    put(repo, "pre-commit")
    (directory(repo) / "pre-push").mkdir()
    with pytest.raises(NexusError, match="pre-push cannot be read"):
        install(repo)
    assert not (directory(repo) / f"pre-commit{KEPT}").exists()


def test_it_undoes_everything_when_one_file_cannot_be_written(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    put(repo, "pre-commit")
    put(repo, "pre-push")
    really = files.replace

    def fails(path: Path, content: bytes, *, mode: int) -> None:
        if path.name == "pre-push":
            raise PermissionError
        really(path, content, mode=mode)

    monkeypatch.setattr(files, "replace", fails)
    assert "cannot be written (PermissionError)" in refusal(repo)


def test_it_never_takes_its_own_hook_for_the_one_that_was_there(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    put(repo, "pre-commit", "echo theirs")
    before = state(directory(repo))
    once = [lambda: install(repo)]
    keep = hooks._keep

    def meanwhile(hook: hooks.Hook) -> None:
        if once:
            once.pop()()
        keep(hook)

    monkeypatch.setattr(hooks, "_keep", meanwhile)
    with pytest.raises(NexusError, match="FileExistsError"):
        install(repo)
    monkeypatch.undo()
    hooks.uninstall(str(repo.top))
    assert state(directory(repo)) == before
