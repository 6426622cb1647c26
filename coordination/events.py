"""The events of agents, sessions, artifacts, operators and settings, and the sentences that pages show for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from coordination.models import Agent
from nexus.core.contributions import EntityRef, Sentence


def _agents(ids: Collection[str]) -> Mapping[str, str]:
    return {name: name for name in Agent.everyone.filter(pk__in=ids).values_list("pk", flat=True)}


THINGS = {
    "agent": EntityRef("an agent", "agent", "agent_id", name="agent_id", names=_agents),
    "session": EntityRef("a session", "coordination_session_change", "session_id"),
    "artifact": EntityRef("an artifact", "coordination_artifact_change", "artifact_id", name="name"),
}
SENTENCES = {
    "agent.created": Sentence("{actor} registered {agent}", "{count} agents registered"),
    "agent.updated": Sentence("{actor} changed {agent}[: {changed}]", "{count} changes of agents"),
    "agent.deleted": Sentence("{actor} deleted {agent}", "{count} agents deleted"),
    "agent.key_issued": Sentence("{actor} issued a key for {agent}", "{count} keys issued"),
    "agent.key_regenerated": Sentence("{actor} issued a new key for {agent}", "{count} keys replaced"),
    "agent.key_deactivated": Sentence("{actor} deactivated the key of {agent}", "{count} keys deactivated"),
    "agent.key_reactivated": Sentence("{actor} reactivated the key of {agent}", "{count} keys reactivated"),
    "tag.created": Sentence("{actor} made the tag {key}[ {value}]", "{count} tags made"),
    "tag.deleted": Sentence("{actor} deleted the tag {key}[ {value}]", "{count} tags deleted"),
    "session.opened": Sentence("{agent} opened {session}", "{count} sessions opened"),
    "session.heartbeat": Sentence("{agent} is alive in {session}[: {activity}]", "{count} heartbeats", quiet=True),
    "session.closed": Sentence("{agent} closed {session}[: {reason}]", "{count} sessions closed"),
    "artifact.created": Sentence("{actor} stored {artifact}", "{count} artifacts stored"),
    "operator.acted": Sentence(
        "{actor} used {operation}[ as {from_agent_id}][ on {handoff}][ on {message}][ on {agent}][ for the role {role}]"
        "[ in {topic}]",
        "{count} acts of operators",
    ),
    "workspace.moved": Sentence("{actor} moved {old_root} to {project_root}", "{count} projects moved"),
    "operator.created": Sentence("{actor} made an operator[, {name}]", "{count} operators made"),
    "operator.password_reset": Sentence("{actor} reset the password of {name}", "{count} passwords reset"),
    "setting.changed": Sentence("{actor} set {name} to {value}", "{count} settings changed"),
}
