"""The decision whether an agent is resumed or started afresh: one pure function over plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from nexus.planning.edits import Edit

FRESH, IF_SAME_ARTIFACT, RESUME = "fresh", "resume_if_same_artifact", "resume"
BOUNDED = "bounded"
OF_TIER: Mapping[str, str] = {"ephemeral": FRESH, BOUNDED: IF_SAME_ARTIFACT, "persistent": RESUME}

Session = Mapping[str, Any]  # an entry of agent-tracker.json
Edits = Mapping[str, Sequence[Edit]]  # by file


class ResumeDecision(NamedTuple):
    """What to do, the session to resume if any, and why."""

    decision: Literal["fresh", "resume"]
    agent_id: str | None
    why: str


def decide(
    *,
    tier: str | None,
    policy: str | None,
    agent: str | None,
    assigned: str | None,
    files: Collection[str],
    tracker: Sequence[Session],
    edits: Edits,
) -> ResumeDecision:
    """Decide whether to resume a session of `agent`, the name of a type or of an instance, for a task.

    `tier` is the type's: ephemeral, bounded, persistent, or None where it has none. `policy` is the task's
    owner_reuse_policy and takes precedence over the tier. `assigned` is the task's owner_agent_id, `files` are the
    task's files. Total: it never raises, whatever the tracker and the edits contain.
    """
    wanted = policy or OF_TIER.get(tier or "")
    whose = "the task's policy" if policy else f"the tier of its type ({tier})"
    if agent is None:
        return ResumeDecision("fresh", None, "The task has no owner, and none was named.")
    if wanted is None:
        return ResumeDecision("fresh", None, f"No tier is known for {agent}, and the task has no policy.")
    if wanted == FRESH:
        return ResumeDecision("fresh", None, f"It is what {whose} wants.")
    session = _session(agent, assigned, tracker)
    if session is None:
        return ResumeDecision("fresh", None, f"No ended session of {agent} is recorded.")
    agent_id = session["agent_id"]
    against = _against(session, assigned, files, edits)
    if wanted == IF_SAME_ARTIFACT and against:
        return ResumeDecision("fresh", None, f"It is what {whose} wants: {against}.")
    if wanted == IF_SAME_ARTIFACT:
        why = f"It is what {whose} wants: nobody else edited its files since. Read them again first."
        return ResumeDecision("resume", agent_id, why)
    if policy and tier == BOUNDED and against:
        why = f"The task's policy goes before the tier of its type (bounded), by which {against}. Read the files again."
        return ResumeDecision("resume", agent_id, why)
    return ResumeDecision("resume", agent_id, f"It is what {whose} wants.")


def _session(agent: str, assigned: str | None, tracker: Sequence[Session]) -> Session | None:
    """Return the session that could be resumed: that instance, the one that the task names, or the latest of the
    type."""
    ended = [entry for entry in tracker if entry.get("agent_id") and entry.get("status") == "completed"]
    named = [entry for entry in ended if entry["agent_id"] == agent]
    of_type = [entry for entry in ended if entry.get("agent_type") == agent]
    found = named or [entry for entry in of_type if entry["agent_id"] == assigned] or of_type
    return max(found, key=_used, default=None)


def _against(session: Session, assigned: str | None, files: Collection[str], edits: Edits) -> str:
    """Return the reason against "the same files and no edits of others"; empty where there is none."""
    touched = set(session.get("files_touched") or ())
    if not files and session["agent_id"] != assigned:
        return "the task names no file, and was not that session's"
    if strange := sorted(set(files) - touched):
        return f"that session did not touch {strange[0]}"
    began = _used(session)
    for path in sorted(files or touched):
        for edit in edits.get(path, ()):
            if edit.agent_id != session["agent_id"] and (_moment(edit.at) or began) >= began:
                return f"{path} was edited by {edit.agent_id or 'somebody else'} since"
    return ""


def _used(session: Session) -> datetime:
    """Return when a session last began."""
    moments = (_moment(session.get(name)) for name in ("last_resumed_at", "started_at"))
    return next((moment for moment in moments if moment), datetime.min.replace(tzinfo=UTC))


def _moment(text: Any) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        return None
