"""The demo's account: what the team was told, against what the store holds."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nexus_site.demo.team import Score


class Line(NamedTuple):
    """One row of the summary: what was counted, what should be, what is."""

    what: str
    expected: int
    found: int


@dataclass(frozen=True)
class Summary:
    """The rows of the table, and who won how many handoffs."""

    lines: list[Line]
    winners: Counter[str]
    lost_races: int

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing won twice."""
        return all(line.expected == line.found for line in self.lines)

    def table(self) -> str:
        """The summary for people."""
        rows = [f"{'':2}{'':34}{'expected':>10}{'found':>8}"]
        for line in self.lines:
            mark = "✓" if line.expected == line.found else "✗"
            rows.append(f"{mark:2}{line.what:34}{line.expected:>10}{line.found:>8}")
        rows += [f"  {winner} won {count}" for winner, count in sorted(self.winners.items())]
        rows.append(f"  {self.lost_races} claims came second and were told so")
        return "\n".join(rows)


def newest_event(database: Path) -> int:
    """The id of the newest event; 0 where there is none, or no store yet."""
    if not database.exists():
        return 0
    with closing(_open(database)) as store:
        return int(store.execute("SELECT coalesce(max(event_id), 0) FROM events").fetchone()[0])


def account(
    database: Path, project_root: str, score: Score, seen_claims: dict[str, list[str]], started_after: int
) -> Summary:
    """Compare the team's own record with the rows of the store, and its events after the id `started_after`."""
    with closing(_open(database)) as store:

        def count(sql: str, *values: str) -> int:
            return int(store.execute(sql, values).fetchone()[0])

        workspace = count("SELECT rowid FROM workspaces WHERE root_realpath = ?", project_root)
        here = f"workspace_id = (SELECT workspace_id FROM workspaces WHERE rowid = {workspace})"  # noqa: S608
        found = {row[0] for row in store.execute(f"SELECT message_id FROM messages WHERE {here}")}  # noqa: S608
        mail = f"FROM message_deliveries JOIN messages USING (message_id) WHERE {here}"
        deliveries = count(f"SELECT count(*) {mail}")
        read = count(f"SELECT count(*) {mail} AND status = 'read'")
        completed = count(f"SELECT count(*) FROM handoffs WHERE {here} AND status = 'COMPLETED'")  # noqa: S608
        claims = count(f"SELECT count(*) FROM events WHERE {here} AND type = 'handoff.claimed'")  # noqa: S608
        new = "FROM events WHERE event_id > ?"
        events, last = store.execute(f"SELECT count(*), max(event_id) {new}", [started_after]).fetchone()
    handoffs = len(score.handoffs)
    return Summary(
        [
            Line("messages that senders were told of", len(score.messages), len(found & set(score.messages))),
            Line("deliveries read", deliveries, read),
            Line("handoffs completed", handoffs, completed),
            Line("handoffs won, as winners were told", handoffs, len({handoff for handoff, _ in score.wins})),
            Line("claims in the log", handoffs, claims),
            Line("claims seen by the viewer", handoffs, sum(map(len, seen_claims.values()))),
            Line("events, without a gap", last - started_after, events),
        ],
        Counter(winner for _, winner in score.wins),
        score.lost_races,
    )


def _open(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True)
