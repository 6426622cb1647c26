"""Suggestions for an agent id that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from coordination.models import Agent
from nexus.core.operations.errors import NexusError, not_found

MOST = 200  # the newest ids that are compared
SEPARATORS = str.maketrans("", "", "-_ .")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the id that differs in case, separators or one letter; None where there is none. Linear in the ids'
    length."""
    plain = _plain(name)
    return next((each for each in known if each != name and _is_near(plain, _plain(each))), None)


def _plain(name: str) -> str:
    return name.casefold().translate(SEPARATORS)


def _is_near(one: str, other: str) -> bool:
    """Return whether two texts are equal but for one letter added, removed or replaced, or two adjacent letters
    swapped."""
    if abs(len(one) - len(other)) > 1 or not one or not other:
        return False
    begin = _shared(one, other)
    one, other = one[begin:], other[begin:]
    end = _shared(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    differ = (at for at, (letter, its) in enumerate(zip(one, other, strict=False)) if letter != its)
    return next(differ, min(len(one), len(other)))


def near_agent(agent_id: str) -> str | None:
    """Return the registered agent that a caller probably meant; None where none is similar."""
    known = Agent.objects.order_by("-created_at", "-agent_id").values_list("agent_id", flat=True)[:MOST]
    return nearest(agent_id, known)


def no_agent(agent_id: str) -> NexusError:
    """Return a NOT_FOUND for an agent that names the one that was probably meant."""
    error = not_found("agent", agent_id)
    near = near_agent(agent_id)
    if near is None:
        return error
    return NexusError(error.code, f"{error.message} Did you mean {near!r}?", {**error.details, "did_you_mean": near})
