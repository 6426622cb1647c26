"""What published agents tell of their calls, bit by bit as they do, and what the transcript has of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from acp import RequestError
from acp.schema import AllowedOutcome, PermissionOption, SessionNotification, ToolCallUpdate

from nexus.control.agents.questions import Decision
from nexus.control.models import Role
from nexus.control.permissions.rules import Effect, Kind, Permissions, Preset, Rule
from nexus.control.runners.acp_client import PoolClient
from nexus.control.runners.base import Scene

OPTIONS = [
    PermissionOption(kind="allow_once", name="Allow", option_id="yes"),
    PermissionOption(kind="reject_once", name="Refuse", option_id="no"),
]


@dataclass
class Told:
    """A client in a turn, told and asked things as JSON; what it wrote into the transcript, and asked people."""

    cwd: str
    entries: list[tuple[Role, str, Mapping[str, Any]]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    preset: Preset = Preset.SANDBOXED
    allows: bool = False  # what a person says
    known: list[Rule] = field(default_factory=list)  # rules of permissions

    def __post_init__(self) -> None:
        writes = (f"{self.cwd}/out",) if self.preset is Preset.SANDBOXED else (self.cwd,)
        self.permissions = Permissions(self.preset, self.cwd, writes)
        agent = SimpleNamespace(pk="agent", owner="agent", permissions=self.permissions)
        turn = SimpleNamespace(pk="turn")
        unused = cast(Any, None)
        scene = Scene(cast(Any, agent), cast(Any, turn), unused, self._say, self._ask, unused, rules=self._rules)
        self.client = PoolClient(scene, unused, 100)

    async def tell(self, *updates: Mapping[str, Any]) -> None:
        for update in updates:
            told = SessionNotification.model_validate({"sessionId": "s", "update": update})
            await self.client.session_update("s", told.update)

    async def ask(self, **call: Any) -> str:
        asked = await self.client.request_permission("s", ToolCallUpdate.model_validate(call), OPTIONS)
        assert isinstance(asked.outcome, AllowedOutcome)
        return asked.outcome.option_id

    def calls(self) -> list[dict[str, Any]]:
        return [call for _, _, meta in self.entries for call in meta.get("tool_calls", [])]

    def said(self) -> list[tuple[Role, str]]:
        return [(role, content) for role, content, _ in self.entries]

    async def _say(self, role: Role, content: str, *, tool_call_id: str | None = None, meta: Any = None) -> None:
        self.entries.append((role, content, meta or {}))

    async def _rules(self) -> Sequence[Rule]:
        return self.known

    async def _ask(self, kind: str, title: str, detail: str, *, subject: str, **_: Any) -> Decision:
        self.asked.append((subject, detail))
        return Decision(True) if self.allows else Decision(False, "Not there.")


@pytest.fixture
def told(tmp_path: Path, configure: Callable[..., None]) -> Told:
    configure(home=tmp_path / "home")
    place = tmp_path / "place"
    (place / "out").mkdir(parents=True)
    return Told(str(place))


@pytest.fixture
def trusted(told: Told) -> Told:
    return Told(told.cwd, preset=Preset.TRUSTED)


def written(path: str) -> list[dict[str, Any]]:
    """A call as Claude's adapters tell of it: its name, and its input behind it."""
    begun = {"sessionUpdate": "tool_call", "toolCallId": "a", "status": "pending", "kind": "edit"}
    empty = {"title": "Preparing file…", "rawInput": {}, "content": [], "locations": []}
    diff = {"type": "diff", "path": path, "oldText": None, "newText": "new"}
    more = {"sessionUpdate": "tool_call_update", "toolCallId": "a", "title": "Write new.txt"}
    given = {"rawInput": {"file_path": path, "content": "new"}, "content": [diff], "locations": [{"path": path}]}
    return [{**begun, **empty}, {**more, **given}]


async def test_a_call_has_what_came_behind_its_name(told: Told) -> None:
    path = f"{told.cwd}/out/new.txt"
    done = {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed", "rawOutput": "Created."}
    await told.tell(*written(path), done)
    assert told.calls() == [
        {
            "id": "turn-0",
            "name": "Write new.txt",
            "kind": "edit",
            "arguments": {"file_path": path, "content": "new"},
            "locations": [path],
            "diffs": [{"path": path, "old": None, "new": "new"}],
        }
    ]
    assert told.entries[-1] == (Role.TOOL, "Created.", {"status": "completed"})


async def test_a_call_that_changes_later_stands_with_its_result(told: Told) -> None:
    begun = {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "bash", "kind": "execute"}
    more = {"sessionUpdate": "tool_call_update", "toolCallId": "a"}
    await told.tell(
        {**begun, "rawInput": {"cwd": "/x"}},
        {**more, "rawInput": {"cwd": "/x", "command": "ls"}, "title": "ls", "status": "in_progress"},
        {**more, "status": "completed", "content": [{"type": "content", "content": {"type": "text", "text": "files"}}]},
    )
    role, content, meta = told.entries[-1]
    assert (role, content) == (Role.TOOL, "files")
    assert meta["call"] == {
        "id": "turn-0",
        "name": "ls",
        "kind": "execute",
        "arguments": {"cwd": "/x", "command": "ls"},
    }


async def test_a_call_without_an_input_is_told_at_once(told: Told) -> None:
    await told.tell({"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Stall", "kind": "other"})
    assert [call["name"] for call in told.calls()] == ["Stall"]


async def test_calls_stand_before_what_came_behind_them(told: Told) -> None:
    await told.tell(
        {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Read", "status": "pending", "rawInput": {}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Meanwhile."}},
    )
    await told.client.finish()
    assert [role for role, _ in told.said()] == [Role.ASSISTANT, Role.ASSISTANT, Role.TOOL]
    assert told.said()[1] == (Role.ASSISTANT, "Meanwhile.")


async def test_a_request_for_permission_is_judged_with_what_is_known_of_its_call(told: Told) -> None:
    path = f"{told.cwd}/out/new.txt"
    await told.tell(*written(path))
    assert await told.ask(toolCallId="a", rawInput={"file_path": path}, title="Write new.txt") == "yes"
    assert told.asked == []


async def test_a_kind_that_is_none_does_not_hide_the_known_one(told: Told) -> None:
    """opencode asks for a directory outside with the call's id and a kind of its own."""
    path = "/elsewhere/new.txt"
    await told.tell(*written(path))
    locations = [{"path": path}, {"path": "/elsewhere"}]
    assert await told.ask(toolCallId="a", title="/elsewhere", kind="other", locations=locations) == "no"
    assert told.asked == []
    await told.tell({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "failed", "rawOutput": "no"})
    meta = told.entries[-1][2]
    assert meta["status"] == "failed" and "outside of the agent's directory" in meta["refused"]


async def test_a_person_is_asked_about_the_place_and_the_change(told: Told) -> None:
    path = f"{told.cwd}/elsewhere"
    await told.tell(*written(path))
    assert await told.ask(toolCallId="a") == "no"
    [(subject, detail)] = told.asked
    assert subject == f"write {path}" and "new" in detail
    await told.client.finish()
    assert told.entries[-1][2]["refused"] == "Not there."


async def test_a_person_is_asked_about_the_call_where_it_has_no_place(told: Told) -> None:
    assert await told.ask(toolCallId="a", title="To other", kind="other") == "no"
    assert [subject for subject, _ in told.asked] == ["other To other"]


async def test_files_and_terminals_are_what_the_permissions_allow(told: Told, tmp_path: Path) -> None:
    place = Path(told.cwd)
    (place / "here").write_text("what is here")
    (tmp_path / "secret").write_text("s3cret")
    (place / "link").symlink_to(tmp_path / "secret")
    assert (await told.client.read_text_file("s", f"{place}/here")).content == "what is here"
    await told.client.write_text_file("s", f"{place}/out/new", "text")
    assert (place / "out" / "new").read_text() == "text"
    for rule, refused in (
        ("cwd", told.client.read_text_file("s", f"{place}/../secret")),
        ("cwd", told.client.read_text_file("s", f"{place}/link")),
        ("write_paths", told.client.write_text_file("s", f"{place}/out/../here", "text")),
        ("tools", told.client.create_terminal("s", "echo hi", None)),
    ):
        with pytest.raises(RequestError) as error:
            await refused
        assert cast(Any, error.value.data)["rule"] == rule
    assert (place / "here").read_text() == "what is here"


async def test_a_permission_may_come_before_its_call(told: Told) -> None:
    """Gemini tells of a call only once it may be made."""
    assert await told.ask(toolCallId="a", title="echo hi", kind="execute", status="pending") == "no"
    assert [call["name"] for call in told.calls()] == ["echo hi"]


BUS = [
    {"title": "mcp__nexus__message_send", "kind": "other"},  # Claude's adapters
    {"title": "nexus_message_send", "kind": "other"},  # opencode
    {"title": "message_send (nexus MCP Server)", "kind": "other"},  # Gemini, Qwen
    {"title": "mcp.nexus.message_send", "kind": "execute",
     "rawInput": {"server": "nexus", "tool": "message_send", "arguments": {}}},  # Codex
]  # fmt: skip


@pytest.mark.parametrize("call", BUS)
async def test_calls_of_the_bus_pass(told: Told, call: dict[str, Any]) -> None:
    assert await told.ask(toolCallId="a", **call) == "yes" and told.asked == []


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"files": [{"path": "a"}, {"path": "out/b"}]}, "yes"),
        ({"files": ["a"]}, "yes"),
        ({"files": [{"path": "a"}, {"path": "/etc/passwd"}]}, "no"),
        ({"path": "a", "more": {"other": "/etc/passwd"}}, "no"),
        ({"path": "a", "other": "../../x"}, "no"),
    ],
)
async def test_a_read_that_names_its_files_in_its_input_alone_is_judged_by_them(
    told: Told, given: dict[str, Any], chosen: str
) -> None:
    assert await told.ask(toolCallId="a", title="read_files", kind="read", rawInput=given) == chosen
    assert told.asked == []


async def test_what_is_said_only_to_ask_is_no_news_of_the_call(told: Told) -> None:
    """Codex asks for its call of a tool with a title and an input of the question's own."""
    given = {"server": "nexus", "tool": "message_send", "arguments": {"content": "hi"}}
    begun = {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Tool: nexus/message_send", "rawInput": given}
    await told.tell({**begun, "status": "in_progress"})
    question = {"title": "Approve MCP tool call", "rawInput": {"server_name": "nexus", "request": {}}}
    assert await told.ask(toolCallId="a", **question) == "yes"
    assert told.asked == []
    await told.tell({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed", "rawOutput": "ok"})
    assert told.calls()[0]["arguments"] == given and "call" not in told.entries[-1][2]


@pytest.mark.parametrize(
    "call",
    [
        {"title": "mcp__nexus__message_send", "kind": "execute", "rawInput": {"command": "mcp__nexus__message_send"}},
        {"title": "x", "kind": "execute", "rawInput": {"server": "nexus", "tool": "x", "command": "rm"}},
        {"title": "mcp__other__message_send", "kind": "execute"},
    ],
)
async def test_a_command_that_looks_like_a_call_of_the_bus_is_a_command(told: Told, call: dict[str, Any]) -> None:
    assert await told.ask(toolCallId="a", **call) == "no"


@pytest.mark.parametrize("program", ["gemini-cli", "qwen-code"])
async def test_a_file_that_is_not_there_is_told_as_the_agent_understands_it(told: Told, program: str) -> None:
    told.client.program = program
    if program == "gemini-cli":
        assert (await told.client.read_text_file("s", f"{told.cwd}/new")).content == ""
    else:
        with pytest.raises(RequestError, match="Resource not found") as refused:
            await told.client.read_text_file("s", f"{told.cwd}/new")
        assert refused.value.code == -32_002
    with pytest.raises(RequestError) as refused:
        await told.client.read_text_file("s", told.cwd)
    assert refused.value.code != -32_002, "what is there and no file, is not new"


async def test_only_what_was_said_is_said_and_each_message_alone(told: Told) -> None:
    def chunk(text: str, message: str | None) -> dict[str, Any]:
        content = {"type": "text", "text": text}
        return {"sessionUpdate": "agent_message_chunk", "content": content, "messageId": message}

    await told.tell(chunk("", None), chunk("A warn", None), chunk("ing.", None), chunk("", "1"), chunk("One.", "1"))
    await told.tell(chunk("", "1"), chunk("Two.", "2"))
    await told.client.finish()
    assert told.said() == [(Role.ASSISTANT, text) for text in ("A warning.", "One.", "Two.")]


# Rules of permissions


def rule(effect: str, kind: str, pattern: str = "") -> Rule:
    return Rule(3, Effect(effect), Kind(kind), pattern)


async def test_a_rule_decides_what_a_person_would_be_asked(told: Told) -> None:
    place = f"{told.cwd}/notes"
    asked = {"toolCallId": "a", "kind": "edit", "title": "Edit notes", "locations": [{"path": place}]}
    assert await told.ask(**asked) == "no" and len(told.asked) == 1
    told.known = [rule("allow", "write", "notes")]
    assert await told.ask(**asked) == "yes" and len(told.asked) == 1
    await told.client.write_text_file("s", place, "text")
    assert Path(place).read_text() == "text"
    told.known = []  # taken back
    with pytest.raises(RequestError, match="may not be written"):
        await told.client.write_text_file("s", place, "more")
    assert await told.ask(**asked) == "no" and len(told.asked) == 2
    await told.tell({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed"})
    assert "by_rule" not in told.entries[-1][2], "the last decision is told"


async def test_the_rule_that_decided_is_in_the_transcript(told: Told) -> None:
    told.known = [rule("allow", "write", "notes")]
    await told.ask(toolCallId="a", kind="edit", title="Edit", locations=[{"path": "notes"}])
    await told.tell({"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "completed"})
    assert told.entries[-1][2]["by_rule"] == "allowed by rule 3 (allow write at and below notes)"


@pytest.mark.parametrize(
    ("call", "pattern"),
    [
        ({"kind": "edit", "locations": [{"path": "out/a"}]}, ("write", "out/*")),
        ({"kind": "delete", "locations": [{"path": "out"}]}, ("write", "out")),
        ({"kind": "read", "rawInput": {"path": "x/../.env"}}, ("read", "**/.env")),
        ({"kind": "other", "title": "mcp__github__push"}, ("other", "other mcp__github__*")),
    ],
)
async def test_a_rule_denies(told: Told, call: dict[str, Any], pattern: tuple[str, str]) -> None:
    told.known = [rule("deny", *pattern), rule("allow", pattern[0])]
    assert await told.ask(toolCallId="a", **call) == "no" and not told.asked
    assert "refused by rule 3" in told.client.calls["a"].refused


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.git/config", "HEAD", "../home/runners.toml"])
async def test_no_rule_lifts_the_floor(told: Told, path: str) -> None:
    told.known = [rule("allow", kind.value) for kind in Kind]
    assert await told.ask(toolCallId="a", kind="edit", title="Edit", locations=[{"path": path}]) == "no"
    assert not told.asked


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"command": "git push; ls"}, "refused"),
        ({"command": ["bash", "-lc", "ls && git push"]}, "refused"),
        ({"command": "$X push"}, "Not there."),
        ({"description": "no command is told"}, "Not there."),
        ({"command": "git status"}, ""),
    ],
)
async def test_a_command_is_denied_wherever_it_stands(trusted: Told, given: dict[str, Any], said: str) -> None:
    trusted.known = [rule("deny", "run", "git push *")]
    await trusted.ask(toolCallId="a", kind="execute", title="Run", rawInput=given)
    assert said in trusted.client.calls["a"].refused and bool(said) is bool(trusted.client.calls["a"].refused)


async def test_a_terminal_and_files_are_under_the_rules(trusted: Told) -> None:
    trusted.known = [rule("deny", "run", "git push *"), rule("deny", "read", "a"), rule("deny", "write", "b")]
    for command, words in (("git push", None), ("git", ["push"]), ("sh", ["-c", "true; git push"])):
        with pytest.raises(RequestError, match="refused by rule 3"):
            await trusted.client.create_terminal("s", command, words)
    Path(trusted.cwd, "a").write_text("x")
    with pytest.raises(RequestError, match="refused by rule 3"):
        await trusted.client.read_text_file("s", f"{trusted.cwd}/a")
    with pytest.raises(RequestError, match="refused by rule 3"):
        await trusted.client.write_text_file("s", f"{trusted.cwd}/b", "x")
    assert not Path(trusted.cwd, "b").exists() and not trusted.asked


async def test_what_a_person_allowed_is_not_asked_twice_in_a_turn(trusted: Told) -> None:
    trusted.known, trusted.allows = [rule("ask", "write", "b")], True
    assert await trusted.ask(toolCallId="a", kind="edit", title="Edit", locations=[{"path": "b"}]) == "yes"
    await trusted.client.write_text_file("s", f"{trusted.cwd}/b", "x")
    assert [subject for subject, _ in trusted.asked] == [f"write {trusted.cwd}/b"]
    assert "asked by rule 3 (ask write at and below b)" in trusted.asked[0][1]
