"""What a permission request of an agent process is answered with, where its permissions are clear about it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from acp.schema import ToolCallUpdate

from nexus.control import protected_paths, rules
from nexus.control.rules import Permissions, Preset


class Verdict(Enum):
    """What a preset says to a request."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    ASKED = "asked"  # a person decides


USES = {  # the tools of ours that a kind of call amounts to
    "read": "read_file",
    "search": "grep",
    "edit": "write_file",
    "delete": "write_file",
    "move": "write_file",
    "execute": "run",
}


@dataclass(frozen=True)
class Judgement:
    """What a preset says to a request, and to which real paths it says it: they are looked up once, so that what is
    allowed is what was judged and shown, whatever a symlink among them leads to later."""

    verdict: Verdict
    places: tuple[str, ...] = ()
    why_not: str = ""  # of what is refused

    def subject(self, call: ToolCallUpdate) -> str:
        """What "allow always" holds for: these places, or else what the agent calls it."""
        tool = USES.get(call.kind or "")
        return " ".join((tool or call.kind or "other", *(self.places or [call.title or ""])))


def judge(permissions: Permissions, call: ToolCallUpdate) -> Judgement:
    """What the permissions say to a call.

    They are clear about what lies inside of them. A person is asked about a write below the agent's directory that is
    in none of its write paths, for a trusted agent about what lies elsewhere, too, and for every agent about calls that
    are none of files, commands and the network. Looks at the disk.
    """
    outside = Verdict.ASKED if permissions.preset is Preset.TRUSTED else Verdict.REFUSED
    if call.kind == "think":
        return Judgement(Verdict.ALLOWED)
    if call.kind == "fetch":
        return Judgement(outside, why_not="This agent does not have the network's pages.")
    tool = USES.get(call.kind or "")
    if tool is None:
        return Judgement(Verdict.ASKED)
    if not rules.may_use(permissions, tool):
        return Judgement(Verdict.REFUSED, why_not=f"This agent ({permissions.preset}) does not have the tool {tool}.")
    if tool == "run":
        return Judgement(Verdict.ALLOWED)
    try:
        places = _places(permissions, call)
    except ValueError:
        return Judgement(Verdict.REFUSED, why_not="It names what is no path.")
    if any(protected_paths.is_hidden(path, permissions.cwd) for path in places):
        return Judgement(Verdict.REFUSED, places, "It names what is the hub's own, which no agent opens.")
    may = rules.may_write if tool in rules.WRITING else rules.may_read
    if places and all(may(permissions, path) for path in places):
        return Judgement(Verdict.ALLOWED, places)
    below = all(rules.may_read(permissions, path) for path in places)
    why_not = f"{', '.join(places)}: outside of the agent's directory, {permissions.cwd}."
    return Judgement(Verdict.ASKED if below else outside, places, why_not)


def _places(permissions: Permissions, call: ToolCallUpdate) -> tuple[str, ...]:
    """The real paths that a call names. Raises ValueError for what is no path."""
    changed = [block.path for block in call.content or [] if block.type == "diff"]
    named = [*(location.path for location in call.locations or []), *changed]
    real = (os.path.realpath(os.path.join(permissions.cwd, path)) for path in named)
    return tuple(dict.fromkeys(real))
