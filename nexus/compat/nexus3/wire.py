"""The arguments of NEXUS3's clients in our words: its names of tools and models, and numbers as request ids, which the
answer has as they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nexus.core.operations.registry import Operation
from nexus.core.operations.replies import Outcome

RUNNING = ("shell_UNSAFE", "exec", "run_python")
EDITING = ("edit_file_batch", "edit_lines", "edit_lines_batch", "append_file", "regex_replace", "patch",
           "patch_from_file")  # fmt: skip
TOOLS = {  # of NEXUS3 1.1 that have another name here
    "nexus_create": "create_agent",
    "nexus_destroy": "destroy_agent",
    "nexus_send": "send",
    "nexus_cancel": "cancel",
    "search_text": "grep",
    **dict.fromkeys(RUNNING, "run"),
    **dict.fromkeys(EDITING, "edit_file"),
}
# Those that no agent has here, so that disabling them changes nothing.
ABSENT = frozenset(
    """nexus_status nexus_shutdown copy_file mkdir rename outline concat_files file_info tail list_processes get_process
    kill_process git copy cut paste echo sleep clear""".split()
)
ABSENT_PREFIXES = ("clipboard_", "gitlab_", "mcp_")


def concerns(operation: Operation[Any], given: Mapping[str, Any]) -> bool:
    """Return whether arguments may hold anything that only clients of NEXUS3 say."""
    return "disable_tools" in given or type(given.get("request_id")) is int or _is_path(given.get("model"))


def translate(operation: Operation[Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments in our words; what is unknown in both stays, and is refused."""
    said = dict(given)
    if type(said.get("request_id")) is int:
        said["request_id"] = str(said["request_id"])
    tools = said.get("disable_tools")
    if isinstance(tools, list) and all(isinstance(name, str) for name in tools):
        said["disable_tools"] = our_tools(tools)
    if _is_path(model := said.get("model")):
        said["model"] = _our_runner(str(model))
    return said


def answer(operation: Operation[Any], given: Mapping[str, Any]) -> Callable[[Outcome], Outcome] | None:
    """Return what puts the number that was given as request_id into the answer, or the details of an error; None if
    none was."""
    request_id = given.get("request_id")
    if type(request_id) is not int:
        return None

    def as_given(outcome: Outcome) -> Outcome:
        if outcome.error is None:
            return Outcome({**outcome.result(), "request_id": request_id})
        if "request_id" in outcome.error.details:
            outcome.error.details["request_id"] = request_id
        return outcome

    return as_given


def _is_path(model: Any) -> bool:
    return isinstance(model, str) and "/" in model  # which no runner of ours has in its name


def _our_runner(model: str) -> str:
    """Return the runner of a model's full id, or of `provider/alias`. What is unknown stays as it is."""
    from nexus.control.runners_file import Model, runners

    known, alias = runners().by_name, model.rpartition("/")[2]
    full = (name for name, each in known.items() if isinstance(each, Model) and each.model.endswith(f":{model}"))
    return next(full, alias if alias in known else model)


def our_tools(names: Iterable[str]) -> list[str]:
    """Return our names of tools, without those that no agent has here. What is unknown stays as it is."""
    return list(dict.fromkeys(TOOLS.get(name, name) for name in names if not _is_absent(name)))


def _is_absent(name: str) -> bool:
    return name in ABSENT or name.startswith(ABSENT_PREFIXES)
