"""Toolsets: chosen, added while a connection lasts, each with its own replies, texts and prompts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types import Implementation, ToolListChangedNotification

from coordination.services.agents import hash_secret
from coordination.toolset import COORDINATION, arun
from mcp_bridge import choices, features
from mcp_bridge.config import names
from mcp_bridge.server import build_server
from nexus.core.operations import registry
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Nothing
from nexus.core.operations.registry import TOOLSETS, Toolset
from nexus_site.management.commands.setup import USUAL
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import environment
from tests.mcp_bridge.conftest import Connect
from tests.mcp_bridge.toy import toys

ERAS = ["auto", "legacy"]


@pytest.fixture
def bells() -> Iterator[Toolset]:
    with toys() as toolset:
        yield toolset


async def tool_names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def body(client: Client, tool: str, **arguments: Any) -> Any:
    return (await client.call_tool(tool, arguments)).structured_content


def two_clients(mode: str = "auto") -> tuple[Client, Client]:
    """Two connections to one server, as the hub has them."""

    def caller(context: Any) -> Caller:
        return Caller(transport="memory", connection=context.session.client_params.client_info.name)

    server = build_server(caller)
    first, second = (Implementation(name=name, version="1") for name in ("first", "second"))
    return Client(server, mode=mode, client_info=first), Client(server, mode=mode, client_info=second)


def refused(*chosen: str) -> NexusError:
    with pytest.raises(NexusError) as raised:
        registry.choose(chosen)
    return raised.value


def test_it_chooses_by_name_in_the_order_of_the_registry(bells: Toolset) -> None:
    assert registry.choose(["bells", "coordination", "bells"]) == (COORDINATION, bells)
    assert registry.default() == (COORDINATION,)


def test_it_refuses_an_unknown_toolset_and_names_those_there_are(bells: Toolset) -> None:
    error = refused("coordination", "bogus")
    assert error.code == Code.CONFIG_ERROR
    assert all(word in error.message for word in ("'bogus'", "coordination", "bells", "gongs", "all"))
    assert refused().code == Code.CONFIG_ERROR


@pytest.mark.parametrize("chosen", [("bells", "gongs"), ("all",)])
def test_it_refuses_two_toolsets_with_one_tool_and_names_both(bells: Toolset, chosen: tuple[str, ...]) -> None:
    error = refused(*chosen)
    assert error.code == Code.CONFIG_ERROR and error.details["toolsets"] == ["bells", "gongs"]
    assert "bells" in error.message and "gongs" in error.message and "'ring'" in error.message


@pytest.mark.parametrize("text", ["", " ", "a,,b", ",", "a,"])
def test_it_refuses_a_list_with_nothing_in_it(text: str) -> None:
    with pytest.raises(ValueError, match="separated by commas"):
        names(text)


async def test_it_serves_the_chosen_toolsets_and_no_other(connect: Connect, bells: Toolset) -> None:
    async with connect(chosen=["bells"]) as client:
        assert await tool_names(client) == {"ring", "toolset_enable"}
        assert client.instructions == "Ring when you are done."
        assert [resource.name for resource in (await client.list_resources()).resources] == ["bells"]
        assert (await client.read_resource("nexus://reference/bells")).contents[0].text == "# Bells"  # type: ignore[union-attr]
        assert (await client.list_resource_templates()).resource_templates == []
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["chime"]
        with pytest.raises(MCPError, match="No such resource"):
            await client.read_resource("nexus://inbox/ann")
        with pytest.raises(MCPError, match="No such prompt"):
            await client.get_prompt("first_turn", {})
        with pytest.raises(MCPError, match="cannot be subscribed"):
            async with client.listen(resource_subscriptions=["nexus://inbox/ann"]):
                pass
        assert (await body(client, "agent_list"))["error"] == "NOT_FOUND"


async def test_it_joins_the_instructions_of_all_that_is_chosen(connect: Connect, bells: Toolset) -> None:
    async with connect(chosen=["coordination", "bells"]) as client:
        assert client.instructions == f"{COORDINATION.instructions().strip()}\n\nRing when you are done."
        assert {"ring", "agent_list"} < await tool_names(client)


RULES = {
    "coordination": ("join(", "inbox_pull", "inbox_ack", "handoff_claim", "no instruction of your user"),
    "files": ("files_reserve(", "Never edit what another one holds", "files_release"),
    "questions": ("ask_operator(", "Nobody's answer is a refusal"),
    "planning": ("task_add", "task_list"),
    "topics": ("topic_join(", "sync("),
    "control": ("pool_create_agent(", "ask_operator(", "Nobody's answer is a refusal"),
}


@pytest.mark.parametrize("most", [1, 2, len(RULES)])
def test_every_choice_has_its_rules_within_what_clients_read(most: int) -> None:
    for chosen in combinations(RULES, most):
        choice = tuple(registry.TOOLSETS[name] for name in chosen)
        text = features.instructions(choice)
        assert len(text) <= 2_048
        assert [rule for name in chosen for rule in RULES[name] if rule not in text] == [], chosen
        assert all(len(tool.description or "") <= 2_048 for tool in features.tools(choice))


def test_the_usual_toolsets_have_all_of_their_instructions() -> None:
    whole = "\n\n".join(registry.TOOLSETS[name].instructions().strip() for name in USUAL)
    assert features.instructions(registry.choose(USUAL)) == whole


async def test_it_answers_in_the_toolsets_own_form(connect: Connect, bells: Toolset) -> None:
    async with connect(chosen=["coordination", "bells"]) as client:
        rung = await client.call_tool("ring", {"times": 3})
        missed = await client.call_tool("ring", {"times": 13})
        wrong = await client.call_tool("ring", {"times": "3"})
        other = await client.call_tool("agent_get", {"agent_id": "nobody"})
    assert (rung.is_error, rung.structured_content["times"]) == (False, 3)
    assert rung.content[0].text == "It rang 3 times."  # type: ignore[union-attr]
    assert missed.is_error and missed.structured_content == {"error": "NOT_FOUND", "hint": "There is no such hour."}
    assert missed.content[0].text == "It did not: There is no such hour."  # type: ignore[union-attr]
    assert wrong.is_error and wrong.structured_content["error"] == "VALIDATION_ERROR"
    assert other.structured_content["ok"] is False


@pytest.mark.parametrize("era", ERAS)
async def test_it_adds_a_toolset_to_a_connection(bells: Toolset, era: str, committed: None) -> None:
    one, another = two_clients(era)
    async with one as client, another as other:
        offer = (await body(client, "toolset_enable"))["data"]
        assert offer["enabled"] == ["coordination"]
        assert {"name": "bells", "description": "Rings bells."} in offer["available"]
        assert "ring" not in await tool_names(client)

        added = (await body(client, "toolset_enable", name="bells"))["data"]
        assert added["enabled"] == ["coordination", "bells"] and added["tools"] == ["ring"]
        assert added["instructions"] == "Ring when you are done."
        assert "ring" in await tool_names(client)
        assert (await body(client, "ring", times=1))["times"] == 1
        assert "chime" in [prompt.name for prompt in (await client.list_prompts()).prompts]

        assert (await body(client, "toolset_enable", name="bells"))["ok"], "again changes nothing"
        assert "ring" not in await tool_names(other), "another connection has what it chose itself"


async def test_it_says_why_a_toolset_cannot_be_added(connect: Connect, bells: Toolset) -> None:
    async with connect(chosen=["coordination", "bells"]) as client:
        unknown = (await body(client, "toolset_enable", name="bogus"))["error"]
        clash = (await body(client, "toolset_enable", name="gongs"))["error"]
        wrong = (await body(client, "toolset_enable", name=7))["error"]
    assert unknown["code"] == "NOT_FOUND"
    assert all(name in unknown["message"] for name in ("coordination", "topics", "bells", "gongs"))
    assert clash["code"] == "CONFIG_ERROR" and "bells" in clash["message"] and "gongs" in clash["message"]
    assert wrong["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("era", ERAS)
async def test_it_adds_nothing_to_a_connection_whose_key_is_dead(bells: Toolset, era: str, committed: None) -> None:
    olga = Caller(transport="memory", operator="olga")
    key = (await arun(olga, "agent_create", {"agent_id": "ann"}))["data"]["api_key"]
    ann = Caller("memory", agent_id="ann", connection="memory:1", credential=hash_secret(key))
    async with Client(build_server(lambda context: ann), mode=era) as client:
        assert (await body(client, "toolset_enable"))["ok"]
        await arun(olga, "agent_key_set_active", {"agent_id": "ann", "active": False})
        assert (await body(client, "toolset_enable"))["error"]["code"] == "NOT_OWNER"
        assert (await body(client, "toolset_enable", name="bells"))["error"]["code"] == "NOT_OWNER"
        assert "ring" not in await tool_names(client)


async def test_it_tells_a_session_that_its_tools_changed(bells: Toolset, committed: None) -> None:
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    server = build_server(lambda context: Caller(transport="memory", connection="memory:1"))
    async with Client(server, mode="legacy", message_handler=hear) as client:
        capabilities = client.server_capabilities
        assert capabilities is not None and capabilities.tools is not None and capabilities.tools.list_changed
        await body(client, "toolset_enable", name="bells")
    assert any(isinstance(message, ToolListChangedNotification) for message in heard)


async def test_it_tells_who_listens_for_the_connection_and_nobody_else(bells: Toolset, committed: None) -> None:
    one, another = two_clients()
    async with (
        one as client,
        another as other,
        client.listen(tools_list_changed=True) as mine,
        other.listen(tools_list_changed=True, resource_subscriptions=["nexus://inbox/ann"]) as theirs,
    ):
        await body(client, "toolset_enable", name="bells")
        assert await asyncio.wait_for(anext(aiter(mine)), START_SECONDS) == ToolsListChanged()
        message = {"project_root": "/", "from_agent_id": "bob", "subject": "s", "body": "b"}
        await body(other, "agent_register", agent_id="ann")
        await body(other, "message_create", **message, target={"strategy": "direct", "agent_id": "ann"})
        assert await asyncio.wait_for(anext(aiter(theirs)), START_SECONDS) == ResourceUpdated(uri="nexus://inbox/ann")


async def test_it_offers_no_toolset_enable_where_there_is_nothing_to_add(connect: Connect) -> None:
    async with connect(chosen=["all"]) as client:
        assert "toolset_enable" not in await tool_names(client)
        assert (await body(client, "toolset_enable"))["data"]["available"] == []


@pytest.mark.django_db
def test_it_takes_the_agents_stored_choice_where_the_connection_makes_none(bells: Toolset, operate: Any) -> None:
    operate("agent_create", agent_id="ann", toolsets=["bells"])
    operate("agent_create", agent_id="bob")
    assert choices.from_agent("ann") == (bells,) == choices.from_process("ann", None)
    assert choices.from_agent("bob") == (COORDINATION,) == choices.from_process(None, None)
    assert choices.from_process("ann", "coordination") == (COORDINATION,), "a flag goes over what is stored"
    operate("agent_update", agent_id="ann", toolsets=[])
    assert choices.from_agent("ann") == (COORDINATION,), "none is no choice"


@pytest.mark.django_db
def test_it_lets_an_agent_in_whose_toolset_is_gone(operate: Any) -> None:
    with toys():
        operate("agent_create", agent_id="ann", toolsets=["bells"])
    assert choices.from_agent("ann") == (COORDINATION,)


@pytest.mark.django_db
def test_it_stores_no_choice_that_could_not_be_had(bells: Toolset, operate: Any) -> None:
    operate("agent_create", agent_id="ann", toolsets=["bells"])
    unknown = operate("agent_update", agent_id="ann", toolsets=["bogus"], fails=True)
    clash = operate("agent_update", agent_id="ann", toolsets=["bells", "gongs"], fails=True)
    assert unknown["code"] == "VALIDATION_ERROR" and unknown["details"]["field"] == "toolsets"
    assert clash["code"] == "CONFIG_ERROR" and clash["details"]["toolsets"] == ["bells", "gongs"]
    assert choices.from_agent("ann") == (bells,)


CHOOSES = """
import sys
from nexus_site import launch
launch._populate()
from nexus.core import cli
from nexus.core.operations import registry
from mcp_bridge import features, server, stdio
def tools_of(choice):
    return features.instructions(choice) and {tool.name for tool in features.tools(choice)}
assert "inbox_pull" in tools_of(registry.default())
late = {f"nexus.topics.{name}" for name in ("operations", "services", "resources")}
assert not {*late, "django.http"} & set(sys.modules)
assert "nexus.core.contributions" not in sys.modules and not [name for name in sys.modules if "administration" in name]
registry.TOOLSETS["coordination"].find("retention_prune")
choice = registry.choose(["topics"])
assert features.prompts(choice) and "sync" in tools_of(choice)
"""


@pytest.mark.usefixtures("starts_processes")
def test_a_process_loads_the_toolsets_that_it_chose(tmp_path: Path) -> None:
    environ = environment(tmp_path, DJANGO_SETTINGS_MODULE="nexus_site.settings_agent")
    subprocess.run([sys.executable, "-c", CHOOSES], env=environ, check=True)


LATE = """
from nexus.core.operations.parameters import Nothing
from nexus.core.operations.registry import TOOLSETS

def first(p, caller): "First."
TOOLSETS["late"].operation(Nothing)(first)
TOOLSETS["late"].started.set()
TOOLSETS["late"].go_on.wait(180)
def second(p, caller): "Second."
TOOLSETS["late"].operation(Nothing)(second)
"""


def test_it_refuses_a_tool_where_an_agents_process_would_not_read_it() -> None:
    odd = Toolset("odd", "Is odd.")
    try:
        odd.administered_in(__name__)
        with pytest.raises(ValueError, match="is a tool"):
            odd.operation(Nothing)(lambda p, caller: {})
        odd.operation(Nothing, tool=False)(lambda p, caller: {})
    finally:
        del TOOLSETS["odd"]


def test_who_comes_while_a_toolset_is_loaded_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched(Toolset):
        started, go_on = threading.Event(), threading.Event()

    (tmp_path / "late_operations.py").write_text(LATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    late = Watched("late", "Comes late.", modules=("late_operations",))
    try:
        with ThreadPoolExecutor(2) as pool:
            loading = pool.submit(lambda: len(late.operations))
            assert late.started.wait(START_SECONDS)
            another = pool.submit(lambda: len(late.operations))
            wait([another], timeout=0.2)  # where it does not wait for the other, it has its answer by then
            late.go_on.set()
            assert (loading.result(), another.result()) == (2, 2)
    finally:
        del TOOLSETS["late"], sys.modules["late_operations"]
