"""The guard's messages. Names of files and texts of agents are escaped, so that they cannot imitate anything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from nexus.reservations.guard.held import HeldFile

SHOWN = 10  # files in one message
LONGEST = 200  # characters of others' texts
MARK = "[nexus] guard:"


def say(text: str) -> None:
    """Print a text where git shows it."""
    sys.stderr.write(text)


def quoted(text: str, longest: int = LONGEST) -> str:
    """Return a text of others in one line, with invisible characters and quotes escaped."""
    shown = "".join(
        letter if letter.isprintable() and letter not in '"\\' else letter.encode("unicode_escape").decode()
        if letter not in '"\\' else f"\\{letter}"
        for letter in text[:longest]
    )  # fmt: skip
    return f'"{shown}"' + (" (cut)" if len(text) > longest else "")


def plain(path: str) -> str:
    """Return a path, quoted where it could be mistaken for something else."""
    odd = not path.isprintable() or path.strip() != path or '"' in path or "\\" in path
    return quoted(path, 1000) if odd else path


def holder(conflict: HeldFile) -> str:
    """Return who holds a file, as what, until when and why."""
    holding = conflict.holding
    minutes = max(0, int((holding.expires_at - datetime.now(UTC)).total_seconds() // 60))
    left = f"{minutes} min" if minutes else "less than a minute"
    until = f"{holding.expires_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC ({left})"
    parts = [f"held by {quoted(holding.agent_id)} until {until}, unless renewed, as {quoted(holding.pattern)}"]
    if holding.handoff_id:
        parts.append(f"for handoff {holding.handoff_id}")
    if holding.task_id is not None:
        parts.append(f"for task {holding.task_id}")
    return ", ".join(parts) + (f": {quoted(holding.reason)}" if holding.reason else "")


def file_lines(conflicts: Sequence[HeldFile]) -> str:
    """Return the files, one a line."""
    lines = [f"  {plain(each.path)}: {holder(each)}\n" for each in conflicts[:SHOWN]]
    return "".join(lines) + (f"  and {len(conflicts) - SHOWN} more\n" if len(conflicts) > SHOWN else "")


def refusal(verb: str, agent_id: str | None, conflicts: Sequence[HeldFile]) -> str:
    """Return why a commit or a push is refused, and what to do."""
    files = (
        "a file that another agent holds" if len(conflicts) == 1 else f"{len(conflicts)} files that other agents hold"
    )
    leave = (
        "Leave them out (git restore --staged -- FILE)" if verb == "commit" else "Push commits that do not touch them"
    )
    me = f"You are agent {quoted(agent_id)}: only a person may override this" if agent_id else (
        f'A person may override this, which is recorded: NEXUS_OVERRIDE="why" git {verb} …'
    )  # fmt: skip
    return (
        f"{MARK} this {verb} touches {files}, and was refused.\n{file_lines(conflicts)}"
        f"{leave}, wait until they are free, or ask their holder (message_create).\n{me}.\n"
    )


def passed(conflicts: Sequence[HeldFile]) -> str:
    """Return what is said of a commit that was made although others hold its files."""
    return (
        f"{MARK} this commit was made past the guard, and changes what other agents hold; operators see that.\n"
        f"{file_lines(conflicts)}Take it back (git reset --soft HEAD~1), and ask their holder (message_create).\n"
    )


def unanswered(why: str, *, closed: bool, verb: str) -> str:
    """Return the message that the reservations could not be read."""
    then = f"the {verb} was refused (guard_unreadable is closed)" if closed else "nothing was checked"
    return f"{MARK} {why.rstrip('.')}: {then}.\n"


def unrun(hook: str, why: str) -> str:
    """Return the message that the hook that was there before cannot be started."""
    return f"{MARK} {plain(hook)} cannot be run: {why}.\n"


def unrecorded(verb: str, said: str) -> str:
    """Return the message that an override is refused because it could not be recorded."""
    why = " ".join(said.split())[-300:]
    return f"{MARK} the override could not be recorded, so the {verb} was refused: {why}\n"


def unseen(said: str) -> str:
    """Return the message that it could not be recorded what the guard did."""
    return f"{MARK} operators do not see this: {' '.join(said.split())[-300:]}\n"


def overridden(verb: str, conflicts: Sequence[HeldFile]) -> str:
    """Return the message about what a person overrides."""
    return f"{MARK} this {verb} goes on over what others hold, and that was recorded.\n{file_lines(conflicts)}"


def edit(agent_id: str, conflicts: Sequence[HeldFile], *, stopped: bool) -> str:
    """Return the message to an agent that is about to edit."""
    files = "A file that this edit changes is" if len(conflicts) == 1 else "Files that this edit changes are"
    then = "The edit was refused. Work" if stopped else "Rather work"
    return (
        f"{MARK} You are agent {quoted(agent_id)}. {files} held by another agent:\n{file_lines(conflicts)}"
        f"{then} on something else, wait, or ask the holder (message_create): what you change there meanwhile, you "
        "cannot commit."
    )
