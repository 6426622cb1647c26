"""The tables of workspaces, agents, their keys and limits, sessions, events, settings, channels and artifacts."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Coalesce

from coordination.routing import Profile, Visibility, capability_set, stored_target, tag_set
from nexus.core.database.keys import TextNumber
from nexus.core.database.migrations import postgres_trigger

ID_LENGTH = 255


def not_empty(table: str, *fields: str) -> list[models.BaseConstraint]:
    """Return check constraints that refuse the empty string in each of `fields`."""
    return [models.CheckConstraint(condition=~Q(**{name: ""}), name=f"{table}_{name}_not_empty") for name in fields]


def one_of(table: str, field: str, values: type[models.TextChoices]) -> models.BaseConstraint:
    """Return a check constraint that allows only `values` in `field`."""
    return models.CheckConstraint(condition=Q(**{f"{field}__in": values.values}), name=f"{table}_{field}_known")


class TargetField(models.JSONField):
    """A canonical target, as `routing.parse_target` returns it."""

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else stored_target(value)

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs  # for migrations an ordinary JSONField


class Workspace(models.Model):
    """A project directory: the scope of everything except agents and inboxes."""

    workspace_id = models.CharField(primary_key=True, max_length=64)  # sha256 of root_realpath
    number = TextNumber("workspace_id")  # what events and messages store of it
    display_name = models.CharField(max_length=ID_LENGTH, null=True)
    root_realpath = models.TextField()
    created_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        db_table = "workspaces"
        indexes = [models.Index(fields=["created_at", "workspace_id"], name="workspaces_by_age")]
        constraints = not_empty("workspaces", "workspace_id", "root_realpath")

    def __str__(self) -> str:
        return self.display_name or self.root_realpath

    @property
    def name(self) -> str:
        """The project's name for people and agents: its display name, or the name of its directory."""
        return self.display_name or PurePath(self.root_realpath).name or self.root_realpath


class AgentManager(models.Manager["Agent"]):
    """The agents that are not deleted."""

    def get_queryset(self) -> models.QuerySet[Agent]:
        return super().get_queryset().filter(deleted_at=None)


class Agent(models.Model):
    """A global identity; it outlives sessions and belongs to no workspace.

    A deleted agent keeps its row, because messages, deliveries and sessions of the past refer to it.
    """

    agent_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    role = models.CharField(max_length=ID_LENGTH, null=True)
    capabilities = models.JSONField(null=True)  # as registered; `capability_set` reads it
    tags = models.JSONField(null=True)  # {key: [value, …]}, which operators give it; `tag_set` reads them
    metadata = models.JSONField(null=True)
    toolsets = models.JSONField(null=True)  # names; the default for the agent's connections
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(null=True)  # the agent's latest own act
    connected_at = models.DateTimeField(null=True)  # when a connection of the agent was last known to be open
    muted_until = models.DateTimeField(null=True)  # until then nothing wakes the agent: an operator said so
    deleted_at = models.DateTimeField(null=True)  # an operator who creates the id again clears it

    objects = AgentManager()
    everyone = models.Manager["Agent"]()  # includes deleted ones

    class Meta:
        db_table = "agents"
        indexes = [models.Index(fields=["created_at", "agent_id"], name="agents_by_age")]
        constraints = not_empty("agents", "agent_id")

    def __str__(self) -> str:
        return self.agent_id

    @property
    def profile(self) -> Profile:
        """This agent's profile for routing."""
        return Profile(self.agent_id, self.role, capability_set(self.capabilities), tag_set(self.tags))


class Tag(models.Model):
    """A tag that operators may give to agents. A target can name only these, so that a misspelled one is an error."""

    key = models.CharField(max_length=ID_LENGTH)
    value = models.CharField(max_length=ID_LENGTH, default="", blank=True)  # "" is the key itself
    description = models.TextField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "tags"
        constraints = [
            *not_empty("tags", "key"),
            models.UniqueConstraint(fields=["key", "value"], name="tags_once"),
        ]

    def __str__(self) -> str:
        return f"{self.key} {self.value}".strip()


class AgentKey(models.Model):
    """The API key of an agent, as a hash; the key itself is shown once and stored nowhere."""

    agent = models.OneToOneField(Agent, on_delete=models.CASCADE, related_name="key")
    key_hash = models.CharField(max_length=64, unique=True)  # sha256 of the key
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "agent_keys"
        constraints = not_empty("agent_keys", "key_hash")

    def __str__(self) -> str:
        return f"key of {self.agent_id}"


class LentKey(models.Model):
    """A temporary key of an agent's process, in addition to the key that an operator issued. It ends with the
    process."""

    key_hash = models.CharField(primary_key=True, max_length=64)  # sha256 of the key
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="lent_keys")
    created_at = models.DateTimeField()

    class Meta:
        db_table = "lent_keys"
        constraints = not_empty("lent_keys", "key_hash")

    def __str__(self) -> str:
        return f"key lent to {self.agent_id}"


class SessionStatus(models.TextChoices):
    """The states of a session."""

    ACTIVE = "active"  # open; whether it is stale or present is derived from the heartbeat
    CLOSED = "closed"  # ended by its agent, an operator or the reaper


class Session(models.Model):
    """One run of an agent in a workspace."""

    session_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="sessions", db_index=False)
    status = models.CharField(max_length=16, choices=SessionStatus, default=SessionStatus.ACTIVE)
    metadata = models.JSONField(null=True)
    secret_hash = models.CharField(max_length=64)  # sha256 of session_secret
    started_at = models.DateTimeField()
    last_heartbeat_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    activity = models.CharField(max_length=16, null=True)  # an Activity, where the agent's client tells it
    activity_at = models.DateTimeField(null=True)  # when it began
    activity_until = models.DateTimeField(null=True)  # when the quota is there again, where the client said so

    class Meta:
        db_table = "sessions"
        indexes = [
            models.Index(fields=["workspace", "status", "last_heartbeat_at"], name="sessions_by_presence"),
            models.Index(fields=["workspace", "agent"], name="sessions_by_agent"),
            models.Index(fields=["agent", "status"], name="sessions_of_agent"),
            models.Index(fields=["status", "closed_at"], name="sessions_prunable"),
        ]
        constraints = [
            *not_empty("sessions", "session_id", "secret_hash"),
            one_of("sessions", "status", SessionStatus),
            models.CheckConstraint(
                condition=Q(status="closed", closed_at__isnull=False) | Q(status="active", closed_at__isnull=True),
                name="sessions_closed_at_iff_closed",
            ),
        ]

    def __str__(self) -> str:
        return self.session_id


class Stream(models.TextChoices):
    """The streams of the log that this app writes to, with their descriptions. Streams are filters, not partitions."""

    WORKSPACE = "workspace", "sessions, messages, artifacts"
    AGENT = "agent", "what operators did"


STREAMS = dict(Stream.choices)


class VisibilityChoices(models.TextChoices):
    """Who may see an event or a handoff."""

    PUBLIC = Visibility.PUBLIC.value
    ELIGIBLE = Visibility.ELIGIBLE.value
    PRIVATE = Visibility.PRIVATE.value


class Event(models.Model):
    """One line of the append-only log; a trigger refuses UPDATE, and DELETE outside a retention pass."""

    event_id = models.BigAutoField(primary_key=True)
    workspace = models.ForeignKey(  # null for events of the whole hub
        Workspace, on_delete=models.PROTECT, to_field="number", null=True, related_name="events", db_index=False
    )
    stream = models.CharField(max_length=16)  # any stream that an app declares
    type = models.CharField(max_length=64)
    actor_agent_id = models.CharField(max_length=ID_LENGTH, null=True)
    payload = models.JSONField(default=dict)
    visibility = models.CharField(max_length=16, choices=VisibilityChoices, null=True)
    target = TargetField(null=True)
    task_id = models.CharField(max_length=ID_LENGTH, null=True)
    handoff_id = models.CharField(max_length=ID_LENGTH, null=True)
    trace_id = models.CharField(max_length=ID_LENGTH, null=True)  # what its sender or creator put together
    created_at = models.DateTimeField()

    class Meta:
        db_table = "events"
        indexes = [  # few, as each slows every write: ids rise with time, so a scan by id serves a search by age
            models.Index(fields=["workspace", "event_id"], name="events_by_workspace"),
            models.Index(fields=["workspace", "stream", "event_id"], name="events_by_stream"),
            models.Index(fields=["handoff_id"], name="events_of_handoff", condition=Q(handoff_id__isnull=False)),
            models.Index(fields=["trace_id"], name="events_of_trace", condition=Q(trace_id__isnull=False)),
            models.Index(  # for figures, which select them from the whole log
                fields=["event_id", "actor_agent_id"], name="events_of_claims", condition=Q(type="handoff.claimed")
            ),
            models.Index(fields=["event_id"], name="events_of_acts", condition=Q(type="operator.acted")),
        ]
        constraints = [
            *not_empty("events", "type"),
            one_of("events", "visibility", VisibilityChoices),
        ]

    def __str__(self) -> str:
        return f"{self.event_id} {self.type}"


class StoredSetting(models.Model):
    """A setting that an operator changed at run time; a flag or variable of the same name takes precedence."""

    name = models.CharField(primary_key=True, max_length=64)
    value = models.TextField()  # as a flag spells it
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=ID_LENGTH)  # the operator

    class Meta:
        db_table = "stored_settings"

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class LimitScope(models.TextChoices):
    """The scopes of limits: an agent or a role."""

    AGENT = "agent"
    ROLE = "role"


class AgentLimits(models.Model):
    """The limits of an agent or a role; they take precedence over the settings for all."""

    scope = models.CharField(max_length=16, choices=LimitScope)
    name = models.CharField(max_length=ID_LENGTH)  # the agent's id, or the role; it need not exist yet
    values = models.JSONField(default=dict)  # by limit; 0 is no limit
    allowed = models.JSONField(null=True)  # names of toolsets and operations: only these may be used
    refused = models.JSONField(null=True)  # likewise: these may not be used
    updated_at = models.DateTimeField()
    updated_by = models.CharField(max_length=ID_LENGTH)  # the operator

    class Meta:
        db_table = "agent_limits"
        verbose_name_plural = "agent limits"
        constraints = [
            *not_empty("agent_limits", "name"),
            one_of("agent_limits", "scope", LimitScope),
            models.UniqueConstraint(fields=["scope", "name"], name="agent_limits_once"),
        ]

    def __str__(self) -> str:
        return f"limits of {self.scope} {self.name}"


class RetentionPass(models.Model):
    """A row here allows the DELETE of events in the same transaction: the log's trigger looks for it."""

    class Meta:
        db_table = "retention_passes"

    def __str__(self) -> str:
        return f"retention pass {self.pk}"


class Channel(models.Model):
    """A label on messages; it does not decide who receives or who may read."""

    channel_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="channels", db_index=False)
    name = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "channels"
        constraints = [
            *not_empty("channels", "channel_id", "name"),
            models.UniqueConstraint(fields=["workspace", "name"], name="channels_name_once"),
        ]

    def __str__(self) -> str:
        return self.name


class ArtifactType(models.TextChoices):
    """The types of artifacts."""

    FILE = "file"
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class Artifact(models.Model):
    """A result of an agent: its text inline, or the path of a file in the workspace."""

    artifact_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="artifacts", db_index=False)
    artifact_type = models.CharField(max_length=16, choices=ArtifactType)
    name = models.CharField(max_length=ID_LENGTH, null=True)
    path = models.TextField(null=True)  # as given, relative to the workspace root
    content = models.TextField(null=True)
    metadata = models.JSONField(null=True)
    created_by = models.CharField(max_length=ID_LENGTH, null=True)  # the agent that its connection was bound to, if any
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # identifies a repeated call of the same maker
    size_bytes = models.BigIntegerField()
    content_type = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "artifacts"
        indexes = [
            models.Index(fields=["workspace", "artifact_type"], name="artifacts_by_type"),
            models.Index(fields=["workspace", "artifact_id"], name="artifacts_by_workspace"),  # ids rise with time
        ]
        constraints = [
            *not_empty("artifacts", "artifact_id"),
            models.UniqueConstraint(
                "workspace",
                Coalesce("created_by", Value("")),
                "client_id",
                name="artifacts_once",
                condition=Q(client_id__isnull=False),
            ),
            one_of("artifacts", "artifact_type", ArtifactType),
            models.CheckConstraint(condition=Q(size_bytes__gte=0), name="artifacts_size_not_negative"),
            models.CheckConstraint(
                condition=Q(path__isnull=False) | Q(content__isnull=False), name="artifacts_path_or_content"
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.artifact_id

    @property
    def stored(self) -> str:
        """`inline` where the content is stored here, `path` where only the path is."""
        return "path" if self.content is None else "inline"


SQLITE_TRIGGERS = {
    "events_refuse_update": """
        CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END
    """,
    "events_refuse_delete": """
        CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
        WHEN NOT EXISTS (SELECT 1 FROM retention_passes)
        BEGIN SELECT RAISE(ABORT, 'events are append-only: only a retention pass deletes'); END
    """,
}
REFUSED = "RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'integrity_constraint_violation';"
POSTGRESQL_TRIGGERS = {
    "events_refuse_update": postgres_trigger("events_refuse_update", "BEFORE UPDATE ON events", REFUSED),
    "events_refuse_delete": postgres_trigger(
        "events_refuse_delete",
        "BEFORE DELETE ON events",
        f"IF NOT EXISTS (SELECT 1 FROM retention_passes) THEN {REFUSED} END IF;",
    ),
}
TRIGGERS = {"sqlite": SQLITE_TRIGGERS, "postgresql": POSTGRESQL_TRIGGERS}  # by database
