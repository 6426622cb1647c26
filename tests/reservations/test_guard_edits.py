"""What a client's hook says before an agent edits a file."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nexus.core.coding_clients import HOOKED, TOOLS
from nexus.hooks import entry
from nexus.hooks import harness as dialects
from nexus.reservations.guard import hooks
from nexus.reservations.hook import handle
from tests.conftest import Furnish
from tests.hooks.harness import Harness
from tests.reservations.git import Held, Repo

pytestmark = pytest.mark.sqlite  # the store is a file, and rows are put into it
BEFORE = {"gemini": "BeforeTool", "cursor": "preToolUse"}  # elsewhere PreToolUse


@pytest.fixture
def held(tmp_path: Path, furnish: Furnish) -> Held:
    return Held(furnish(tmp_path / "home"))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A project that looks like a repository to the guard, which reads git's files."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "shop" / "src").mkdir()
    return tmp_path / "shop"


class Hook:
    """Calls of the hook at the point before a tool, as agent ben."""

    def __init__(self, held: Held, root: Path) -> None:
        self.held, self.root = held, root

    def before(
        self,
        *files: str,
        mode: str = "tell",
        client: str = "claude-code",
        tool: str | None = None,
        cwd: str = "",
        **asked: Any,
    ) -> str:
        """What the hook prints."""
        tool = tool or TOOLS[client].editing[0]
        patch = "".join(f"*** Update File: {file}\n" for file in files)
        asked = asked or (
            {"command": f"*** Begin Patch\n{patch}"} if client == "codex" else {"file_path": "".join(files)}
        )
        payload = {
            "hook_event_name": BEFORE.get(client, "PreToolUse"),
            "tool_name": tool,
            "tool_input": asked,
            "cwd": cwd,
        }
        given = ["--client", client, "--agent-id", "ben", "--project", str(self.root)]
        settings = SimpleNamespace(
            guard_edits=mode, database_url=None, database=self.held.file, home=self.held.file.parent
        )
        return entry.respond(settings, dialects.parse_call(given, {}, json.dumps(payload)), lambda: None)


@pytest.fixture
def hook(held: Held, top: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    monkeypatch.setattr(entry, "HANDLERS", [handle])
    return Hook(held, top)


def test_it_tells_the_agent_before_it_edits_what_another_holds(hook: Hook, held: Held, top: Path) -> None:
    held.reserve("ann", top, "/src", reason="the parser")
    said = json.loads(hook.before("src/b.py"))["hookSpecificOutput"]
    assert said["hookEventName"] == "PreToolUse"
    assert "permissionDecision" not in said
    told = said["additionalContext"]
    assert 'You are agent "ben". A file that this edit changes is held by another agent:' in told
    assert 'src/b.py: held by "ann" until' in told
    assert '"the parser"' in told


@pytest.mark.parametrize("client", HOOKED)
def test_it_tells_or_stops_in_each_clients_words(hook: Hook, held: Held, top: Path, client: str) -> None:
    held.reserve("ann", top, "a.py")
    told = json.loads(hook.before(str(top / "a.py"), client=client))
    stopped = json.loads(hook.before(str(top / "a.py"), client=client, mode="stop"))
    heard = {"gemini": "systemMessage", "qwen": "systemMessage", "cursor": "user_message"}
    assert told.keys() == {heard.get(client, "hookSpecificOutput")}
    denials = [stopped.get("permission"), stopped.get("decision")]
    denials.append(stopped.get("hookSpecificOutput", {}).get("permissionDecision"))
    assert "deny" in denials
    assert "The edit was refused" in json.dumps(stopped)
    assert hook.before("a.py", client=client, mode="off") == ""


def test_it_says_nothing_where_nobody_else_holds_the_file(hook: Hook, held: Held, top: Path) -> None:
    held.reserve("ben", top, "a.py")
    held.reserve("ann", top, "/src", exclusive=False)
    held.reserve("ann", top, "/docs")
    for file in ("a.py", "src/b.py", "new/c.py", "/elsewhere", "../out.py"):
        assert hook.before(file, mode="stop") == ""
    assert hook.before("docs/x.md", mode="stop", tool="Read") == ""
    assert hook.before(mode="stop", other="x") == ""
    held.file.unlink()
    assert hook.before("docs/x.md", mode="stop") == ""


def test_it_sees_every_file_of_a_patch_and_where_it_moves_one(hook: Hook, held: Held, top: Path) -> None:
    held.reserve("ann", top, "/src")
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: src/c.py\n@@\n"
    said = hook.before(client="codex", mode="stop", command=patch)
    assert "src/c.py" in said
    assert "a.py:" not in said


@pytest.mark.parametrize("client", HOOKED)
@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        ("Edit", {"file_path": "c.py", "new_string": ""}),
        ("NotebookEdit", {"notebook_path": "./c.py", "new_source": ""}),
        ("MultiEdit", {"edits": [{"file_path": "../src/c.py"}]}),
        ("write_file", {"path": "file://{top}/src/c.py", "content": ""}),
        ("apply_patch", {"input": "\n*** Begin Patch\n*** Update File: c.py\n"}),
        ("shell", {"command": ["bash", "-lc", "apply_patch <<'E'\n*** Begin Patch\n*** Update File: c.py\nE"]}),
        ("Bash", {"command": "cd .. && apply_patch <<'E'\n*** Begin Patch\n*** Add File: src/c.py\nE"}),
        ("Bash", {"command": "git apply <<E\n--- a/c.py\n+++ b/c.py\n@@ -1 +1 @@\n-x\n+y\nE"}),
    ],
)
def test_it_stops_every_spelling_of_an_edit(
    hook: Hook, held: Held, top: Path, client: str, tool: str, asked: dict[str, Any]
) -> None:
    held.reserve("ann", top, "/src")
    asked = {name: value.replace("{top}", str(top)) if name == "path" else value for name, value in asked.items()}
    said = hook.before(client=client, mode="stop", tool=tool, cwd=str(top / "src"), **asked)
    assert "The edit was refused" in said and "src/c.py: held by" in said


def test_it_knows_links_and_projects_without_git(hook: Hook, held: Held, top: Path, tmp_path: Path) -> None:
    held.reserve("ann", top, "/src/b.py", "/made")
    (top / "link.py").symlink_to("src/b.py")
    assert "src/b.py" in hook.before("link.py")
    assert "made/deep/new.py" in hook.before("made/deep/new.py")
    hook.root = tmp_path / "plain"
    hook.root.mkdir()
    held.reserve("ann", hook.root, "a.py")
    assert "a.py" in hook.before("a.py")


def test_it_knows_the_work_trees_that_git_makes(hook: Hook, held: Held, runs_git: None, tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repository")
    held.reserve("ann", repo.top, "/src/b.py")
    repo.ok("worktree", "add", "-q", str(tmp_path / "other"))
    assert "src/b.py" in hook.before(str(tmp_path / "other" / "src/b.py"))


def test_it_lets_an_edit_pass_when_the_store_cannot_be_read(
    hook: Hook, held: Held, capsys: pytest.CaptureFixture[str]
) -> None:
    held.file.write_bytes(b"no database" * 1000)
    assert hook.before("a.py", mode="stop") == ""
    assert "[nexus] hook:" in capsys.readouterr().err


def test_it_makes_the_agent_known_to_the_commands_of_its_session(
    hook: Hook, starts_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_ENV_FILE", str(tmp_path / "exports"))
    for agent_id in ("ben", "it's me"):
        text = json.dumps({"hook_event_name": "SessionStart", "cwd": str(hook.root)})
        monkeypatch.setattr(entry, "_mail", lambda *_: "")
        entry.respond(
            SimpleNamespace(guard_edits="tell", home=tmp_path),
            dialects.parse_call(["--agent-id", agent_id], {}, text),
            lambda: None,
        )
    said = subprocess.check_output(["sh", "-c", f". '{tmp_path}/exports'; echo $NEXUS_AGENT_ID"], text=True)
    assert said == "it's me\n"


@pytest.mark.usefixtures("starts_processes")
def test_it_is_called_as_a_harness_calls_it(held: Held, top: Path) -> None:
    held.reserve("ann", top, "a.py")
    harness = Harness(held.home, top)
    edit = {"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": str(top / "a.py")}}
    called = harness.hook("--agent-id", "ben", text=json.dumps(edit), NEXUS_GUARD_EDITS="stop")
    assert json.loads(called.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert called.stderr == ""


# Before a line of shell


@pytest.fixture
def repo(runs_git: None, tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "shop")


LINES = {
    "git commit -m 'mine; and more'": "a.py",
    "git commit --no-verify -qm x": "a.py",
    "git add . && git commit -m x": "a.py src/b.py",
    "git commit -am x": "a.py src/b.py",
    "cd src; git -c user.name=x commit -m x": "a.py src/b.py",
    "git push origin main": "c.py",
    "git status; echo commit": "",
    "git commit-graph verify": "",
    "ls": "",
}


@pytest.mark.parametrize("line", LINES)
def test_it_refuses_commits_that_a_client_runs_without_gits_hooks(held: Held, repo: Repo, line: str) -> None:
    repo.change("c.py")
    repo.ok("commit", "-qm", "not pushed")
    repo.ok("update-ref", "refs/remotes/origin/main", "HEAD~1")
    held.guard(repo)
    held.reserve("ann", repo.top, "*.py")
    repo.change("a.py")
    repo.write("src/b.py")
    harness = Harness(held.home, repo.top)
    call = {"hook_event_name": "BeforeTool", "tool_name": "run_shell_command", "tool_input": {"command": line}}
    told = harness.hook("--client", "gemini", "--agent-id", "ben", text=json.dumps(call))
    assert told.stderr == ""
    reason = json.loads(told.stdout)["reason"] if told.stdout else ""
    assert " ".join(sorted(re.findall(r"^  (\S+): held by", reason, re.MULTILINE))) == LINES[line]
    assert ("as a command of its own" in reason) is (" " in LINES[line])
    assert not LINES[line] or 'You are agent "ben"' in reason


@pytest.mark.parametrize("how", ["git -C {} commit -nm x", "cd '{}' && git commit -nm x", "git commit -nm x"])
def test_it_looks_at_the_work_tree_in_which_a_line_commits(held: Held, repo: Repo, tmp_path: Path, how: str) -> None:
    held.guard(repo)
    held.reserve("ann", repo.top, "*.py")
    other = tmp_path / "other"
    repo.ok("worktree", "add", "-q", str(other))
    (other / "b.py").write_text("mine")
    repo.ok("-C", str(other), "add", "b.py")
    call = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": how.format(other)},
        "cwd": str(repo.top if "{}" in how else other),
    }
    given = ("--client", "codex", "--agent-id", "ben", "--project", str(repo.top))
    said = Harness(held.home, repo.top).hook(*given, text=json.dumps(call)).stdout
    assert "b.py: held by" in json.loads(said)["hookSpecificOutput"]["permissionDecisionReason"]


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_it_leaves_to_gits_hooks_what_runs_them(held: Held, repo: Repo, client: str) -> None:
    held.guard(repo)
    held.reserve("ann", repo.top, "*.py")
    repo.change("a.py")
    harness = Harness(held.home, repo.top)

    def said(line: str) -> str:
        call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": line}}
        return harness.hook("--client", client, "--agent-id", "ben", text=json.dumps(call)).stdout

    assert said("git commit -m x") == ""
    for line in ("git commit -nm x", "git commit -m x --no-verify", "git -c core.hooksPath= commit -m x"):
        assert json.loads(said(line))["hookSpecificOutput"]["permissionDecision"] == "deny"
    hooks.uninstall(str(repo.top))
    assert said("git commit -nm x") == ""
