"""Writes of relays, recorded so that each has its effect once: a relay sends those again that a hub did not answer.

Each of them carries a random key and the number of a slot. The relay uses a slot for one request at a time, so a
connection has as many rows as it had such requests at once. The store holds a hash of the key, and the answer encrypted
with the key: nobody else can get or read an answer, which may contain secrets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from hashlib import shake_256
from typing import Any

from django.db import connection

from mcp_bridge import sql
from mcp_bridge.models import RecordedCall
from nexus.core.apps import NexusAppConfig, nexus_apps
from nexus.core.clock import now
from nexus.core.database.sql import insert
from nexus.core.database.store import commits, in_one_transaction, marked, write
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.registry import Operation
from nexus.core.operations.replies import Data, Hinted, Outcome, hinted

BEGUN, CALLED, FINISHED = range(3)  # stages of a request: the last one belongs to a wait that writes its answer
KEPT = timedelta(hours=1)  # a relay sends a request again within a minute, or never
LONGEST = 64 * 1024  # bytes of an answer; a longer one is not recorded
LOST = NexusError(
    Code.DB_ERROR,
    "The hub ended before it answered, and this may have been done. Look whether it was, before you send it again.",
    {"retryable": True, "may_be_done": True},
)


class Repeated(Exception):
    """The same request was done meanwhile, and this transaction must be rolled back."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class RelayedRequest:
    """One write of a relay: a `nexus.core.operations.caller.Request`."""

    def __init__(self, caller: Caller, number: int, key: str, *, repeated: bool) -> None:
        self._connection, self.repeated = caller.connection or "", repeated
        self._slot, self._secret = f"{self._connection}/{number}", f"{key} {caller.agent_id}"
        self._key = shake_256(self._secret.encode()).hexdigest(16)

    def outcome(self) -> Outcome | None:
        with write():  # behind a killed hub's transaction, which PostgreSQL may still be committing
            return self._recorded()

    def once(
        self, operation: Operation[Any], call: Callable[[], Data], finishes: Callable[[Data], bool] | None
    ) -> Data:
        def called() -> Outcome:
            try:
                return Outcome(call())
            except NexusError as error:  # raised behind the commit, with what the refusal stored
                return Outcome(error=error)

        try:
            if operation.own_transaction:
                outcome = self._marked(called)
            else:
                with in_one_transaction():
                    outcome = called()
                    waits = finishes is not None and outcome.data is not None and not finishes(outcome.data)
                    if connection.in_atomic_block and not waits:  # otherwise it wrote nothing, and may be made again
                        self._record(CALLED if finishes is None else FINISHED, outcome)
        except Repeated as repeated:
            outcome = repeated.outcome
        return outcome.result()

    def _marked(self, called: Callable[[], Outcome]) -> Outcome:
        """Make a call that has its own transactions: the first one records that it has begun, a further one the
        outcome."""
        before = commits()

        def mark() -> None:
            if commits() == before:
                self._record(BEGUN)

        with marked(mark):
            outcome = called()
        if commits() > before:
            with write(self._slot):
                self._record(CALLED, outcome)
        return outcome

    def _record(self, stage: int, outcome: Outcome | None = None) -> None:
        """Record, in the transaction of the write, that the request has reached this stage. Raises Repeated if the same
        request did before."""
        answer = self._as_bytes(outcome) if outcome is not None else b""
        row = {
            "slot": self._slot,
            "key": self._key,
            "stage": stage,
            "answer": self._veiled(stage, answer) if 0 < len(answer) <= LONGEST else None,
            "recorded_at": now(),
        }
        if sql.replace(**row):
            return
        if (before := self._recorded()) is not None:
            raise Repeated(before)
        RecordedCall.objects.filter(recorded_at__lt=now() - KEPT).delete()
        insert(RecordedCall(**row))

    def _recorded(self) -> Outcome | None:
        row = sql.find.first(slot=self._slot)
        if row is None or row.key != self._key:
            return None
        if row.answer is None:
            return Outcome(error=LOST)
        known = json.loads(self._veiled(row.stage, bytes(row.answer)))
        restore_states(self._connection, known["apps"])
        if known["error"] is None:
            return Outcome(hinted(known["data"], known["hint"]))
        catalog, code, message, details = known["error"]
        return Outcome(error=NexusError(_catalogs()[catalog](code), message, details))

    def _as_bytes(self, outcome: Outcome) -> bytes:
        """Return an outcome as JSON, with what the call made apps keep in memory."""
        data, error = outcome.data, outcome.error
        known = {
            "data": data,
            "hint": data.hint if isinstance(data, Hinted) else None,
            "error": error and [type(error.code).__name__, error.code.value, error.message, error.details],
            "apps": states_of(self._connection),
        }
        return json.dumps(known, ensure_ascii=False, separators=(",", ":")).encode()

    def _veiled(self, stage: int, text: bytes) -> bytes:
        """Encrypt or decrypt a text with a pad that only this stage of this request has."""
        pad = shake_256(f"{stage} {self._secret}".encode()).digest(len(text))
        return (int.from_bytes(text) ^ int.from_bytes(pad)).to_bytes(len(text))


def states_of(connection: str) -> dict[str, Any]:
    """Return, by app, what it keeps in memory about a connection."""
    return {app.label: app.connection_state(connection) for app in _stateful_apps()}


def restore_states(connection: str, states: Mapping[str, Any]) -> None:
    """Let each app keep in memory what `states_of` returned in another process. Raises ValueError for what no hub
    wrote."""
    for app in _stateful_apps():
        if (state := states.get(app.label)) is not None:
            app.restore_connection(connection, state)


@cache
def _stateful_apps() -> list[NexusAppConfig]:
    return [app for app in nexus_apps() if type(app).connection_state is not NexusAppConfig.connection_state]


def _catalogs() -> dict[str, type[ErrorCode]]:
    return {catalog.__name__: catalog for catalog in ErrorCode.__subclasses__()}
