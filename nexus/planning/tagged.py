"""Effects of the tags in a user's message: a skill's text goes to the agent, an inline action runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nexus.core.harness_events import Happening
from nexus.core.operations.errors import NexusError
from nexus.planning import knowledge
from nexus.planning import state as files
from nexus.planning.brief import MARK, line
from nexus.planning.catalog import bundled
from nexus.planning.catalog.tags import Found, find_tags
from nexus.planning.directory import Directory

INJECTED = "<task-notification>"  # how a client passes a subagent's report to its agent: no user typed the tags in it
MOST = 20  # tags of one message that take effect
PATIENCE = 2.0  # seconds that a hook waits for the lock: less than a client waits for its hook


def carried_out(what: Happening, directory: Directory) -> list[str]:
    """Return the texts about a prompt's tags: the skills' texts, and the results of the actions."""
    if "[" not in what.prompt or what.prompt.lstrip().startswith(INJECTED):
        return []
    tags = {tag.id: tag for tag in bundled.tags()}
    found = list(dict.fromkeys(find_tags(what.prompt, tags.values())))  # without repetitions
    said = []
    for each in found[:MOST]:
        tag = tags[each.tag]
        if tag.type == "skill":
            mode = f" Mode: {line(each.variant)}." if each.variant else ""
            said.append(f"{MARK} [{each.tag}] loads {tag.skill}.{mode}\n\n{bundled.skill_body(tag.skill or '')}")
        elif action := ACTIONS.get(tag.handler or ""):
            try:
                said.append(f"{MARK} {action(what, directory, each)}")
            except (NexusError, ValueError) as error:
                why = error.message if isinstance(error, NexusError) else str(error)
                said.append(f"{MARK} {tag.trigger} was not carried out: {why}")
    if len(found) > MOST:
        said.append(f"{MARK} {len(found) - MOST} more tags were left alone: a message has {MOST} at most.")
    return list(dict.fromkeys(said))


def _decide(what: Happening, directory: Directory, found: Found) -> str:
    state = files.read(directory)
    if state.topic is None:
        raise ValueError("there is no active plan; plan_start begins one.")
    if not state.pending:
        raise ValueError("every issue of the plan is decided; plan_update adds or reopens one.")
    issue = state.pending[0]
    if not found.rest:
        raise ValueError(f"write the decision on issue {issue.id} ({line(issue.title)}) after it.")
    decided = {"project_root": what.root, "issue_id": issue.id, "summary": found.rest}
    left = what.perform("plan_decide", decided).get("remaining") or []
    return f"Issue {issue.id} ({line(issue.title)}) is decided as the user says. Left to decide: {len(left)}."


def _keep_lesson(what: Happening, directory: Directory, found: Found) -> str:
    if not found.rest:
        raise ValueError("write the lesson after it.")
    with directory.locked(PATIENCE):
        return f"The lesson is kept in .nexus/{knowledge.keep_lesson(directory, found.rest)}."


def _tidy(what: Happening, directory: Directory, found: Found) -> str:
    with directory.locked(PATIENCE):
        moved = knowledge.tidy(directory)
    where = f" to .nexus/{knowledge.TIDIED}: {', '.join(map(line, moved[:MOST]))}" if moved else ""
    return (
        f"{len(moved)} lessons that were empty or duplicates were moved{where}. Read the others in .nexus/memory: "
        "join those that say the same in other words, and drop those that are no longer true."
    )


def _keep_rule(what: Happening, directory: Directory, found: Found) -> str:
    if not found.rest:
        raise ValueError("write the rule after it.")
    with directory.locked(PATIENCE):
        return f"The rule is kept in .nexus/{knowledge.keep_rule(directory, found.variant or 'rules', found.rest)}."


ACTIONS: Mapping[str, Callable[[Happening, Directory, Found], str]] = {
    "nx_plan_decide": _decide,
    "memory_store": _keep_lesson,
    "memory_gc": _tidy,
    "rule_store": _keep_rule,
}
