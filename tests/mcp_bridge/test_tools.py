"""The tools as a client lists and calls them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, GetTaskRequest, GetTaskRequestParams, GetTaskResult, Tool

from coordination.toolset import COORDINATION
from mcp_bridge import features as described
from mcp_bridge.choices import enabling
from mcp_bridge.features import instructions, tools
from nexus.core.operations import registry
from nexus_site.management.commands.setup import USUAL
from tests.mcp_bridge.conftest import Connect
from tests.mcp_bridge.context import characters
from tests.mcp_bridge.toy import toys

CHOICE = registry.default()
BUDGET = 27_700  # characters that every agent's context pays for
SURFACE = {  # each tool with its parameters: * is required, = a default that is not null
    "nexus_info": "",
    "join": "agent_id* project_root role capabilities",
    "workspace_resolve": "project_root* display_name",
    "workspace_list": "limit cursor",
    "agent_register": "agent_id* role capabilities metadata",
    "agent_list": "limit cursor present=False",
    "agent_get": "agent_id*",
    "agent_whoami": "",
    "capability_list": "",
    "session_open": "agent_id* workspace_id* metadata",
    "session_heartbeat": "session_id* workspace_id",
    "session_close": "session_id* workspace_id",
    "event_get": "project_root* agent_id* stream* cursor limit filters",
    "event_wait": "project_root* agent_id* stream* cursor limit filters timeout_seconds=0",
    "event_cursor": "project_root* agent_id* stream*",
    "channel_create": "project_root* name*",
    "channel_list": "project_root*",
    "message_create": "project_root from_agent_id* subject* body* channel_id from_session_id target artifacts"
    " parent_message_id trace_id session_secret client_id expect within_seconds",
    "message_status": "message_id*",
    "inbox_pull": "agent_id* limit lease_seconds ack_message_ids wait_seconds session_id session_secret",
    "inbox_ack": "agent_id* message_ids* session_id session_secret",
    "inbox_extend": "agent_id* message_ids* extend_seconds* session_id session_secret",
    "inbox_peek": "agent_id* limit include_parked=False session_id session_secret",
    "inbox_count": "agent_id*",
    "inbox_history": "agent_id* cursor limit session_id session_secret",
    "handoff_create": "project_root* from_agent_id* target* visibility* payload title task_id deadline_seconds"
    " verifier acceptance_criteria depends_on trace_id session_id session_secret client_id",
    "handoff_list_available": "project_root* agent_id* cursor limit timeout_seconds ready_only=False",
    "handoff_claim": "project_root* handoff_id* agent_id* lease_seconds session_id session_secret",
    "handoff_start": "project_root* handoff_id* agent_id* claim_epoch session_id session_secret",
    "handoff_block": "project_root* handoff_id* agent_id* reason* claim_epoch session_id session_secret",
    "handoff_mine": "agent_id* project_root",
    "handoff_extend": "project_root* handoff_id* agent_id* seconds claim_epoch session_id session_secret",
    "handoff_accept": "project_root* handoff_id* agent_id* claim_epoch session_id session_secret",
    "handoff_return": "project_root* handoff_id* agent_id* reasons* claim_epoch session_id session_secret",
    "handoff_complete": "project_root* handoff_id* agent_id* result claim_epoch session_id session_secret",
    "handoff_reject": "project_root* handoff_id* agent_id* reason claim_epoch session_id session_secret",
    "handoff_cancel": "project_root* handoff_id* agent_id* reason session_id session_secret",
    "handoff_get": "project_root* handoff_id* agent_id*",
    "artifact_put": "project_root* artifact_type* name path content metadata client_id",
    "artifact_get": "project_root* artifact_id*",
    "shared_md_render": "workspace_id* limit_events=50",
}
WRITES = {  # what each tool that writes says of itself
    "idempotent": "workspace_resolve agent_register session_close channel_create channel_list inbox_ack"
    " shared_md_render handoff_start handoff_block",
    "destructive": "handoff_reject handoff_cancel",
    "": "join session_open session_heartbeat message_create inbox_pull inbox_extend artifact_put"
    " handoff_create handoff_claim handoff_complete handoff_extend handoff_accept handoff_return",
}


async def test_it_offers_the_tools_of_the_contract_and_no_other(connect: Connect) -> None:
    async with connect() as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
    assert sorted(listed) == sorted([*SURFACE, "toolset_enable"])
    assert len(SURFACE) == 41


def test_it_stays_within_the_budget_of_an_agents_context(capsys: pytest.CaptureFixture[str]) -> None:
    with toys():
        more = described.tool(enabling(CHOICE, lambda toolset: None))  # offered where there is more to choose
    size = characters(instructions(CHOICE), [*tools(CHOICE), more])
    with capsys.disabled():
        print(f"\ninstructions and tools/list: {size} of {BUDGET} characters")
    assert size < BUDGET


def test_it_stays_within_the_budget_with_what_setup_turns_on() -> None:
    """Names, descriptions and input schemas; reservations and asking a person included."""
    choice = registry.choose(USUAL)
    offered = [*tools(choice), described.tool(enabling(choice, lambda toolset: None))]
    assert {"files_reserve", "ask_operator"} < {tool.name for tool in offered}
    size = sum(len(tool.name + str(tool.description) + json.dumps(tool.input_schema)) for tool in offered)
    assert size <= 24_000


@pytest.mark.parametrize("tool", tools(CHOICE), ids=lambda tool: tool.name)
def test_it_takes_the_parameters_of_the_contract_and_no_other(tool: Tool) -> None:
    fields, required = COORDINATION.operations[tool.name].params.model_fields, tool.input_schema.get("required", [])
    spelled = {
        name + ("*" if name in required else "" if fields[name].default is None else f"={fields[name].default}")
        for name in tool.input_schema["properties"]
    }
    assert spelled == set(SURFACE[tool.name].split())


def test_it_describes_every_tool_and_says_what_it_does_to_the_world() -> None:
    said: dict[str, set[str]] = {"read only": set(), **{trait: set() for trait in WRITES}}
    for tool in tools(CHOICE):
        assert tool.description and len(tool.description) > 20, tool.name
        hints = tool.annotations
        assert hints is not None and hints.open_world_hint is False, tool.name
        traits = {"read only": hints.read_only_hint, "idempotent": hints.idempotent_hint}
        traits |= {"destructive": hints.destructive_hint}
        said[" ".join(trait for trait, holds in traits.items() if holds)].add(tool.name)
    writes = {trait: set(names.split()) for trait, names in WRITES.items()}
    assert said == {"read only": SURFACE.keys() - set().union(*writes.values()), **writes}


def test_it_names_each_parameter_with_its_type_and_whether_it_is_required() -> None:
    schema = next(tool.input_schema for tool in tools(CHOICE) if tool.name == "message_create")
    assert schema["required"] == ["from_agent_id", "subject", "body"]  # a reply finds its project by its parent
    assert schema["properties"]["body"]["type"] == "string"
    assert schema["properties"]["target"]["type"] == "object"
    assert schema["properties"]["artifacts"]["items"] == {"type": "string"}
    assert schema["additionalProperties"] is False


def test_a_limit_in_a_description_is_the_limit_in_force(configure: Callable[..., None]) -> None:
    def described() -> list[str]:
        schemas = {tool.name: tool.input_schema["properties"] for tool in tools(CHOICE)}
        return [schemas["message_create"]["body"]["description"], schemas["artifact_put"]["content"]["description"]]

    assert all(text.startswith("Up to 64 KiB; larger: ") for text in described())
    configure(max_inline_bytes=1_000)
    assert all(text.startswith("Up to 1000 bytes; larger: ") for text in described())


async def test_it_answers_with_the_envelope_as_structured_content_and_as_text(connect: Connect) -> None:
    async with connect() as client:
        answer = await client.call_tool("agent_register", {"agent_id": "a", "metadata": {"é": "ü"}})
    assert not answer.is_error
    assert answer.structured_content["ok"] is True
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]


async def test_it_marks_a_failure_and_keeps_the_envelope(connect: Connect) -> None:
    async with connect() as client:
        answer = await client.call_tool("agent_get", {"agent_id": "nobody"})
    assert answer.is_error
    assert answer.structured_content["error"]["code"] == "NOT_FOUND"


async def test_it_keeps_a_string_that_looks_like_json(connect: Connect, project: str) -> None:
    async with connect() as client:
        await client.call_tool("agent_register", {"agent_id": "r"})
        letter = {"project_root": project, "from_agent_id": "s", "subject": "[1]", "body": '{"a": 1}'}
        sent = await client.call_tool("message_create", {**letter, "target": {"strategy": "direct", "agent_id": "r"}})
        pulled = await client.call_tool("inbox_pull", {"agent_id": "r"})
    assert sent.structured_content["data"]["subject"] == "[1]"
    assert pulled.structured_content["data"]["messages"][0]["body"] == '{"a": 1}'


async def test_it_answers_an_unknown_tool_with_the_envelope(connect: Connect) -> None:
    async with connect() as client:
        answer = await client.call_tool("no_such_tool", {})
    assert answer.is_error and answer.structured_content["error"]["code"] == "NOT_FOUND"


async def test_it_offers_operators_verbs_to_no_agent(connect: Connect) -> None:
    hidden = [name for name, operation in COORDINATION.operations.items() if not operation.tool]
    assert hidden
    async with connect() as client:
        for name in hidden:
            answer = await client.call_tool(name, {})
            assert answer.structured_content["error"]["code"] == "NOT_FOUND", name


@pytest.mark.parametrize("shim", ["message_get", "message_list", "message_wait"])
async def test_it_answers_a_removed_tool_whatever_its_arguments(connect: Connect, shim: str) -> None:
    async with connect() as client:
        for arguments in ({}, {"project_root": 7, "cursor": [None]}):
            answer = await client.call_tool(shim, arguments)
            assert answer.structured_content["error"]["code"] == "MIGRATED"
            assert answer.structured_content["error"]["details"]["replacements"]


async def test_it_tells_a_bound_connection_who_it_is(connect: Connect) -> None:
    async with connect() as client:
        await client.call_tool("agent_register", {"agent_id": "ann", "role": "lead"})
        unbound = await client.call_tool("agent_whoami", {})
    async with connect("ann") as client:
        bound = await client.call_tool("agent_whoami", {})
        other = await client.call_tool("inbox_peek", {"agent_id": "bob"})
    assert unbound.structured_content["error"]["code"] == "VALIDATION_ERROR"
    assert bound.structured_content["data"]["role"] == "lead"
    assert other.structured_content["error"]["code"] == "NOT_OWNER"


async def test_it_answers_a_client_that_knows_tasks_as_any_other(connect: Connect) -> None:
    asks = GetTaskRequest(params=GetTaskRequestParams(task_id="any"))
    extensions = [advertise("io.modelcontextprotocol/tasks")]
    async with connect("ann", chosen=["coordination", "questions"], extensions=extensions) as client:
        await client.call_tool("agent_register", {"agent_id": "ann"})
        answer = await client.call_tool("ask_operator", {"title": "May I?", "timeout_seconds": 0.01})
        with pytest.raises(MCPError) as refused:
            await client.session.send_request(asks, GetTaskResult)
        assert not client.server_capabilities.extensions
    assert answer.structured_content["data"]["status"] == "asked"
    assert refused.value.code == METHOD_NOT_FOUND
