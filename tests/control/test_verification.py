"""Results that Nexus tests itself, in a real sandbox and with a real git."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from coordination.models import Workspace
from handoffs import check_runs, verdicts
from handoffs.attention import KINDS
from handoffs.models import CheckRun, CheckState, Handoff
from handoffs.transitions import By
from inbox.monitoring import Picture
from nexus.control.models import PoolWorktree
from nexus.control.runners import sandbox
from nexus.control.runners.sandbox import SandboxState
from nexus.control.toolset import CONTROL
from nexus.control.worktrees import trees, verification, worktrees
from nexus.control.worktrees.verification import VERIFICATION
from nexus.core.background_work import work_once
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.operations import dispatch
from nexus.hooks import setup_record
from nexus.hooks.harness import setup_file
from nexus.hooks.setup_record import Record, Written
from nexus.reservations.toolset import FILES
from tests.conftest import LOCAL, OPERATOR, Call, does
from tests.control.test_worktrees import pool, repository
from tests.git import git
from tests.handoffs.conftest import events_of, mail_of
from tests.pages import shown

__all__ = ["pool", "repository"]

Submit = Callable[..., str]


@pytest.fixture(autouse=True)
def confined(runs_sandbox: None) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")


@pytest.fixture
def root(repository: Path) -> Path:
    """The project: a repository with one commit."""
    return repository.resolve()


def review(root: Path, text: str) -> None:
    """Write the checks, and approve them as an operator."""
    (root / "nexus.toml").write_text(f"[checks]\n{text}\n")
    digest = does("checks_list", project_root=str(root))["data"]["digest"]
    answer = does("checks_approve", project_root=str(root), digest=digest)
    assert answer["ok"], answer


@pytest.fixture
def submit(call: Call, team: None, root: Path) -> Submit:
    """A handoff with these criteria that an agent did; its id."""

    def submit(*criteria: str, agent: str = "bob", **more: Any) -> str:
        handoff = claimed(call, root, *criteria, agent=agent, **more)
        complete(call, root, handoff, agent)
        return handoff

    return submit


def claimed(call: Call, root: Path, *criteria: str, agent: str = "bob", **more: Any) -> str:
    """A handoff with these criteria that an agent has; its id."""
    where = {"project_root": str(root)}
    target = {"strategy": "direct", "agent_id": agent}
    work = {"from_agent_id": "ana", "target": target, "visibility": "public", "acceptance_criteria": [*criteria]}
    handoff: str = call("handoff_create", **where, **work, **more)["handoff_id"]
    call("handoff_claim", **where, handoff_id=handoff, agent_id=agent)
    return handoff


def complete(call: Call, root: Path, handoff: str, agent: str = "bob") -> None:
    done = call("handoff_complete", project_root=str(root), handoff_id=handoff, agent_id=agent, result="It is done.")
    assert done["status"] == "SUBMITTED"


def status(handoff: str) -> str:
    return str(does("handoff_read", handoff_id=handoff)["data"]["status"])


def last_run(handoff: str) -> dict[str, Any]:
    run: dict[str, Any] = does("handoff_read", handoff_id=handoff)["data"]["checks"][-1]
    return run


def needs(name: str) -> list[str]:
    """What a person reads of one kind."""
    kind = next(kind for kind in KINDS if kind.name == name)
    return [item.detail for item in kind.find(Picture(now()), 10).needs]


def test_it_waits_while_another_call_reads_the_work(call: Call, root: Path, submit: Submit) -> None:
    made = dispatch.run(
        CONTROL, OPERATOR, "pool_create_agent", {"agent_id": "smith", "cwd": str(root), "worktree": True}
    )
    assert made["ok"], made
    handoff = submit("file:notes.txt", agent="smith")
    with trees.at_work(worktrees.own(PoolWorktree.objects.get())):
        work_once(VERIFICATION)
    run = last_run(handoff)
    assert run["state"] == "waiting" and "another call is at work" in run["why"]
    CheckRun.objects.update(due_at=now())
    work_once(VERIFICATION)
    assert status(handoff) == "COMPLETED" and last_run(handoff)["facts"]["why"] is None


def test_it_completes_what_passes_its_checks(call: Call, root: Path, submit: Submit) -> None:
    review(root, 'tests = "cat notes.txt; ls src >&2"')
    handoff = submit("check:tests", "file:src/main.py", "unchanged:notes.txt")

    work_once(VERIFICATION)

    run = last_run(handoff)
    assert status(handoff) == "COMPLETED"
    assert [(each["criterion"], each["passed"]) for each in run["receipts"]] == [
        ("check:tests", True), ("file:src/main.py", True), ("unchanged:notes.txt", True),
    ]  # fmt: skip
    assert (run["receipts"][0]["code"], run["receipts"][0]["output"]) == (0, "one\nmain.py\n")
    assert events_of(handoff)[-3:] == ["handoff.submitted", "handoff.checked", "handoff.completed"]
    assert "was completed" in mail_of(call, "ana")[-1]["subject"]


def test_it_gives_back_what_fails_a_few_times_and_then_needs_a_person(
    call: Call, root: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch, browser: Client
) -> None:
    monkeypatch.setattr(check_runs, "RETURNS", 1)
    review(root, 'tests = "echo broken; exit 3"')
    handoff = submit("check:tests", "file:missing.txt")

    work_once(VERIFICATION)

    assert status(handoff) == "CLAIMED"
    body = mail_of(call, "bob")[-1]["body"]
    assert "check:tests: exit code 3\nbroken" in body
    assert "file:missing.txt: it does not exist" in body and f"handoff_complete(handoff_id={handoff!r})" in body
    complete(call, root, handoff)
    work_once(VERIFICATION)
    assert status(handoff) == "SUBMITTED"
    assert needs("submitted") == ["bob says that it is done, and check:tests, file:missing.txt failed"]
    page = shown(browser.get(reverse("admin:handoffs_handoff_change", args=[handoff])))
    assert "exit code 3" in page
    assert "broken" in page
    assert "1 file changed, 2 insertions(+)" in page
    assert does("handoff_approve", handoff_id=handoff)["ok"]
    assert status(handoff) == "COMPLETED"


def test_it_asks_the_verifier_once_the_checks_passed(call: Call, refused: Call, root: Path, submit: Submit) -> None:
    handoff = submit("file:notes.txt", "It reads well.")
    verdict = {"project_root": str(root), "handoff_id": handoff, "agent_id": "ana"}

    assert "have not ended" in refused("handoff_accept", **verdict)["message"]
    assert call("handoff_mine", agent_id="ana")["owes"] == []
    work_once(VERIFICATION)

    assert status(handoff) == "SUBMITTED"
    assert "waits for your verdict" in mail_of(call, "ana")[-1]["subject"]
    assert [debt["kind"] for debt in call("handoff_mine", agent_id="ana")["owes"]] == ["verdict"]
    call("handoff_accept", **verdict)
    assert status(handoff) == "COMPLETED"


def test_it_runs_no_command_that_changed_since_its_review(root: Path, submit: Submit, tmp_path: Path) -> None:
    review(root, 'tests = "true"')
    handoff = submit("check:tests")
    (root / "nexus.toml").write_text('[checks]\ntests = "false"\n')

    work_once(VERIFICATION)

    assert (status(handoff), last_run(handoff)["state"]) == ("SUBMITTED", "waiting")
    assert "others than" in needs("submitted")[0]
    review(root, 'tests = "echo new"')
    work_once(VERIFICATION)
    assert status(handoff) == "COMPLETED"


def test_it_refuses_without_a_sandbox(root: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    review(root, 'tests = "touch /tmp/unsandboxed"')
    handoff = submit("check:tests")
    monkeypatch.setattr(sandbox, "state", lambda: SandboxState(False, "there is no bubblewrap (bwrap) on this machine"))

    work_once(VERIFICATION)

    assert status(handoff) == "SUBMITTED"
    assert needs("submitted") == [
        "its checks wait: checks run only in a sandbox, and there is no bubblewrap (bwrap) on this machine"
    ]


def test_it_ends_what_forks_and_never_ends_and_keeps_the_ends_of_its_output(
    root: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_runs, "RETURNS", 0)
    loop = "(while :; do sleep 60 & sleep 60; done) & echo begun; yes lots | head -c 3000000; echo ended; wait"
    review(root, f'tests = {{ run = "{loop}", seconds = 2 }}')
    handoff = submit("check:tests")

    work_once(VERIFICATION)

    receipt = last_run(handoff)["receipts"][0]
    assert receipt["why"] == "it ran longer than 2 seconds, and was ended"
    assert receipt["output"].startswith("begun\nlots")
    assert receipt["output"].endswith("ended\n")
    assert len(receipt["output"]) < 13_000


def test_it_bounds_the_memory_of_a_command(
    root: Path, submit: Submit, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_runs, "RETURNS", 0)
    configure(handoff_check_memory_mib=100)
    review(root, "tests = { run = 'head -c 300M /dev/zero | tail -c 290M | wc -c; echo \"$0\" ended' }")
    handoff = submit("check:tests")

    work_once(VERIFICATION)

    output = last_run(handoff)["receipts"][0]["output"]
    assert "memory exhausted\n0\n" in output and output.endswith("sh ended\n"), output


def test_a_check_writes_nothing_in_the_project_and_what_it_left_running_ends_with_it(
    root: Path, submit: Submit
) -> None:
    review(root, 'plants = "touch /tmp/fine && touch planted; test ! -e planted"\nleaves = "setsid sleep 600 & exit 0"')
    handoff = submit("check:plants", "check:leaves")

    work_once(VERIFICATION)

    assert (status(handoff), (root / "planted").exists()) == ("COMPLETED", False)


def test_it_checks_the_worktree_of_the_agent_that_did_the_work(call: Call, root: Path, submit: Submit) -> None:
    (root / ".gitignore").write_text("built\n")
    git(root, "add", ".gitignore")
    git(root, "commit", "--quiet", "-m", "Ignore")
    review(root, 'tests = "grep two notes.txt && touch built"')
    asked = {"agent_id": "smith", "cwd": str(root), "worktree": True}
    assert dispatch.run(CONTROL, OPERATOR, "pool_create_agent", asked)["ok"]
    tree = PoolWorktree.objects.get()
    made = Path(tree.path)
    (made / "notes.txt").write_text("one\ntwo\n")
    (made / "a\nb.bin").write_bytes(bytes(range(256)))
    git(made, "add", ".")
    git(made, "commit", "--quiet", "-m", "Say two")
    (made / "src" / "main.py").unlink()
    handoff = submit("check:tests", "unchanged:src", agent="smith")

    work_once(VERIFICATION)

    run = last_run(handoff)
    assert [each["passed"] for each in run["receipts"]] == [True, False]
    facts = run["facts"]
    assert (facts["branch"], facts["base"], facts["uncommitted"]) == (tree.branch, tree.base, True)
    assert (facts["commits"], facts["subjects"]) == (1, ["Say two"])
    assert facts["stat"] == "3 files changed, 1 insertion(+), 1 deletion(-)"
    assert facts["files"] == [
        {"path": "a\nb.bin", "added": None, "removed": None},
        {"path": "notes.txt", "added": 1, "removed": 0},
        {"path": "src/main.py", "added": 0, "removed": 1},
    ]
    assert not (made / "built").exists() and not [*(CoreSettings.current().home / trees.SCRATCH).iterdir()]
    assert status(handoff) == "CLAIMED"


def test_what_is_unchanged_among_more_files_than_git_lists_is_for_a_person(
    root: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"agent_id": "smith", "cwd": str(root), "worktree": True}
    assert dispatch.run(CONTROL, OPERATOR, "pool_create_agent", asked)["ok"]
    for name in ("a", "b"):
        (Path(PoolWorktree.objects.get().path) / name).write_text("new\n")
    handoff = submit("unchanged:src", agent="smith")
    with monkeypatch.context() as patched:
        patched.setattr(trees, "RECORDS_BYTES", 150)

        work_once(VERIFICATION)

    run = last_run(handoff)
    assert run["state"] == "waiting" and "more files than git lists" in run["why"]
    CheckRun.objects.update(due_at=now())
    work_once(VERIFICATION)
    assert [each["passed"] for each in last_run(handoff)["receipts"]] == [True]


def test_it_checks_what_the_branch_will_have(root: Path, submit: Submit) -> None:
    review(root, 'tests = "cat src/main.py notes.txt; git status --short; git log --format=%s -2; echo x > notes.txt"')
    asked = {"agent_id": "smith", "cwd": str(root), "worktree": True}
    assert dispatch.run(CONTROL, OPERATOR, "pool_create_agent", asked)["ok"]
    made = Path(PoolWorktree.objects.get().path)
    (made / "notes.txt").write_text("mine\n")
    (made / ".git" / "info" / "exclude").write_text("hidden\n")
    (made / "hidden").write_text("only here\n")
    (root / "src" / "main.py").write_text("theirs\n")
    git(root, "commit", "--quiet", "--all", "-m", "Theirs")
    branches = git(root, "for-each-ref", "refs/heads")
    handoff = submit("check:tests", "file:src", "file:hidden", agent="smith")

    work_once(VERIFICATION)

    receipts = last_run(handoff)["receipts"]
    assert [each["passed"] for each in receipts] == [True, True, False], "what git ignores, the branch will not have"
    assert receipts[0]["output"].startswith("theirs\nmine\nMerge nexus/smith\n")
    assert (made / "notes.txt").read_text() == "mine\n" and (root / "notes.txt").read_text() == "one\n"
    assert git(root, "for-each-ref", "refs/heads") == branches, "no branch moves"


def test_what_cannot_be_merged_comes_back(call: Call, root: Path, submit: Submit) -> None:
    review(root, 'tests = "true"')
    asked = {"agent_id": "smith", "cwd": str(root), "worktree": True}
    assert dispatch.run(CONTROL, OPERATOR, "pool_create_agent", asked)["ok"]
    (Path(PoolWorktree.objects.get().path) / "notes.txt").write_text("mine\n")
    (root / "notes.txt").write_text("theirs\n")
    git(root, "commit", "--quiet", "--all", "-m", "Theirs")
    handoff = submit("check:tests", agent="smith")

    work_once(VERIFICATION)

    assert status(handoff) == "CLAIMED"
    [receipt] = last_run(handoff)["receipts"]
    assert "changed the same places of 'notes.txt'" in receipt["why"]
    assert git(root, "rev-parse", "HEAD") in mail_of(call, "smith")[-1]["body"]


def test_what_a_merge_would_undo_is_a_change(root: Path, submit: Submit) -> None:
    asked = {"agent_id": "smith", "cwd": str(root), "worktree": True}
    assert dispatch.run(CONTROL, OPERATOR, "pool_create_agent", asked)["ok"]
    made = Path(PoolWorktree.objects.get().path)
    (root / "src" / "main.py").write_text("print(2)\n")
    git(root, "commit", "--quiet", "--all", "-m", "Theirs")
    theirs = git(root, "rev-parse", "HEAD")
    git(made, "merge", "--quiet", "-s", "ours", "-m", "Update", theirs)
    handoff = submit("unchanged:src", agent="smith")

    work_once(VERIFICATION)

    run = last_run(handoff)
    assert (run["receipts"][0]["passed"], run["facts"]["base"]) == (False, theirs)
    assert run["facts"]["files"] == [{"path": "src/main.py", "added": 1, "removed": 1}]


def test_its_facts_compare_with_what_was_reserved(call: Call, root: Path, submit: Submit) -> None:
    where = {"project_root": str(root), "agent_id": "bob"}
    record = Record(str(root), {str(root / name): Written(None, "{}\n", [], []) for name in (".mcp.json", "other.txt")})
    setup_file(CoreSettings.current().home, root).parent.mkdir(parents=True, exist_ok=True)
    setup_record.save(CoreSettings.current().home, record)
    (root / ".mcp.json").write_text("{}\n")  # as `nexus setup` wrote it
    assert dispatch.run(FILES, LOCAL, "files_reserve", {**where, "paths": ["src/**", "docs/**"]})["ok"]
    (root / "src" / "main.py").write_text("print(2)\n")
    (root / "other.txt").write_text("\n" * 100_000)
    handoff = submit("file:notes.txt")

    work_once(VERIFICATION)

    facts = last_run(handoff)["facts"]
    assert facts["untouched"] == ["docs/**"]
    assert facts["unreserved"] == ["other.txt"]
    assert facts["stat"] == "3 files changed, 100002 insertions(+), 1 deletion(-)"


@pytest.mark.parametrize("kind", ["none", "empty", "detached", "submodule"])
def test_it_states_what_git_cannot_say(root: Path, submit: Submit, kind: str, tmp_path: Path) -> None:
    if kind == "none":
        (root / ".git").rename(tmp_path / "git")
    elif kind == "empty":
        (root / ".git").rename(tmp_path / "git")
        git(root, "init", "--quiet")
    elif kind == "detached":
        git(root, "checkout", "--quiet", "--detach")
    else:
        git(root / "src", "init", "--quiet")
        git(root / "src", "commit", "--quiet", "--allow-empty", "-m", "Inner")
    handoff = submit("file:notes.txt")

    work_once(VERIFICATION)

    facts = last_run(handoff)["facts"]
    assert status(handoff) == "COMPLETED"
    expected = {"none": "no git repository", "empty": "no commit yet", "detached": None, "submodule": None}[kind]
    assert (facts["why"] or "") == "" if expected is None else expected in facts["why"]


def test_a_link_is_no_file(root: Path, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_runs, "RETURNS", 0)
    (root / "link").symlink_to("/etc/passwd")
    (root / "out").symlink_to("/etc")
    handoff = submit("file:link", "file:out/passwd")

    work_once(VERIFICATION)

    assert [each["passed"] for each in last_run(handoff)["receipts"]] == [False, False]


class TestSeveralProcesses:
    def test_one_takes_a_run_and_another_goes_on_once_it_gives_no_sign_of_life(
        self, submit: Submit, root: Path
    ) -> None:
        handoff = submit("file:notes.txt")
        name = check_runs.name_of(CheckRun.objects.get())
        first = check_runs.claim(name)
        assert first is not None
        assert check_runs.claim(name) is None
        assert work_once(VERIFICATION) == []
        CheckRun.objects.update(due_at=now() - timedelta(seconds=1))  # the first one was killed

        work_once(VERIFICATION)

        assert status(handoff) == "COMPLETED"
        assert not check_runs.renew(first)
        check_runs.put_off(first, "late")
        assert CheckRun.objects.get().state == CheckState.PASSED
        assert events_of(handoff).count("handoff.checked") == 1

    def test_a_verdict_ends_the_checks_that_run(self, submit: Submit, root: Path) -> None:
        handoff = submit("file:missing.txt")
        taken = check_runs.claim(check_runs.name_of(CheckRun.objects.get()))
        assert taken is not None

        verdicts.accept(handoff, By(operator="olga"))

        assert VERIFICATION.settle(taken, VERIFICATION.act(taken)) is False
        assert status(handoff) == "COMPLETED"
        assert CheckRun.objects.get().state == CheckState.DROPPED
        assert "handoff.returned" not in events_of(handoff)

    def test_runs_of_other_machines_hide_none_of_this_one(
        self, submit: Submit, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(verification, "MOST_DUE", 5)
        handoff = submit("file:notes.txt")
        run = CheckRun.objects.get()
        moment = now()
        far = Workspace.objects.create(
            workspace_id="ws_far", root_realpath="/far", created_at=moment, last_seen_at=moment
        )
        for number in range(15):
            other = Handoff.objects.get(pk=handoff)
            other.pk, other.created_event_id, other.workspace = f"hnd_{number}", -number - 1, far
            other.save(force_insert=True)
            since = run.due_at - timedelta(hours=1)
            CheckRun.objects.create(handoff=other, claim_epoch=1, state=run.state, due_at=since, created_at=since)

        found = {queue for _ in range(50) for queue in VERIFICATION.queues()}

        assert found == {check_runs.name_of(run)}


def test_a_commit_in_the_projects_directory_is_evidence_that_anybody_may_have_made(
    call: Call, root: Path, submit: Submit
) -> None:
    mail = {"project_root": str(root), "from_agent_id": "ana", "subject": "s", "body": "b"}
    sent = call("message_create", **mail, target={"strategy": "direct", "agent_id": "bob"})["message_id"]
    handoff = claimed(call, root, "file:notes.txt")
    Handoff.objects.update(claimed_at=now() - timedelta(seconds=10))  # git's times are whole seconds
    git(root, "commit", "--quiet", "--allow-empty", "-m", f"Do it\n\nNexus-Message: {sent}")
    complete(call, root, handoff)
    work_once(VERIFICATION)
    (receipt,) = call("message_receipts", message_id=sent)["receipts"]
    head = git(root, "rev-parse", "HEAD").strip()
    where_from = f"in {root}, where anybody may commit, as its text says"
    assert receipt["stages"][-1]["evidence"] == [f"commit {head[:12]} {where_from}"]
