"""The ids that imported rows had: callers who remember them go on using them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from nexus.compat.models import ImportedId
from nexus.core.operations.parameters import Params

# Ids of okto-nexus are random (a UUID of version 4), ours are not.
FOREIGN = re.compile("(?:msg|hof|art|chan)_[0-9a-f]{12}4[0-9a-f]{19}")
MOST = 1000  # ids in one call that are looked up


def in_call(params: Params) -> set[str]:
    """Return the ids of imported rows in a call, as far as their form tells."""
    return {each for _, value in _with_ids(params) for each in ([value] if isinstance(value, str) else value)
            if isinstance(each, str) and FOREIGN.fullmatch(each)}  # fmt: skip


def ours(old: set[str]) -> Mapping[str, str]:
    """Return the ids here by those that were given, for rows that were imported."""
    return dict(ImportedId.objects.filter(pk__in=old).values_list("old_id", "new_id"))


def replaced(params: Params, known: Mapping[str, str]) -> Params:
    """Return the parameters of a call with our ids."""
    changed = {
        name: known.get(value, value)
        if isinstance(value, str)
        else [known.get(each, each) if isinstance(each, str) else each for each in value]
        for name, value in _with_ids(params)
    }
    return params.model_copy(update=changed)


def _with_ids(params: Params) -> Iterator[tuple[str, Any]]:
    for name, value in params:
        if (isinstance(value, str) and name.endswith("_id")) or (
            isinstance(value, list | tuple) and len(value) <= MOST
        ):
            yield name, value
