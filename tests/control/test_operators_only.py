"""What operators alone may do in the pool: neither an agent nor a caller without a login does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nexus.control.toolset import CONTROL
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import OPERATORS_ONLY

VALUES: dict[str, Any] = {"string": "x", "integer": 1, "number": 1, "boolean": False, "array": [], "object": {}}


def filled(schema: dict[str, Any]) -> dict[str, Any]:
    """Parameters that an operation takes: those that it requires."""

    def value(spec: dict[str, Any]) -> Any:
        if "$ref" in spec:
            spec = schema["$defs"][spec["$ref"].rpartition("/")[2]]
        if "anyOf" in spec:
            return value(spec["anyOf"][0])
        return spec["enum"][0] if "enum" in spec else VALUES[spec["type"]]

    return {name: value(schema["properties"][name]) for name in schema.get("required", ())}


def test_an_operation_of_operators_refuses_everybody_else_and_is_no_tool(
    db: None, configure: Callable[..., None]
) -> None:
    configure(control=True)
    theirs = {name: each for name, each in CONTROL.operations.items() if OPERATORS_ONLY in each.requires}
    assert {"pool_add_rule", "pool_allow", "pool_list_runs", "pool_set_budget", "pool_reset_outage"} < theirs.keys()
    for name, operation in theirs.items():
        given = filled(operation.params.model_json_schema())
        for caller in (Caller("test"), Caller("mcp", agent_id="ann", connection="test:ann")):
            assert dispatch.run(CONTROL, caller, name, given)["error"]["code"] == "NOT_OWNER", name
        assert not operation.tool, name
    assert {name for name, each in CONTROL.operations.items() if not each.tool} == theirs.keys()
