"""Several calls of git in one process: what each is given and answers, and that the rest stops at one that fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nexus.control.runners.git import Git, GitFailed, Step

pytestmark = pytest.mark.usefixtures("runs_git", "git_alone")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    made = Git(str(tmp_path), str(tmp_path / ".git"), writing=(str(tmp_path),))
    made.run("init", "--quiet")
    return made


def test_input_and_output_are_larger_than_a_pipe_and_bounded(git: Git) -> None:
    large = os.urandom(1_000_000)
    written, whole, cut, copied = git.steps(
        Step("hash-object", "-w", "--stdin", input=large),
        Step("cat-file", "blob", -1, largest=len(large)),
        Step("cat-file", "blob", 0, largest=1_000),
        Step("hash-object", "--stdin", input=-2),
    )
    assert (whole.output, whole.cut) == (large, False)
    assert (cut.output, cut.cut) == (large[:1_000], True)
    assert copied.line == written.line


def test_input_that_nobody_reads_holds_up_nothing(git: Git) -> None:
    unread = Step("rev-parse", "--git-dir", input=bytes(1_000_000))
    assert [said.code for said in git.steps(unread, unread)] == [0, 0]


def test_nothing_is_called_after_one_that_fails(git: Git) -> None:
    blob = git.steps(Step("hash-object", "-w", "--stdin", input=b"x"))[0].line
    with pytest.raises(GitFailed, match="no commit yet"):
        git.steps(Step("rev-parse", "--verify", "nothing"), Step("update-ref", "refs/tags/late", blob))
    assert git.run("for-each-ref").output == b""
    none, _ = git.steps(
        Step("rev-parse", "--verify", "nothing", expect=(128,)), Step("update-ref", "refs/tags/made", blob)
    )
    assert none.code == 128 and git.run("for-each-ref").line.endswith("refs/tags/made")
