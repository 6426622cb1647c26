"""What `nexus hook` asks of the store without Django: SQL that apps register, each in its module `glance`."""

from __future__ import annotations

from typing import NamedTuple


class Glance(NamedTuple):
    """A query for the ids of what waits for `:agent`, and a table that is there once it can be asked."""

    table: str
    waiting: str


GLANCES: list[Glance] = []
