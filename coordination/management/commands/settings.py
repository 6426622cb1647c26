"""`nexus settings`: show and change the settings of this hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import spelled
from nexus.core.operations.replies import Data
from nexus.core.verbs import Row, Verb, VerbsCommand, name_argument


class Command(VerbsCommand):
    help = "List, store and reset settings of this hub."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the settings: value, source, bounds.",
                operation="settings_list",
                rows="settings",
                columns={
                    "setting": "name",
                    "value": lambda row: spelled(row["value"]),
                    "from": "source",
                    "may be": _vocabulary,
                    "meaning": "description",
                },
                examples=["nexus settings list", "nexus settings list --json | jq '.settings[] | select(.pinned)'"],
            ),
            Verb(
                "set",
                "Store a setting; it applies in every process within about a second.",
                self.set,
                _add_value,
                ["nexus settings set inbox_lease_ttl_seconds 600", "nexus settings set trust_mode strict"],
            ),
            Verb(
                "unset",
                "Reset a setting: its default applies again.",
                self.unset,
                SETTING,
                ["nexus settings unset inbox_lease_ttl_seconds"],
            ),
        )

    def set(self, options: Mapping[str, Any]) -> int:
        """Store a setting and show the value in force."""
        return self._update(options, options["value"])

    def unset(self, options: Mapping[str, Any]) -> int:
        """Reset a setting and show the value in force."""
        return self._update(options, None)

    def _update(self, options: Mapping[str, Any], value: str | None) -> int:
        name = options["setting"].removeprefix("--").replace("-", "_")  # the flag's spelling is accepted, too
        known = {row["name"]: row for row in self.call("settings_list")["settings"]}
        self.call("settings_update", values={name: None if value is None else _typed(known.get(name), value)})
        rows = {row["name"]: row for row in self.call("settings_list")["settings"]}
        row = rows.get(name, {"name": name})  # nothing more is known of one that is no setting any more
        return self.show(options, {key: row[key] for key in ("name", "value", "source", "description") if key in row})


def _typed(setting: Data | None, text: str) -> Any:
    """Convert the text to the setting's type. A text that does not fit is returned as it is; the operation reports the
    error."""
    if setting is not None and isinstance(setting["default"], int):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value if isinstance(value, int) else text
    return text


def _vocabulary(row: Row) -> str:
    if row["choices"]:
        return ", ".join(row["choices"])
    if isinstance(row["default"], bool):
        return "true, false"
    if row["minimum"] is None:
        return ""
    return f"{row['minimum']} or more" if row["maximum"] is None else f"{row['minimum']}–{row['maximum']}"


SETTING = name_argument("setting", "Its name.")


def _add_value(parser: CommandParser) -> None:
    SETTING(parser)
    name_argument("value", "The new value.")(parser)
