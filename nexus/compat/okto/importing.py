"""Import of a store of okto-nexus: all of it in one transaction, or nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, models

from coordination.models import (
    ID_LENGTH,
    Agent,
    AgentKey,
    AgentLimits,
    Artifact,
    Channel,
    Event,
    LimitScope,
    Session,
    StoredSetting,
    Tag,
    VisibilityChoices,
    Workspace,
)
from coordination.routing import parse_target
from coordination.services import settings as stored_settings
from coordination.services.agents import hash_secret
from handoffs.models import HELD, Dependency, Handoff, HandoffStatus, title_of
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.compat.models import ImportedId, ImportedStore
from nexus.compat.okto import permissions
from nexus.compat.okto.source import NOTHING, OktoStore, Row, moment, value
from nexus.core.clock import now
from nexus.core.config import TABLE, CoreSettings
from nexus.core.database.store import store, write
from nexus.core.foreign_files import beginning
from nexus.core.operations.errors import NexusError, invalid
from nexus.maintenance.store_file import Progress

log = logging.getLogger(__name__)

PREFIXES = {"msg": "msg", "hof": "hnd", "art": "art", "del": "dlv"}  # of ids there, and here
OLD_ID = re.compile(r"\b(?:msg|hof|art)_[0-9a-f]{32}\b")
STATUSES = {"VERIFYING": HandoffStatus.SUBMITTED}  # the others have the same name
TYPES = {"html": "text"}  # of artifacts; likewise
KINDS = ("workspaces", "agents", "sessions", "channels", "artifacts", "messages", "message_deliveries", "handoffs",
         "events", "settings")  # fmt: skip
# What 0.3.1 keeps and this version has no place for, in words.
WITHOUT_PLACE = {
    "message_embeddings": "vectors of messages (`nexus topics reindex` makes its own)",
    "memories": "memories",
    "approvals": "requests for approval",
    "agent_policy_bindings": "policies of agents",
    "governance_policies": "quotas of governance",
    "guardrail_assignments": "guardrails in force",
    "agent_group_members": "members of agent groups",
    "agent_comm_binding": "communication presets of agents",
    "ephemeral_poll_tokens": "poll tokens",
    "harness_sessions": "sessions of harnesses",
    "permission_presets": "presets of permissions",
}


def counts(source: OktoStore) -> dict[str, int]:
    """Return how many rows of each kind a store has."""
    return {table: source.count(table) for table in KINDS}


def without_place(source: OktoStore) -> dict[str, int]:
    """Return what a store holds that is not imported, in words, with how many there are."""
    found = {words: source.count(table) for table, words in WITHOUT_PLACE.items()}
    if source.has("agents", "comm_scope"):
        found["limits of whom an agent may reach by tags"] = source.count("agents", "comm_scope IS NOT NULL")
    return {words: count for words, count in found.items() if count}


def new_id(old: str, made: datetime) -> str:
    """Return the id of an imported row: one that sorts by time like our own, the same each time."""
    prefix = PREFIXES.get(old.partition("_")[0], "x")
    milliseconds, micro = divmod(int(made.timestamp() * 1_000_000), 1000)
    return f"{prefix}_{max(milliseconds, 0):012x}7{micro:03x}8{hashlib.sha256(old.encode()).hexdigest()[:15]}"


class OktoImport:
    """One import: counts what it wrote, and notes what it could not take."""

    def __init__(self, source: OktoStore, *, operator: str, progress: Progress) -> None:
        self.new: Counter[str] = Counter()
        self.unmoved: Counter[str] = Counter(without_place(source))
        self._source, self._operator, self._progress = source, operator, progress
        self._left = self._total = sum(counts(source).values())
        self._shift = self._highest = 0  # of the numbers of events: what is added to them, and the highest in use

    def run(self) -> None:
        """Write everything that is not here yet, in one transaction. Raises VALIDATION_ERROR for a row that cannot be
        taken."""
        steps = (self._workspaces, self._agents, self._sessions, self._channels, self._artifacts, self._messages,
                 self._handoffs, self._events, self._settings)  # fmt: skip
        try:
            with write():  # other writers wait meanwhile, another import of the store, too
                name = self._source.name
                self._read = ImportedStore.objects.filter(pk=name).first() or ImportedStore(source=name)
                for self._step in steps:
                    self._step()
        except DatabaseError as error:
            if store().failure(error):
                raise
            log.error("the import was undone", exc_info=error)
            kind = self._step.__name__.strip("_")
            raise invalid(f"{NOTHING}: {kind} hold a row that okto-nexus does not write. The log has it.") from None

    def _write(self, kind: str, rows: Sequence[models.Model], seen: int) -> None:
        if rows:
            type(rows[0])._base_manager.bulk_create(rows)
        self.new[kind] += len(rows)
        self._left -= seen
        self._progress(0, self._left, self._total)

    def _each(self, table: str, model: type[models.Model], make: Callable[[Row], models.Model | None]) -> None:
        """Write the rows of a table whose key is not here yet."""
        key = model._meta.pk.name
        for page in self._source.pages(f"SELECT * FROM {table} ORDER BY rowid"):  # noqa: S608
            made = [row for row in map(make, page) if row is not None]
            here = set(model._base_manager.filter(pk__in=[row.pk for row in made]).values_list(key, flat=True))
            self._write(table, [row for row in made if row.pk not in here], len(page))

    def _workspaces(self) -> None:
        def make(row: Row) -> Workspace | None:
            if not row["root_realpath"]:
                self.unmoved["workspaces without a directory"] += 1
                return None
            made = moment(row["created_at"], "workspaces.created_at")
            return Workspace(
                workspace_id=row["workspace_id"],
                display_name=row["display_name"],
                root_realpath=row["root_realpath"],
                created_at=made,
                last_seen_at=_or(row["last_seen_at"], made, "workspaces.last_seen_at"),
            )

        self._each("workspaces", Workspace, make)

    def _agents(self) -> None:
        if self._source.has("tag_keys"):
            query = (
                "SELECT key, '' AS value, description, created_at FROM tag_keys "
                "UNION ALL SELECT key, value, description, created_at FROM tag_values"
            )
            for page in self._source.pages(query):
                rows = [Tag(**_only(row, "key", "value", "description"),
                            created_at=moment(row["created_at"], "tag_keys.created_at")) for row in page]  # fmt: skip
                Tag.objects.bulk_create(rows, ignore_conflicts=True)
        for page in self._source.pages("SELECT * FROM agents ORDER BY rowid"):
            known = set(Agent.everyone.filter(pk__in=[row["agent_id"] for row in page]).values_list("pk", flat=True))
            new = [row for row in page if row["agent_id"] not in known]
            self._write("agents", [self._agent(row) for row in new], len(page))
            self._keys(page)
            AgentLimits.objects.bulk_create(filter(None, map(self._limits, new)), ignore_conflicts=True)

    def _agent(self, row: Row) -> Agent:
        made = moment(row["created_at"], "agents.created_at")
        seen = _or(row["last_seen_at"], None, "agents.last_seen_at")
        return Agent(
            agent_id=row["agent_id"],
            role=row["role"],
            capabilities=value(row["capabilities"], "agents.capabilities"),
            tags=value(row.get("tags"), "agents.tags"),
            metadata=value(row["metadata"], "agents.metadata"),
            created_at=made,
            updated_at=seen or made,
            last_seen_at=seen,
            deleted_at=_or(row.get("deleted_at"), None, "agents.deleted_at"),
        )

    def _keys(self, page: Sequence[Row]) -> None:
        """Take the hashes of keys. They are made as here, so the keys go on working."""
        hashes = {row["agent_id"]: row for row in page if row["api_key_hash"]}
        taken = set(AgentKey.objects.filter(key_hash__in=[row["api_key_hash"] for row in hashes.values()])
                    .values_list("agent_id", flat=True))  # fmt: skip
        other = set(AgentKey.objects.filter(agent_id__in=hashes).values_list("agent_id", flat=True)) - taken
        self.unmoved["keys of agents that have another key here"] += len(other)
        new = [row for agent_id, row in hashes.items() if agent_id not in taken | other]
        keys = [
            AgentKey(
                agent_id=row["agent_id"],
                key_hash=row["api_key_hash"],
                is_active=bool(row["is_active"]),
                created_at=moment(row["created_at"], "agents.created_at"),
            )
            for row in new
        ]
        AgentKey.objects.bulk_create(keys)
        self.new["keys"] += len(keys)

    def _limits(self, row: Row) -> AgentLimits | None:
        found = permissions.translate(value(row["permissions"], "agents.permissions"))
        for flag in found.without_place:
            self.unmoved[f"the permission {flag} of {row['agent_id']}"] += 1
        if not found.values and not found.refused:
            return None
        return AgentLimits(
            scope=LimitScope.AGENT,
            name=row["agent_id"],
            values=found.values,
            refused=found.refused or None,
            updated_at=now(),
            updated_by=self._operator,
        )

    def _sessions(self) -> None:
        def make(row: Row) -> Session:
            started = moment(row["started_at"], "sessions.started_at")
            beat = _or(row["last_heartbeat_at"], started, "sessions.last_heartbeat_at")
            closed = None if row["status"] == "active" else _or(row["closed_at"], beat, "sessions.closed_at")
            return Session(
                session_id=row["session_id"],
                agent_id=row["agent_id"],
                workspace_id=row["workspace_id"],
                status="active" if closed is None else "closed",
                secret_hash=hash_secret(row["session_secret"] or secrets.token_hex()),
                started_at=started,
                last_heartbeat_at=beat,
                closed_at=closed,
            )

        self._each("sessions", Session, make)

    def _channels(self) -> None:
        """Channels keep their ids, except where one of the same name is here."""

        def make(row: Row) -> Channel | None:
            same = Channel.objects.filter(workspace_id=row["workspace_id"], name=row["name"]).first()
            if same is not None and same.pk != row["channel_id"]:
                ImportedId.objects.get_or_create(old_id=row["channel_id"], defaults={"new_id": same.pk})
            return None if same else Channel(**_only(row, "channel_id", "workspace_id", "name"),
                                             created_at=moment(row["created_at"], "channels.created_at"))  # fmt: skip

        self._each("channels", Channel, make)

    def _artifacts(self) -> None:
        for page in self._source.pages("SELECT * FROM artifacts ORDER BY created_at, rowid"):
            new = self._unknown(page, "artifact_id")
            self._write("artifacts", [made for row in new if (made := self._artifact(row))], len(page))

    def _artifact(self, row: Row) -> Artifact | None:
        manifest: Mapping[str, Any] = {}
        content, path = row["content"], row["path"]
        if row.get("storage_path"):
            path = None
            content, manifest = self._payload(row)
        if content is None and path is None:
            self.unmoved["artifacts whose file is no text, too large or missing (they stay in its home)"] += 1
            return None
        made = moment(row["created_at"], "artifacts.created_at")
        kind = str(row["artifact_type"])
        size = row["size_bytes"]
        return Artifact(
            artifact_id=new_id(row["artifact_id"], made),
            workspace_id=row["workspace_id"],
            artifact_type=TYPES.get(kind, kind),
            name=row["name"] and row["name"][:255],
            path=path,
            content=content,
            metadata=manifest.get("metadata"),
            created_by=row.get("created_by"),
            size_bytes=len((content or "").encode()) if size is None else size,
            content_type=(row["content_type"] or row.get("media_type") or "text/plain")[:64],
            created_at=made,
        )

    def _payload(self, row: Row) -> tuple[str | None, Mapping[str, Any]]:
        """Return the text of an artifact that 0.3.1 keeps as a file, and its manifest. What is no regular file, such as
        a pipe, is not opened: it would wait for ever."""
        home, largest = (self._source.home / "artifacts").resolve(), CoreSettings.current().max_inline_bytes
        file = (home / row["storage_path"].replace("\0", "")).resolve()
        if not file.is_relative_to(home):
            return None, {}
        try:
            manifest = json.loads(beginning(str(file.parent / "manifest.json"), largest) or b"")
        except (ValueError, RecursionError):
            manifest = None
        try:
            content = beginning(str(file), largest + 1)
            text = None if content is None or len(content) > largest else content.decode()
        except UnicodeDecodeError:
            text = None
        return text, manifest if isinstance(manifest, dict) else {}

    def _messages(self) -> None:
        query = (
            "SELECT m.*, p.created_at AS parent_created_at FROM messages m "
            "LEFT JOIN messages p ON p.message_id = m.parent_message_id ORDER BY m.created_at, m.rowid"
        )
        for page in self._source.pages(query):
            new = self._unknown(page, "message_id")
            known = self._ids(text for row in new for text in (row["artifacts"], row["channel_id"]))
            deliveries = self._deliveries([row["message_id"] for row in new])
            self._write("messages", [self._message(row, known, deliveries) for row in new], len(page))
            rows = [each for row in new for each in deliveries.get(row["message_id"], [])]
            self._write("message_deliveries", rows, len(rows))

    def _message(self, row: Row, known: Mapping[str, str], deliveries: Mapping[str, Sequence[Delivery]]) -> Message:
        made = moment(row["created_at"], "messages.created_at")
        parent, channel = row["parent_message_id"], row["channel_id"]
        artifacts = value(row["artifacts"], "messages.artifacts") or []
        message_id = new_id(row["message_id"], made)
        for delivery in deliveries.get(row["message_id"], ()):
            delivery.message_id = message_id
        return Message(
            message_id=message_id,
            workspace_id=row["workspace_id"],
            from_agent_id=row["from_agent_id"],
            from_session_id=row["from_session_id"],
            channel_id=known.get(channel, channel),
            parent_id=new_id(parent, moment(row["parent_created_at"], "messages.created_at"))
            if row["parent_created_at"]
            else None,
            target=self._target(row["target"], "messages.target"),
            subject=row["subject"] or "(no subject)",
            body=row["body"] or "(no text)",
            artifacts=[known.get(each, each) for each in artifacts],
            recipients_count=len(deliveries.get(row["message_id"], ())),
            trace_id=_trace(row.get("trace_id"), "messages.trace_id"),
            created_at=made,
        )

    def _deliveries(self, message_ids: Sequence[str]) -> dict[str, list[Delivery]]:
        found: dict[str, list[Delivery]] = {}
        if message_ids:
            quoted = ", ".join("'" + each.replace("'", "''") + "'" for each in message_ids)
            query = f"SELECT * FROM message_deliveries WHERE message_id IN ({quoted}) ORDER BY rowid"  # noqa: S608
            for page in self._source.pages(query):
                for row in page:
                    found.setdefault(row["message_id"], []).append(self._delivery(row))
        return found

    def _delivery(self, row: Row) -> Delivery:
        made = moment(row["created_at"], "message_deliveries.created_at")
        status = row["status"]
        delivered = _or(row["delivered_at"], None, "message_deliveries.delivered_at")
        lease = _or(row["lease_expires_at"], None, "message_deliveries.lease_expires_at")
        return Delivery(
            delivery_id=new_id(row["delivery_id"], made),
            recipient_id=row["recipient_agent_id"],
            status=status,
            attempts=row["attempts"],
            delivered_at=(delivered or made) if status == DeliveryStatus.DELIVERED else delivered,
            lease_expires_at=(lease or made) if status == DeliveryStatus.DELIVERED else None,
            read_at=_or(row["read_at"], delivered or made, "message_deliveries.read_at")
            if status == DeliveryStatus.READ
            else None,
            created_at=made,
        )

    def _handoffs(self) -> None:
        """Handoffs are in the order of their events. Those whose event retention took come before the others."""
        self._source.remember(
            "born",
            "SELECT json_extract(payload, '$.handoff_id') AS handoff_id, min(event_id) FILTER "
            "(WHERE type = 'handoff.created') AS created, max(created_at) FILTER (WHERE type = 'handoff.claimed') "
            "AS claimed_at FROM events WHERE stream = 'handoff' AND json_valid(payload) GROUP BY 1",
        )
        query = (
            "SELECT h.*, b.created, b.claimed_at FROM handoffs h LEFT JOIN born b ON b.handoff_id = h.handoff_id "
            "ORDER BY h.created_at, h.rowid"
        )
        through, free = self._read.events_through, store().given_out(Event)
        orphans = sum(
            (row["created"] or 0) <= through
            for page in self._source.pages(query)
            for row in self._unknown(page, "handoff_id", keep=False)
        )
        first = self._source.first("events", "event_id", through)
        self._shift = max(0, free + orphans - (first - 1)) if first else 0
        for page in self._source.pages(query):
            made = []
            for row in self._unknown(page, "handoff_id"):
                if (row["created"] or 0) <= through:
                    free += 1
                    made.append(self._handoff(row, free))
                else:
                    made.append(self._handoff(row, row["created"] + self._shift))
            self._write("handoffs", made, len(page))
        self._highest = free
        if self._source.has("handoff_dependencies"):
            for page in self._source.pages("SELECT handoff_id, depends_on_id FROM handoff_dependencies ORDER BY rowid"):
                known = self._ids(each for row in page for each in row.values())
                pairs = [(known.get(row["handoff_id"]), known.get(row["depends_on_id"])) for row in page]
                rows = [Dependency(handoff_id=one, depends_on_id=other) for one, other in pairs if one and other]
                Dependency.objects.bulk_create(rows, ignore_conflicts=True)
            Dependency.objects.filter(depends_on__status=HandoffStatus.COMPLETED, done=False).update(done=True)

    def _events(self) -> None:
        """Events keep their numbers in an empty log; else they follow what is here, in their order."""
        through = self._read.events_through
        for page in self._source.pages(f"SELECT * FROM events WHERE event_id > {through:d} ORDER BY event_id"):  # noqa: S608
            known = self._ids(row["payload"] for row in page)
            self._write("events", [self._event(row, known) for row in page], len(page))
            self._read.events_through = page[-1]["event_id"]
            self._highest = page[-1]["event_id"] + self._shift
        # Last, as PostgreSQL does not take it back with the transaction: the next import is to find an empty log.
        store().give_out_above(Event, self._highest)
        self._read.imported_at = now()
        self._read.save()

    def _handoff(self, row: Row, number: int) -> Handoff:
        made = moment(row["created_at"], "handoffs.created_at")
        status = STATUSES.get(row["status"]) or str(row["status"])
        held, target = status in HELD, self._target(row["target"], "handoffs.target") or {"strategy": "broadcast"}
        lease = _or(row["lease_expires_at"], made, "handoffs.lease_expires_at")
        changed = _or(row["updated_at"], made, "handoffs.updated_at")
        claimed_by = None if status == HandoffStatus.OPEN else row["claimed_by"]
        verify_by = value(row.get("verify_by"), "handoffs.verify_by")
        return Handoff(
            handoff_id=new_id(row["handoff_id"], made),
            workspace_id=row["workspace_id"],
            from_agent_id=row["from_agent_id"] or "unknown",
            title=title_of(row["payload"], target),
            target=target,
            visibility=row["visibility"] or VisibilityChoices.PUBLIC,
            status=status,
            claimed_by=claimed_by,
            claim_epoch=row.get("claim_epoch") or int(claimed_by is not None),
            claimed_at=_or(row["claimed_at"], changed, "events.created_at") if claimed_by else None,
            lease_seconds=max(1, round((lease - changed).total_seconds())) if held else None,
            lease_expires_at=lease if held else None,
            verifier=self._verifier(verify_by),
            acceptance_criteria=value(row.get("acceptance_criteria"), "handoffs.acceptance_criteria"),
            trace_id=_trace(row.get("trace_id"), "handoffs.trace_id"),
            payload=row["payload"],
            result=row["result"],
            rejected_reason=row["rejected_reason"],
            created_event_id=number,
            created_at=made,
            updated_at=changed,
        )

    def _verifier(self, verify_by: Any) -> str | None:
        match verify_by:
            case None:
                return None
            case {"kind": "agent", "agent_id": agent_id}:
                return f"agent:{agent_id}"
            case {"kind": "capability", "capability": capability}:
                return f"capability:{capability}"
        return "creator"

    def _event(self, row: Row, known: Mapping[str, str]) -> Event:
        text = OLD_ID.sub(lambda found: known.get(found[0], found[0]), row["payload"] or "")
        payload = value(text, "events.payload")
        payload = payload if isinstance(payload, dict) else {} if payload is None else {"value": payload}
        visibility = row["visibility"]
        handoff_id = payload.get("handoff_id")
        return Event(
            event_id=row["event_id"] + self._shift,
            workspace_id=row["workspace_id"],
            stream=row["stream"][:16],
            type=row["type"][:64],
            actor_agent_id=row["actor_agent_id"],
            payload=payload,
            visibility=visibility if visibility in VisibilityChoices.values else VisibilityChoices.PUBLIC,
            target=self._target(row["target"], "events.target", count=False),
            handoff_id=handoff_id if row["stream"] == "handoff" and isinstance(handoff_id, str) else None,
            trace_id=_trace(payload.get("trace_id"), "events.trace_id"),
            created_at=moment(row["created_at"], "events.created_at"),
        )

    def _settings(self) -> None:
        here = set(StoredSetting.objects.values_list("name", flat=True))
        for page in self._source.pages("SELECT key, value FROM settings ORDER BY key"):
            given = {row["key"]: value(row["value"], "settings.value") for row in page if row["key"] not in here}
            for name, setting in given.items():
                try:
                    if name not in TABLE:
                        raise invalid(name)
                    if setting != getattr(settings.NEXUS, name):
                        stored_settings.update(values={name: setting}, operator=self._operator)
                        self.new["settings"] += 1
                except NexusError:
                    self.unmoved[f"the setting {name}"] += 1
            self._left -= len(page)

    def _target(self, text: str | None, field: str, *, count: bool = True) -> Any:
        """Return a target in our form. One that our grammar does not have stays as it is, and reaches nobody."""
        given = value(text, field)
        try:
            return parse_target(given)
        except NexusError:
            self.unmoved["targets that nobody here can match"] += count
            return given if isinstance(given, dict) else {"strategy": "unknown"}

    def _unknown(self, page: Sequence[Row], key: str, *, keep: bool = True) -> list[Row]:
        """Return the rows that were not imported yet, and keep their ids."""
        here = set(ImportedId.objects.filter(pk__in=[row[key] for row in page]).values_list("pk", flat=True))
        new = [row for row in page if row[key] not in here]
        if keep:
            ids = [(row[key], new_id(row[key], moment(row["created_at"], "created_at"))) for row in new]
            ImportedId.objects.bulk_create(ImportedId(old_id=old, new_id=ours) for old, ours in ids)
        return new

    def _ids(self, texts: Iterable[str | None]) -> dict[str, str]:
        """Return our ids of those that texts mention."""
        old = {found for text in texts if text for found in (*OLD_ID.findall(text), text[:255])}
        return dict(ImportedId.objects.filter(pk__in=old).values_list("old_id", "new_id"))


def _or(text: Any, otherwise: Any, field: str) -> Any:
    """Return a column's time, or something else where it is empty."""
    return moment(text, field) if text else otherwise


def _trace(given: Any, field: str) -> str | None:
    """Return a trace. Raises VALIDATION_ERROR for one that cannot be kept: cut, it could be another one."""
    if given is None or (isinstance(given, str) and len(given) <= ID_LENGTH):
        return given or None
    raise invalid(
        f"{NOTHING}: {field} of a row holds {str(given)[:60]!r}, which is no trace of {ID_LENGTH} characters."
    )


def _only(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
