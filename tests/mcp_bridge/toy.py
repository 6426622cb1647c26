"""A toolset for the tests, with replies of its own, and one that clashes with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import TOOLSETS, Toolset
from nexus.core.operations.replies import Body, Data, Outcome, Prompt, Reference, Reply


class Ring(Params):
    times: int


def bare(outcome: Outcome) -> Body:
    """Data as it is, an error as its code and a sentence."""
    if outcome.error is not None:
        return {"error": outcome.error.code.value, "hint": outcome.error.message}
    return dict(outcome.data or {})


def prose(outcome: Outcome, body: Body) -> str:
    return f"It rang {body['times']} times." if outcome.error is None else f"It did not: {body['hint']}"


@contextmanager
def toys() -> Iterator[Toolset]:
    """`bells` with its tool `ring`, and `gongs` whose tool has the same name."""
    bells = Toolset("bells", "Rings bells.", reply=Reply(bare, prose), instructions=lambda: "Ring when you are done.")
    gongs = Toolset("gongs", "Strikes gongs.")

    @bells.operation(Ring, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
    def ring(p: Ring, caller: Caller) -> Data:
        """Ring the bell some times."""
        if p.times > 12:
            raise NexusError(Code.NOT_FOUND, "There is no such hour.")
        return {"times": p.times, "connection": caller.connection}

    gongs.operation(Ring, read_only=True)(ring)
    bells.references.append(Reference("nexus://reference/bells", "bells", "All about bells.", lambda: "# Bells"))
    bells.prompts.append(Prompt("chime", "Chime.", {"hour": "Which."}, lambda given: f"Chime at {given['hour']}."))
    try:
        yield bells
    finally:
        del TOOLSETS["bells"], TOOLSETS["gongs"]
