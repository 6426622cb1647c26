"""Merge commits by the operator, with their address and signature, as the remotes of teams want them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nexus.control.models import MergeState, PoolWorktree, WorktreeMerge
from nexus.control.runners import git as runners_git
from nexus.control.worktrees import merging
from tests.control.test_kinds_of_repositories import home
from tests.control.test_lane import Make, ended, make, needing, queue, refused
from tests.control.test_worktrees import does, pool, repository
from tests.git import git

__all__ = ["home", "make", "pool", "repository"]

ADDRESS = "olga@work.example"
# What a team's remote may ask: the address of each commit, a signature of those on its branch.
HOOK = f"""#!/bin/sh
while read old new ref; do
  test "$(git log --format=%ae,%ce "$old..$new" | sort -u)" = {ADDRESS},{ADDRESS} || exit 1
  for commit in $(git rev-list --first-parent "$old..$new"); do git verify-commit "$commit" || exit 1; done
done
"""


def key(home: Path, passphrase: str = "") -> Path:
    """Make a key of ssh that signs for the operator, and let their git use it."""
    path = home / "key"
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    (home / "signers").write_text(f"{ADDRESS} {path.with_suffix('.pub').read_text()}")
    (home / "work.gitconfig").write_text(f"[user]\n\temail = {ADDRESS}\n")
    (home / ".gitconfig").write_text(
        "[user]\n\tname = Olga\n\temail = olga@home.example\n\tsigningKey = ~/key\n[commit]\n\tgpgSign\n"
        '[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tallowedSignersFile = ~/signers\n'
        f'[includeIf "gitdir:{home.parent}/repository/"]\n\tpath = work.gitconfig\n'
    )
    return path


@contextmanager
def unlocked(path: Path, passphrase: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a key to an agent of ssh, as `ssh-add` does."""
    says = path.with_name("says")
    says.write_text(f"#!/bin/sh\necho {passphrase}\n")
    says.chmod(0o700)
    with tempfile.TemporaryDirectory(prefix="ssh-") as short:
        monkeypatch.setenv("SSH_AUTH_SOCK", f"{short}/agent")
        with subprocess.Popen(["ssh-agent", "-D", "-a", f"{short}/agent"], stdout=subprocess.PIPE) as agent:
            try:
                assert agent.stdout is not None and agent.stdout.readline()
                asks = os.environ | {"SSH_ASKPASS": str(says), "SSH_ASKPASS_REQUIRE": "force"}
                subprocess.run(["ssh-add", "-q", str(path)], check=True, env=asks, stdin=subprocess.DEVNULL)
                yield
            finally:
                agent.terminate()


@pytest.fixture
def gnupg(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the operator's git sign with a key of GnuPG."""
    if shutil.which("gpg") is None:
        pytest.skip("no gpg")
    with tempfile.TemporaryDirectory(prefix="gnupg-") as short:  # its agent's socket has a path that must be short
        monkeypatch.setenv("GNUPGHOME", short)
        made = ["gpg", "--quiet", "--batch", "--passphrase", "", "--quick-generate-key", f"Olga <{ADDRESS}>", "ed25519"]
        subprocess.run(made, check=True, capture_output=True)
        (home / ".gitconfig").write_text(f"[user]\n\tname = Olga\n\temail = {ADDRESS}\n[commit]\n\tgpgSign = yes\n")
        yield
        subprocess.run(["gpgconf", "--kill", "all"], check=True)


@pytest.fixture
def signs(home: Path) -> None:
    """Let the operator's git sign with a key of ssh."""
    key(home)


@pytest.fixture
def as_operator(configure: Callable[..., None]) -> None:
    """Merges are by the operator."""
    configure(pool_commit_as="operator")


def pushed(repository: Path) -> bool:
    """Return whether a remote with a hook takes the main branch."""
    remote = repository.parent / "remote.git"
    if not remote.exists():
        git(repository, "clone", "--quiet", "--bare", str(repository), str(remote))
        hook = remote / "hooks" / "pre-receive"
        hook.write_text(HOOK)
        hook.chmod(0o755)
    return subprocess.run(["git", "push", "--quiet", str(remote), "main"], cwd=repository, check=False).returncode == 0


@pytest.mark.parametrize("signature", ["signs", "gnupg"])
def test_a_remote_takes_the_merge_if_it_is_by_the_operator(
    request: pytest.FixtureRequest,
    configure: Callable[..., None],
    make: Make,
    repository: Path,
    signature: str,
) -> None:
    request.getfixturevalue(signature)
    pushed(repository)
    trap = repository.parent / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {trap}.sprung\nexit 1\n")
    trap.chmod(0o755)
    programs = ("gpg.program", "gpg.ssh.program", "gpg.ssh.defaultKeyCommand", "core.fsmonitor")
    others = {"user.email": "repository@example.org", "gpg.format": "x509", "commit.gpgSign": "false"}
    theirs = dict.fromkeys(programs, str(trap)) | others
    for name, value in theirs.items():  # no setting of the repository counts
        git(repository, "config", name, value)

    def merge(agent_id: str) -> None:
        place = make(agent_id, **{agent_id: "1\n"})
        git(place, "add", ".")
        commits = ["git", "-c", "commit.gpgSign=no", "commit", "--quiet", "-m", "By the agent"]
        subprocess.run(commits, cwd=place, check=True)
        (place / "more.txt").touch()
        entry = ended(queue(agent_id))
        assert (entry.state, entry.result) == (MergeState.MERGED, entry.approved)

    configure(pool_commit_as="operator")
    merge("smith")
    for name in theirs:
        git(repository, "config", "--unset", name)
    assert pushed(repository) and (repository / "smith.txt").exists()
    assert git(repository, "log", "-1", "--format=%an, %cn") == "Olga, Olga"
    configure(pool_commit_as="nexus")
    merge("other")
    assert git(repository, "log", "-1", "--format=%ae %G?") == "nexus@localhost N" and not pushed(repository)
    assert not Path(f"{trap}.sprung").exists()


@pytest.mark.usefixtures("as_operator")
def test_what_cannot_be_signed_is_for_a_person_who_is_told_what_to_do(
    home: Path, make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key(home)
    make("smith", mine="1\n")
    merge = queue("smith")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Theirs")
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", str(path)], check=True)
    entry = ended(merge)
    assert (entry.state, entry.cause, entry.needs_person, needing()) == (MergeState.RETURNED, "refused", True, 1)
    assert "git cannot commit the merge as you" in entry.why and "`ssh-add`" in entry.why
    before = git(repository, "for-each-ref", "refs/heads/main")
    assert "unlock your key (`ssh-add`" in refused(agent_id="smith")
    assert git(repository, "for-each-ref", "refs/heads/main") == before
    with unlocked(path, "secret", monkeypatch):
        assert ended(queue("smith")).state == MergeState.MERGED
    assert git(repository, "log", "-1", "--format=%G?") == "G"


@pytest.mark.usefixtures("as_operator")
def test_an_operator_without_a_name_is_told_so(home: Path, make: Make) -> None:
    make("smith", mine="1\n")
    assert "no email was given" in refused(agent_id="smith")


@pytest.mark.usefixtures("as_operator", "sandboxed")
def test_a_program_that_does_not_end_holds_nobody_up(
    home: Path, make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key(home)
    make("smith", mine="1\n")
    waits = home / "waits"
    waits.write_text("#!/bin/sh\nexec sleep 600\n")
    waits.chmod(0o755)
    git(repository, "config", "--file", str(home / ".gitconfig"), "gpg.ssh.program", str(waits))
    monkeypatch.setattr(runners_git, "SIGNING_SECONDS", 1)
    assert "longer than 1 seconds" in refused(agent_id="smith")


@pytest.mark.usefixtures("as_operator", "signs")
def test_a_second_try_takes_the_commit_of_the_first(
    configure: Callable[..., None], make: Make, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("smith", mine="1\n")
    merge = queue("smith")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Theirs")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(merging, "fast_forward", killed)
        ended(merge)
    first = WorktreeMerge.objects.get().result
    configure(pool_commit_as="nexus")  # by which another commit would be made
    assert first and (ended(merge).state, git(repository, "rev-parse", "main")) == (MergeState.MERGED, first)


@pytest.mark.usefixtures("as_operator", "signs")
def test_what_is_merged_into_an_agents_worktree_is_not_by_the_operator(make: Make, repository: Path) -> None:
    place = make("lead")
    assert does("pool_create_agent", agent_id="smith", cwd=str(place), worktree=True)["ok"]
    (Path(PoolWorktree.objects.get(agent__agent_id="smith").path) / "new.txt").touch()
    assert ended(queue("smith")).state == MergeState.MERGED
    assert git(place, "log", "-1", "--format=%ce %G?") == "nexus@localhost N"
