"""The rehearsal: answers from a script, without a model; every answer says so (docs/how-to/run-a-pool.md)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nexus.control.agents import wake_kinds
from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Closing, Ended
from nexus.control.models import Role, TurnStatus
from nexus.control.permissions import rules
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners.tools import catalog
from nexus.control.runners.tools.files import ToolFailed
from nexus.control.runners_file import Rehearsal, ScriptedCall, ScriptStep
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import ENVELOPE

NOTE = "[rehearsal: no model answers]"
PLACEHOLDER = re.compile(r"\{(\w+)\}")
TOOLS = "tools"  # stands before the names of the agent's own tools, where a toolset stands before those of operations
FILE_TOOLS = rules.READING | rules.WRITING  # and no `run`: a rehearsal starts no program


@dataclass(frozen=True)
class Heard:
    """The input of a step: a message, or one of the items that woke the agent."""

    text: str
    so_far: str  # all messages to the agent, this one last
    names: Mapping[str, str]  # values of the placeholders


async def take(runner: Rehearsal, scene: Scene) -> Ended:
    """Play the first step that matches the message, or for each item that woke the agent the first that matches it."""
    said: list[str] = []
    made, halted = 0, False
    for heard in await _inputs(runner, scene):
        step, names = _fitting(runner, heard)
        refused = ""
        for call in step.call:
            if made == runner.max_iterations:
                halted = True
                break
            refused = await _called(scene, f"{scene.turn.pk}-{made}", call, names)
            made += 1
            if refused and not call.optional:
                break  # later steps may depend on this one
            refused = ""
        decision = await scene.ask(**step.ask.model_dump()) if step.ask else Decision(True)
        await asyncio.sleep(step.wait)
        if step.fail is not None:
            raise RunnerFailed(step.fail)
        names["decision"] = decision.words or ("allowed" if decision.allowed else "refused")
        said += [_fill(step.say, names), *([refused] if refused else [])]
    answer = " ".join((NOTE, "\n\n".join(said)))
    return Ended(TurnStatus.DONE, answer, iterations=made + 1, halted=halted, closing=Closing(answer))


async def _inputs(runner: Rehearsal, scene: Scene) -> list[Heard]:
    """Return the turn's inputs. Only the needed part of the transcript is read, because it may be long."""
    woken_by: list[dict[str, Any]] = []
    so_far: list[str] = []
    if scene.turn.depth or any(step.after for step in runner.script):
        history = scene.history()
        woken_by = ((await anext(history)).meta or {}).get("woken_by", [])
        if any(step.after for step in runner.script):
            so_far = [entry.content async for entry in history if entry.role == Role.USER][::-1]
    content = scene.turn.content
    heard = []
    for text, thing in zip(wake_kinds.parts_of(content) if woken_by else [content], woken_by or [{}], strict=True):
        so_far.append(text)
        names = {
            "agent_id": scene.agent.agent_id,
            "cwd": scene.agent.cwd,
            "content": text,
            "from": thing.get("sender") or "",
            "item": thing.get("item") or "",
        }
        heard.append(Heard(text, "\n".join(so_far), names))
    return heard


def _fitting(runner: Rehearsal, heard: Heard) -> tuple[ScriptStep, dict[str, str]]:
    """Return the step to play, and the values of its placeholders."""
    for step in runner.script:
        found = step.when.search(heard.text) if step.when else None
        if (found or not step.when) and all(pattern.search(heard.so_far) for pattern in step.after):
            captured = {name: text or "" for name, text in found.groupdict().items()} if found else {}
            return step, {**heard.names, **captured}
    return ScriptStep(), {**heard.names}


def _fill(value: Any, names: Mapping[str, str]) -> Any:
    """Return a step's text or arguments with the placeholders replaced."""
    match value:
        case dict():
            return {name: _fill(part, names) for name, part in value.items()}
        case list():
            return [_fill(part, names) for part in value]
        case str():
            return PLACEHOLDER.sub(lambda found: names.get(found[1], found[0]), value)
    return value


async def _called(scene: Scene, call_id: str, call: ScriptedCall, names: Mapping[str, str]) -> str:
    """Make a call as the agent; return the error's text, empty on success. Raises RunnerFailed for an unknown operation
    or tool."""
    toolset, _, name = call.operation.rpartition(".")
    if toolset == TOOLS and name not in FILE_TOOLS:
        raise RunnerFailed(f"the script calls {call.operation}, and a rehearsal has {', '.join(sorted(FILE_TOOLS))}")
    if toolset != TOOLS and toolset not in TOOLSETS:
        raise RunnerFailed(f"the script calls {call.operation}, and there is no toolset {toolset}")
    arguments = _fill(call.arguments, names)
    made = {"id": call_id, "name": name if toolset == TOOLS else call.operation, "arguments": arguments}
    await scene.say(Role.ASSISTANT, "", meta={"tool_calls": [made]})
    if toolset == TOOLS:
        result, error = await _used(scene, name, arguments)
    else:
        outcome = await scene.call(toolset, name, arguments)
        result = json.dumps(ENVELOPE.body(outcome), ensure_ascii=False)
        error = outcome.error.message if outcome.error else ""
    await scene.say(Role.TOOL, result, tool_call_id=call_id)
    return f"{call.operation} was refused: {error}" if error else ""


async def _used(scene: Scene, name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """Use a tool of the agent; return its result, and the error's text."""
    tool = catalog.tools(scene.agent.permissions).get(name)
    try:
        if tool is None:
            raise ToolFailed("this agent does not have it.")
        return await tool.call(scene, arguments), ""
    except ToolFailed as failed:
        return f"Error: {failed}", str(failed)
