"""`nexus tags`: the catalog of the tags that agents may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nexus.core.verbs import Option, Verb, VerbsCommand

NAMED = (Option("key", help="The key, such as team."), Option("value", "--value", "A value of it, such as core."))


class Command(VerbsCommand):
    help = "List the tags that agents may have, make and delete them."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the tags, by key.",
                operation="tag_list",
                rows="tags",
                columns={"key": "key", "values": _values, "about": "description"},
                examples=["nexus tags list", "nexus tags list --json"],
                nothing="there are no tags",
            ),
            Verb(
                "create",
                "Make a key, or a value of it. --tags of `nexus agents` gives it to an agent.",
                operation="tag_create",
                words=NAMED[:1],
                options=[NAMED[1], "description"],
                examples=["nexus tags create team", "nexus tags create team --value core"],
            ),
            Verb(
                "delete",
                "Delete a key with its values, or a value of it.",
                operation="tag_delete",
                words=NAMED[:1],
                options=NAMED[1:],
                asks="Delete the tag {key!r}?",
                examples=["nexus tags delete team --value core --yes"],
            ),
        )


def _values(row: Any) -> str:
    return ", ".join(each["value"] for each in row["values"])
