"""What an agent process tells of its session, in the form that the agent's row keeps: ways to sign in, modes, options,
commands, and how full its context is.

`options` has the session's mode, too, under the name `mode`. Models are an option of the agents that have any, under
the name `model`; some offer them in an older form of the protocol, which its SDK does not know any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from acp.core import ClientSideConnection
from acp.schema import (
    AvailableCommand,
    EnvVarAuthMethod,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    ResumeSessionResponse,
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionModeState,
    TerminalAuthMethod,
    Usage,
)
from pydantic import BaseModel, Field, ValidationError

from nexus.control.permissions.rules import is_offered
from nexus.control.runners.base import RunnerFailed

MODE, MODEL = "mode", "model"
SET_MODEL = "session/set_model"  # the SDK has no method for it, and marks it as an extension
MODELS = "nexus/models"  # key in an answer's `_meta`: where the transport keeps the models that the SDK would drop
MOST, LONGEST = 60, 120  # of each kind; characters of a text
LARGEST = 65_536  # bytes of all of it
Option = SessionConfigOptionSelect | SessionConfigOptionBoolean
Opened = NewSessionResponse | LoadSessionResponse | ResumeSessionResponse


class SessionModel(BaseModel):
    """A model of the older form."""

    id: str = Field(alias="modelId")
    name: str


class SessionModels(BaseModel):
    """The models of a session, in the older form."""

    current: str = Field(alias="currentModelId")
    available: list[SessionModel] = Field(alias="availableModels")


def ways_to_sign_in(offered: InitializeResponse) -> list[dict[str, Any]]:
    """Return the ways to sign in that an agent offers."""
    kinds = {EnvVarAuthMethod: "variables", TerminalAuthMethod: "terminal"}
    return [
        {"id": _text(each.id), "name": _text(each.name), "kind": kinds.get(type(each), "agent")}
        for each in (offered.auth_methods or [])[:MOST]
    ]


def mode_option(modes: SessionModeState | None) -> list[dict[str, Any]]:
    """Return the session's modes as an option; none if it has none."""
    if modes is None:
        return []
    choices = [_choice(each.id, each.name) for each in modes.available_modes[:MOST]]
    return [{"id": MODE, "name": "Mode", "value": _text(modes.current_mode_id), "choices": choices}]


def older_models(opened: Opened) -> SessionModels | None:
    """Return the models of a session that offers them in the older form only."""
    if any(option.id == MODEL for option in opened.config_options or []):
        return None
    try:
        return SessionModels.model_validate((opened.field_meta or {}).get(MODELS))
    except ValidationError:
        return None


def config_options(
    options: Iterable[Option] | None, modes: SessionModeState | None, models: SessionModels | None
) -> list[dict[str, Any]]:
    """Return the session's options; the mode as the option that `modes` make, if there are any, and so the model. One
    without choices is true or false."""
    made = [_option(option) for option in list(options or [])[:MOST]]
    mode = mode_option(modes)
    if models is not None:
        choices = [_choice(each.id, each.name) for each in models.available[:MOST]]
        mode.append({"id": MODEL, "name": "Model", "value": _text(models.current), "choices": choices})
    apart = {option["id"] for option in mode}
    return mode + [option for option in made if option["id"] not in apart]


def tokens_in(meta: Mapping[str, Any] | None) -> Usage | None:
    """Return the tokens that an agent counts outside of the protocol: Gemini with its answer, Qwen with each of its
    model's."""
    quota = (meta or {}).get("quota")
    counted = quota.get("token_count") if isinstance(quota, dict) else (meta or {}).get("usage")
    if not isinstance(counted, dict):
        return None
    known = {name.replace("_", "").lower(): value for name, value in counted.items()}
    try:
        read, written = known.get("inputtokens", 0), known.get("outputtokens", 0)
        cached = known.get("cachedreadtokens", known.get("cachedinputtokens"))
        given = {"inputTokens": read, "outputTokens": written, "cachedReadTokens": cached}
        return Usage.model_validate({**given, "totalTokens": known.get("totaltokens", read + written)})
    except (ValidationError, TypeError):
        return None


def commands(available: Iterable[AvailableCommand]) -> list[dict[str, Any]]:
    """Return the commands that a message may begin with."""
    return [
        {
            "name": _text(each.name),
            "description": _text(each.description),
            "hint": _text(getattr(getattr(each.input, "root", each.input), "hint", None) or ""),
        }
        for each in list(available)[:MOST]
    ]


async def choose(
    connection: ClientSideConnection,
    session_id: str,
    modes: SessionModeState | None,
    models: SessionModels | None,
    options: list[dict[str, Any]],
    wanted: Mapping[str, Any],
) -> None:
    """Set a session's mode and its options; those that it has already stay. Raises RunnerFailed for one that it does
    not have."""
    known = {option["id"]: option for option in options}
    for name, value in wanted.items():
        option = known.get(name)
        if option is not None and option["value"] == value:
            continue
        if option is None or not is_offered(option, value):
            values = [choice["value"] for choice in option["choices"]] if option else []
            raise RunnerFailed(f"the agent has no {name} {value!r}, only: {', '.join(values) or 'none'}"[:500])
        if name == MODE and modes is not None:
            await connection.set_session_mode(session_id, value)
            modes.current_mode_id = value
        elif name == MODEL and models is not None:
            await connection.ext_method(SET_MODEL, {"sessionId": session_id, "modelId": value})
            models.current = value
        else:
            await connection.set_config_option(name, session_id, value)
        option["value"] = value


def loss(paths: Iterable[str], write_paths: Iterable[str]) -> str:
    """Return what became of files that a process wrote in its sandbox's private memory."""
    return (
        f"What was written at {', '.join(paths)} is gone: that directory is private, and is emptied after each turn. "
        f"What lasts is written below: {', '.join(write_paths) or 'nothing'}."
    )


def bounded(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session told, each list so short that all of it is no larger than LARGEST."""
    told = dict(session)
    while len(json.dumps(told)) > LARGEST:
        told = {name: each[: len(each) // 2] if isinstance(each, list) else each for name, each in told.items()}
    return told


def _option(option: Option) -> dict[str, Any]:
    choices = list[dict[str, str]]()
    if isinstance(option, SessionConfigOptionSelect):
        flat = [each for group in option.options for each in getattr(group, "options", None) or [group]]
        choices = [_choice(each.value, each.name) for each in flat[:MOST]]
    named = {"id": _text(option.id), "name": _text(option.name)}
    return {**named, "value": option.current_value, "choices": choices}


def _choice(value: str, name: str) -> dict[str, str]:
    return {"value": _text(value), "name": _text(name)}


def _text(text: str) -> str:
    return text[:LONGEST].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
