"""Import of a home of NEXUS3: its sessions become ended agents of the pool; all of it, or nothing."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from coordination.models import ID_LENGTH, Agent
from nexus.compat.nexus3.source import Nexus3Home, Session, damaged
from nexus.compat.nexus3.wire import our_tools
from nexus.control.agents.transcript import estimate
from nexus.control.models import PATH_LENGTH, Entry, PoolAgent, Role
from nexus.control.permissions import rules
from nexus.control.permissions.rules import TOOLS, Preset
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.maintenance.store_file import Progress

AT_ONCE = 200  # entries
PRESETS = {"sandboxed": Preset.SANDBOXED, "trusted": Preset.TRUSTED, "yolo": Preset.TRUSTED}  # by level
UNKNOWN_RUNNER = "nexus3"  # of a session that does not name its model


class Nexus3Import:
    """One import: counts what it finds and writes, and notes what has no place here."""

    def __init__(self, source: Nexus3Home, *, operator: str, progress: Progress) -> None:
        self.new: Counter[str] = Counter()
        self.unmoved: Counter[str] = Counter()
        self._source, self._operator, self._progress = source, operator, progress
        self._note_unmoved()

    @property
    def found(self) -> dict[str, int]:
        """How much the home holds."""
        sessions = self._source.sessions
        return {"sessions": len(sessions), "messages": sum(session.messages for session in sessions)}

    def run(self) -> None:
        """Write everything that is not here yet. Raises VALIDATION_ERROR, and then wrote nothing."""
        with write():
            self._agents()

    def _agents(self) -> None:
        left = total = len(self._source.sessions)
        made: dict[str, PoolAgent] = {}  # the newest of each name
        for session in _parents_first(self._source.sessions):
            pk = _id_of(session)
            known = PoolAgent.objects.filter(pk=pk).first()
            if known is not None:
                made[session.agent_id] = known
                self.unmoved["sessions that went on since they were imported"] += (
                    known.last_action_at < session.modified_at
                )
            elif self._is_anothers(session.agent_id):
                self.unmoved[f"the session of {session.agent_id}, which is an agent outside of the pool here"] += 1
            else:
                try:
                    made[session.agent_id] = self._agent(pk, session, made.get(session.parent or ""))
                except RecursionError:  # nested deeper than JSON is written
                    raise damaged(session.path) from None
            left -= 1
            self._progress(0, left, total)

    def _is_anothers(self, agent_id: str) -> bool:
        """Return whether a name is an identity that the pool did not create, which an operator could give away then."""
        return Agent.everyone.filter(pk=agent_id).exists() and not PoolAgent.objects.filter(agent_id=agent_id).exists()

    def _agent(self, pk: str, session: Session, parent: PoolAgent | None) -> PoolAgent:
        content = self._source.content(session)
        entries = list(_entries(content))
        agent = PoolAgent.objects.create(
            pool_agent_id=pk,
            agent_id=session.agent_id,
            parent=parent,
            depth=parent.depth + 1 if parent else 0,
            preset=PRESETS.get(session.level, Preset.SANDBOXED),
            cwd=_text(session.cwd)[:PATH_LENGTH],
            disabled_tools=sorted(TOOLS & set(our_tools(session.disabled_tools))),
            runner=_text(session.model or UNKNOWN_RUNNER)[:ID_LENGTH],
            is_temporary=rules.is_temporary(session.agent_id),
            entries_made=len(entries),
            entries_known=len(entries),
            created_by=parent.agent_id if parent else self._operator,
            created_at=session.created_at,
            last_action_at=session.modified_at,
            ended_at=now(),  # so that retention counts from here
        )
        for start in range(0, len(entries), AT_ONCE):
            Entry.objects.bulk_create(
                Entry(agent=agent, position=position, created_at=session.created_at, **fields)
                for position, fields in enumerate(entries[start : start + AT_ONCE], start)
            )
        self.new["agents"] += 1
        self.new["entries"] += len(entries)
        return agent

    def _note_unmoved(self) -> None:
        sessions = self._source.sessions
        self.unmoved["links, pipes and others that are no files"] += self._source.left_out
        self.unmoved["clipboards of agents"] += sum(session.has_clipboard for session in sessions)
        self.unmoved["sessions with the level yolo, which is trusted here"] += sum(
            session.level == "yolo" for session in sessions
        )
        self.unmoved["configurations: write its models as runners (Coming from NEXUS3 shows how)"] += (
            self._source.has_configuration
        )


def _parents_first(sessions: Iterable[Session]) -> list[Session]:
    """Return sessions so that a parent comes before its children. Those that are their own ancestors come as they
    are."""
    left, done, names = list(sessions), list[Session](), set[str]()
    while left:
        waiting = {session.agent_id for session in left}
        ready = [each for each in left if each.parent is None or each.parent in names or each.parent not in waiting]
        ready = ready or left
        done += ready
        names |= {session.agent_id for session in ready}
        gone = set(ready)
        left = [session for session in left if session not in gone]
    return done


def _id_of(session: Session) -> str:
    """Return the id of an imported agent: one that sorts by time like our own, the same each time."""
    digest = hashlib.sha256(f"nexus3 {session.agent_id} {session.created_at.isoformat()}".encode()).hexdigest()
    return f"pool_{max(int(session.created_at.timestamp() * 1000), 0):012x}7{digest[:19]}"


def _entries(content: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the fields of a session's entries."""
    if isinstance(prompt := content.get("system_prompt"), str) and prompt:
        yield _entry(Role.SYSTEM, prompt, None, {})
    for message in content["messages"]:
        meta = dict(message["meta"]) if isinstance(message.get("meta"), dict) else {}
        if message.get("tool_calls"):
            meta["tool_calls"] = message["tool_calls"]
        yield _entry(Role(message["role"]), message.get("content") or "", message.get("tool_call_id"), meta)


def _entry(role: Role, content: str, tool_call_id: str | None, meta: Mapping[str, Any]) -> dict[str, Any]:
    content, clean = _text(content), _clean(meta) or None
    return {
        "role": role,
        "content": content,
        "tool_call_id": tool_call_id and _text(tool_call_id)[:ID_LENGTH],
        "meta": clean,
        "tokens": estimate(content) + (estimate(str(clean)) if clean else 0),
    }


def _text(text: str) -> str:
    """Return a text without what a store cannot hold."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
