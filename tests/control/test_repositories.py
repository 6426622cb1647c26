"""An operator's repository where a sandboxed agent writes: git runs nothing there afterwards that the agent chose."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nexus.control.models import PoolAgent
from nexus.control.permissions import rules
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners import repositories, sandbox
from nexus.control.runners.base import RunnerFailed
from tests.control.test_worktrees import does
from tests.git import git

CLEAN = "#!/bin/sh\ncat\n"


@pytest.fixture(autouse=True)
def enclosed(monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None], tmp_path: Path) -> None:
    configure(home=tmp_path / "home")
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    monkeypatch.setattr(repositories, "KEPT_SECONDS", 0)


@pytest.fixture(scope="module")
def template(runs_git: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a submodule, one that is not checked out, another repository, and programs that git runs."""
    root = tmp_path_factory.mktemp("template")
    library = root / "library"
    library.mkdir()
    git(library, "init", "--quiet")
    git(library, "commit", "--quiet", "--allow-empty", "-m", "Begin")
    place = root / "project"
    place.mkdir()
    git(place, "init", "--quiet")
    local = ("-c", "protocol.file.allow=always")
    git(place, *local, "submodule", "--quiet", "add", str(library), "sub")
    git(place, *local, "submodule", "--quiet", "add", str(library), "empty")
    git(place, "submodule", "--quiet", "deinit", "--force", "empty")
    programs = {f"tools/{name}.sh": CLEAN for name in ("clean", "top", "here")}
    for name, text in {**programs, ".husky/pre-commit": CLEAN, "src/main.txt": "one\n", "a.md": "", "b.md": ""}.items():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (place / "team.gitconfig").write_text("[user]\nname = Ann\n")
    (place / ".gitattributes").write_text("*.txt filter=team\na.md filter=top\nb.md filter=here\n")
    git(place, "config", "filter.team.clean", "./tools/clean.sh")
    git(place, "config", "filter.top.clean", '"$(git rev-parse --show-toplevel)/tools/top.sh" %f')
    git(place, "config", "filter.here.clean", 'sh "${PWD}/tools/here.sh"')
    git(place, "config", "core.hooksPath", ".husky")
    git(place, "config", "include.path", "../team.gitconfig")
    git(place, "add", ".")
    git(place, "commit", "--quiet", "-m", "Begin")
    git(place, "branch", "other")
    (place / "src" / "main.txt").write_text("two\n")
    git(place, "commit", "--quiet", "--all", "-m", "Two")
    shutil.copytree(library, place / "vendor" / "library")
    hook = place / "sub" / ".hooks" / "post-index-change"
    hook.parent.mkdir()
    hook.write_text(CLEAN)
    hook.chmod(0o755)
    git(place / "sub", "config", "core.hooksPath", ".hooks")
    git(place / "sub", "config", "include.path", "../../../sub.gitconfig")
    (place / "sub.gitconfig").write_text("[user]\nname = Ann\n")
    return place


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Path:
    place = tmp_path / "project"
    shutil.copytree(template, place, symlinks=True)
    return place


def agent_does(place: Path, command: str, *paths: Path, cwd: Path | None = None) -> str:
    """What an agent in the sandbox says that writes below these paths."""
    permissions = Permissions(Preset.TRUSTED, str(cwd or place), tuple(map(str, paths or (place,))))
    fixed = repositories.fixed(permissions, None)
    line = ["sh", "-c", f"cd {place}; {command}; echo done"]
    wrapped = sandbox.wrap(line, permissions, network=False, cwd=str(place), fixed=fixed.mounts())
    done = subprocess.run(wrapped, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("done\n"), done.stderr
    return done.stdout + done.stderr


EVIL = "$PWD/evil.sh"
ATTACKS = {
    "a monitor": f"git config core.fsmonitor {EVIL}; printf '[core]\\nfsmonitor = {EVIL}\\n' >> .git/config",
    "a hook": "git config core.hooksPath .git/hooks; cp evil.sh .git/hooks/pre-commit; "
    "cp evil.sh .git/hooks/post-index-change",
    "the repository moved aside": f"mv .git old; cp -r old .git; git config core.fsmonitor {EVIL}",
    "the repository removed": f"rm -rf .git; cp -r vendor/library/.git .git; git config core.fsmonitor {EVIL}",
    "a hook where the configuration has them": "cp evil.sh .husky/pre-commit; cp evil.sh .husky/post-index-change",
    "the directory of hooks moved": "mv .husky old; mkdir .husky; cp evil.sh .husky/pre-commit",
    "a filter's program": "cp evil.sh tools/clean.sh; cat evil.sh > tools/clean.sh; ln -sf ../evil.sh tools/clean.sh",
    "filters' programs that the shell finds": "for name in top here; do cat evil.sh > tools/$name.sh; done; "
    "echo more >> a.md; echo more >> b.md",
    "the directory of a filter's program": "mv tools old; mkdir tools; cp evil.sh tools/clean.sh",
    "an included configuration": "printf '[core]\\nfsmonitor = ./evil.sh\\n' > team.gitconfig",
    "an included configuration replaced": "printf '[core]\\nfsmonitor = ./evil.sh\\n' > x; mv -f x team.gitconfig",
    "a submodule": "cd sub; git config core.fsmonitor ../evil.sh; cd ../.git/modules/sub; "
    "echo '[core]' >> config; cp ../../../evil.sh hooks/pre-commit",
    "what the configuration of a submodule leads to": f"printf '[core]\nfsmonitor = {EVIL}\n' > sub.gitconfig; "
    "cp evil.sh sub/.hooks/post-index-change; cp evil.sh sub/.hooks/pre-commit",
    "a submodule that leads elsewhere": f"cp -r .git/modules/sub own; git config -f own/config core.fsmonitor {EVIL}; "
    "git config -f own/config core.worktree ../sub; rm -f sub/.git; echo gitdir: ../own > sub/.git; mv sub moved; "
    "mkdir sub; echo gitdir: ../own > sub/.git",
    "a submodule that is not there": "git init -q empty; git -C empty config core.fsmonitor $PWD/evil.sh; "
    "git -C empty -c user.name=a -c user.email=a commit -q --allow-empty -m x; mv empty old; git init -q empty; "
    "git -C empty config core.fsmonitor $PWD/evil.sh",
    "another repository": "cd vendor/library; git config core.fsmonitor ../../evil.sh",
    "another repository moved": "mv vendor old; mkdir -p vendor; cp -r old/library vendor/library; "
    "git -C vendor/library config core.fsmonitor $PWD/evil.sh; git init -q vendor/library",
    "attributes": "echo '* filter=other diff=other merge=other' > .gitattributes; "
    "git config filter.other.clean ./evil.sh",
}


@pytest.mark.usefixtures("runs_sandbox")
@pytest.mark.parametrize("name", ATTACKS)
def test_the_operators_next_git_runs_nothing_of_an_agents(project: Path, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "ran"
    evil = project / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    evil.chmod(0o755)
    agent_does(project, f"echo three > src/main.txt; {ATTACKS[name]}")
    assert (project / "src" / "main.txt").read_text() == "three\n"
    for place in (project, project / "sub", project / "vendor" / "library"):
        added = ("status", "diff", "add --all .", "add new", "commit -m Three")
        for command in (*added, "status", "diff", "commit --all -m Four", "merge other"):
            who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
            subprocess.run(["git", *who, *command.split()], cwd=place, capture_output=True, check=False)
            assert not mark.exists(), (place, command)


@pytest.mark.usefixtures("runs_sandbox")
def test_nobody_makes_a_repository_of_a_directory_that_is_none(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    said = agent_does(place, "git init; git config -f .git/config core.fsmonitor x; rmdir .git; touch .git/HEAD")
    assert "Read-only" in said and list((place / ".git").iterdir()) == []
    assert subprocess.run(["git", "status"], cwd=place, capture_output=True, check=False).returncode
    repositories.remove_placeholders([str(place)])
    assert list(place.iterdir()) == []


@pytest.mark.usefixtures("runs_sandbox")
def test_a_ceiling_that_names_it_opens_it(project: Path) -> None:
    agent_does(project, "git config nexus.test yes", project, project / ".git")
    assert git(project, "config", "nexus.test") == "yes"


@pytest.mark.django_db
def test_who_opens_it_is_told_what_that_means(project: Path, tmp_path: Path, configure: Callable[..., None]) -> None:
    configure(control=True, home=tmp_path / "home")
    given: dict[str, Any] = {"cwd": str(project), "allowed_write_paths": ["src", ".git"]}
    warning = does("pool_create_agent", agent_id="ann", **given)["data"]["warning"]
    assert str(project / ".git") in warning and "next git command" in warning
    lines = rules.describe_permissions(PoolAgent.objects.get().permissions, "/home")  # as the agent's page has them
    assert warning == f"{lines[-2]}. {lines[-1]}."
    assert "warning" not in does("pool_create_agent", agent_id="bob", cwd=str(project))["data"]


@pytest.mark.usefixtures("runs_sandbox")
def test_what_the_repository_around_a_write_path_runs_there_is_kept(project: Path) -> None:
    said = agent_does(project, "echo x > tools/clean.sh; echo x > tools/new", project / "tools")
    assert "Read-only" in said or "busy" in said
    assert (project / "tools" / "clean.sh").read_text() == CLEAN and (project / "tools" / "new").exists()


@pytest.mark.usefixtures("runs_sandbox")
def test_what_an_agent_could_put_in_place_is_asked_for_first(project: Path) -> None:
    for value in ("sed s/one/two/", "git-lfs clean -- %f", "cat"):  # programs of the operator's own
        git(project, "config", "filter.team.smudge", value)
        agent_does(project, "true")
    for setting in ("filter.team.clean ./tools/other.sh", "include.path ../other.gitconfig"):
        before = git(project, "config", setting.split()[0])
        git(project, "config", "--replace-all", *setting.split())
        with pytest.raises(RunnerFailed, match="is not there"):
            agent_does(project, "true")
        git(project, "config", "--replace-all", setting.split()[0], before)


def test_more_than_can_be_looked_at_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "LOOK_SECONDS", 0)
    with pytest.raises(RunnerFailed, match="within 0 seconds"):
        agent_does(project, "true")


@pytest.mark.usefixtures("runs_sandbox")
def test_the_hubs_own_home_stays_hidden_below_a_write_path(project: Path, configure: Callable[..., None]) -> None:
    home = project / "home"
    configure(home=home)
    (home / "worktrees" / "x" / ".git").mkdir(parents=True)
    assert "worktrees" not in agent_does(project, "find home")
