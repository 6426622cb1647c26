"""Transcripts: the entries of an agent, in order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from django.db.models import F, Q, QuerySet, Sum
from django.db.models.functions import Left

from coordination.services import agents
from nexus.control import events
from nexus.control.events import emit_turn_event
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.permissions import rules
from nexus.core.clock import now
from nexus.core.database.store import write

BYTES_A_TOKEN = 4  # the usual estimate if the model does not report it
SESSION = "acp_session"  # key in an entry's `meta`: the session of the agent process that said it
RUNNER = "runner"  # key in an entry's `meta`: the fallback that took the turn
READING_KINDS = frozenset(("read", "search", "think", "fetch"))  # of an agent process's calls
PAGE = 100  # entries read at once if not all are needed
LARGEST_PAGE = 4_000_000  # tokens in one page for a caller, some 16 MB
AT_ONCE = 8_000_000  # tokens that one compaction replaces, some 32 MB; it blocks other writers
ROW = 100  # tokens added for each entry in that count
KEPT = 2  # last turns that compaction leaves unchanged, if they take at most half of the context
QUOTED = 400  # characters of an entry that the summary keeps
SUMMARY = 4  # a summary takes at most a quarter of the context
HEAD = "Summary of what was said before, made by quoting its beginnings:\n"


def estimate(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return -(-len(text.encode()) // BYTES_A_TOKEN)


def entries_made(agent: PoolAgent) -> int:
    """Return the number of entries in an agent's transcript: the position of the next one."""
    return PoolAgent.objects.values_list("entries_made", flat=True).get(pk=agent.pk)


def append(
    agent: PoolAgent,
    turn: Turn | None,
    role: Role,
    content: str,
    *,
    moment: datetime,
    tool_call_id: str | None = None,
    meta: Mapping[str, Any] | None = None,
    announce: bool = False,
) -> Entry:
    """Append an entry to a transcript; with `announce`, also an event for followers of the turn. Call it inside
    a transaction that has read the agent. An entry of a turn counts as an action of the agent."""
    entry = Entry.objects.create(
        agent_id=agent.pk,
        turn_id=None if turn is None else turn.pk,
        position=agent.entries_made,
        role=role,
        content=content,
        tool_call_id=tool_call_id,
        meta=None if meta is None else dict(meta),
        tokens=estimate(content) + (estimate(str(meta)) if meta else 0),
        created_at=moment,
    )
    counted = PoolAgent.objects.filter(pk=agent.pk)
    counted.update(entries_made=F("entries_made") + 1, entries_known=F("entries_known") + 1)
    agent.entries_made += 1
    agent.entries_known += 1
    if turn is not None:
        agents.touch(agent.agent_id, moment)
    if announce and turn is not None:
        emit_turn_event("turn.said", agent.agent_id, turn, moment, position=entry.position, role=entry.role)
    return entry


def context(agent: PoolAgent) -> list[Entry]:
    """Return the entries in an agent's context, in order."""
    return list(Entry.objects.in_context().filter(agent=agent))


def before(agent: PoolAgent, position: int) -> list[Entry]:
    """Return one page of an agent's context before a position, newest first."""
    earlier = Entry.objects.in_context().filter(agent=agent, position__lt=position)
    return list(earlier.order_by("-position")[:PAGE])


def page(entries: QuerySet[Entry], limit: int) -> tuple[list[Entry], bool]:
    """Return the first entries, fewer than the limit if they are long, and whether these are all."""
    found, tokens = list[Entry](), 0
    for entry in entries[:limit].iterator(PAGE // 10):
        found.append(entry)
        tokens += entry.tokens
        if tokens > LARGEST_PAGE:
            return found, False
    return found, len(found) < limit


def may_have_changed_files(turn: Turn) -> bool:
    """Return whether a run called a tool that does more than read."""
    metas = Entry.objects.filter(agent=turn.agent, turn=turn, meta__isnull=False).values_list("meta", flat=True)
    calls = (call for meta in metas.iterator(PAGE) for call in tool_calls(meta))
    return any(call["kind"] not in READING_KINDS and call["name"] not in rules.READING for call in calls)


def tool_calls(meta: object) -> list[dict[str, Any]]:
    """Return the calls that an entry makes, or the call that a result answers if it has changed since: id, name, kind,
    arguments and diffs of each. What the runner left out is empty."""
    if not isinstance(meta, dict):
        return []
    found = meta.get("tool_calls") or [meta.get("call")]
    return [_call(call) for call in found if isinstance(call, dict)] if isinstance(found, list) else []


def _call(call: dict[str, Any]) -> dict[str, Any]:
    diffs = call.get("diffs")
    return {
        "id": str(call.get("id", "")),
        "name": str(call.get("name") or "a tool"),
        "kind": call.get("kind"),
        "arguments": call.get("arguments", {}),
        "diffs": [diff for diff in diffs if isinstance(diff, dict)] if isinstance(diffs, list) else [],
    }


def tokens_by_role(agent: PoolAgent) -> dict[str, int]:
    """Return the tokens of an agent's context, by role."""
    rows = Entry.objects.in_context().filter(agent=agent).order_by().values_list("role").annotate(total=Sum("tokens"))
    return dict(rows)


def compact(agent: PoolAgent, by: str | None, available: int) -> tuple[int, int] | None:
    """Replace the entries before the last turns, an earlier summary included, with one summary; return the tokens
    before and after, None if there was nothing to compact. `available` is the number of tokens that the context holds;
    `by` is None if nobody asked for it.

    The entries stay in the store, outside the context. The summary quotes the beginnings of messages and answers, the
    newest if there is no room for all; it needs no model, and says that it is a summary. In a very large context one
    call compacts the oldest part.
    """
    moment = now()
    with write():
        agent = PoolAgent.objects.get(pk=agent.pk)
        known = Entry.objects.in_context().filter(agent=agent)
        old = _oldest(known.exclude(turn__in=_recent_turns(known, available // 2)))
        before, folded = (among.aggregate(tokens=Sum("tokens"))["tokens"] or 0 for among in (known, old))
        count = old.count()
        if not old.exclude(role=Role.SYSTEM).exists():
            return None  # a summary of a summary would be the same, again and again
        summary = HEAD + _quoted(old, available // SUMMARY * BYTES_A_TOKEN)
        if estimate(summary) >= folded:
            return None
        old.update(compacted_at=moment)
        PoolAgent.objects.filter(pk=agent.pk).update(entries_known=F("entries_known") - count)
        meta = {"summary_of": count, **({} if by else {"unasked": True})}
        kept = append(agent, None, Role.SYSTEM, summary, moment=moment, meta=meta)
        after = before - folded + kept.tokens
        events.emit_event("pool.compacted", by, agent, moment, tokens_before=before, tokens_after=after)
    return before, after


def _recent_turns(known: QuerySet[Entry], most: int) -> list[str]:
    """Return the turns that compaction leaves in the context: the last, with at most so many tokens together, and one
    that runs. An ended turn that has more alone is none of them: its message was too long for its runner."""
    recent, left = list[str](), most
    newest = known.exclude(turn=None).order_by("-position").values_list("turn_id", "turn__ended_at", "tokens")
    for (turn_id, ended_at), entries in groupby(newest.iterator(PAGE), itemgetter(0, 1)):
        tokens = sum(entry[2] for entry in entries)
        if tokens > most and ended_at is not None:
            continue
        if len(recent) == KEPT or (recent and tokens > left):
            break
        recent.append(turn_id)
        left -= tokens
    return recent


def _oldest(old: QuerySet[Entry]) -> QuerySet[Entry]:
    """Return the entries to compact at once, an earlier summary included."""
    weight = 0
    for position, tokens in old.values_list("position", "tokens").iterator(PAGE):
        weight += tokens + ROW
        if weight > AT_ONCE:
            return old.filter(Q(position__lte=position) | Q(role=Role.SYSTEM))
    return old


def _quoted(old: QuerySet[Entry], most: int) -> str:
    """Return the text of a summary, at most so many bytes, the newest first kept: the beginning of each entry, and all
    of an earlier summary, which describes what came before."""
    newest_first = old.exclude(content="").order_by("-position")
    said = newest_first.exclude(role__in=(Role.SYSTEM, Role.TOOL))
    earlier = newest_first.filter(role=Role.SYSTEM).values_list("content", flat=True)
    lines, length = list[bytes](), 0
    for line in chain(
        (f"{role}: {text}" for role, text in said.values_list("role", Left("content", QUOTED)).iterator(PAGE)),
        (summary.removeprefix(HEAD) for summary in earlier.iterator(PAGE)),
    ):
        lines.append(line.encode())
        length += len(lines[-1])
        if length > most:
            break
    return b"\n".join(reversed(lines))[-most:].decode(errors="ignore")
