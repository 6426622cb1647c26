"""The hooks' actions for a plan at each point of a session. Standard library only, except for what `perform` starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from nexus.core.harness_events import NOTHING, HarnessEvent, HookAnswer, HookEvent
from nexus.core.operations.errors import NexusError
from nexus.planning import brief, edits, knowledge, tracker
from nexus.planning import state as files
from nexus.planning.brief import MARK, line
from nexus.planning.catalog import bundled
from nexus.planning.catalog.capability_map import blocks
from nexus.planning.catalog.tags import TaggedText, find_tags
from nexus.planning.directory import AGENTS, EDITS, LOG, NOTES, RUNTIME, TASKS, Directory
from nexus.planning.state import PlanState, Task, resume_decision

ALONE = ("gemini", "text")  # clients that report no subagents
CHECKS = "check"  # the category of agents that verify
NUMBERED = re.compile(r"\btask (?:id )?#?([0-9]{1,9})\b", re.IGNORECASE)


def handle(what: HookEvent) -> HookAnswer:
    """Handle an event and return what to tell the client. Raises NexusError."""
    with Directory(what.root) as directory:
        said = TURNS[what.event](what, directory)
        if not what.heard or what.agent_id or said.refusal or not directory.stamp(NOTES):
            return said
        with directory.locked(PATIENCE):
            notes = tracker.take_notes(directory)
        if what.event is HarnessEvent.CONTEXT_COMPACT:
            notes = [note for note in notes if not note.startswith(brief.SNAPSHOT)]  # a new snapshot follows
        return said._replace(context=_join(*notes, said.context))


def _join(*parts: str) -> str:
    return brief.shorten("\n\n".join(filter(None, parts)), brief.LONGEST)


def _start(what: HookEvent, directory: Directory) -> HookAnswer:
    from nexus.core.config import package_version  # slow to import

    state = files.read_state(directory)
    with directory.locked(PATIENCE):
        runtime = {
            "teams_enabled": what.client not in ALONE,
            "session_started_at": tracker.now(),
            "plugin_version": package_version(),
        }
        tracker.write(directory, RUNTIME, runtime)
        if not (what.goes_on and directory.stamp(AGENTS)):
            tracker.write(directory, AGENTS, [])
            directory.remove(LOG)
            directory.remove(NOTES)
    summary = brief.summary(state, knowledge.index(directory)) if what.goes_on else brief.stale(state)
    return HookAnswer(_join(summary, brief.index(knowledge.index(directory))))


def _message(what: HookEvent, directory: Directory) -> HookAnswer:
    said = carried_out(what, directory)
    return HookAnswer(_join(*said, brief.summary(files.read_state(directory), knowledge.index(directory))))


def _spawn(what: HookEvent, directory: Directory) -> HookAnswer:
    agent_type = what.agent_type or "unknown"
    with directory.locked(PATIENCE):
        before = tracker.agents(directory)
        agent_id = what.agent_id or tracker.name_for(before, agent_type)
        tracker.started(directory, agent_type, agent_id)
        edited = edits.history(directory.read(EDITS))
    if not what.heard:
        return NOTHING
    busy = {entry["agent_id"] for entry in before if entry["status"] == tracker.RUNNING}
    tasks = _tasks_of(files.read_state(directory), agent_type, agent_id, what.assignment, busy)
    known = brief.index(knowledge.index(directory))
    if len(tasks) != 1:
        return HookAnswer(_join(brief.choice(tasks), known))
    decision = resume_decision(tasks[0], agent_type, before, edited)
    which = f" {line(decision.agent_id)}" if decision.agent_id else ""
    resume = f"{MARK} This is task {tasks[0].id}. Resume decision: {decision.decision}{which}. {decision.why}"
    return HookAnswer(_join(brief.task(tasks[0]), known, resume))


def _complete(what: HookEvent, directory: Directory) -> HookAnswer:
    with directory.locked(PATIENCE):
        entry = tracker.ended(directory, what.agent_type or "unknown", what.agent_id, what.message, what.client)
        sessions = tracker.agents(directory)
    active = [task for task in files.read_state(directory).open if task.status == "in_progress"]
    own = [task for task in active if task.owner_agent_id == entry["agent_id"]]
    of_type = [task for task in active if task.owner == entry["agent_type"] and not task.owner_agent_id]
    alone = all((each["agent_type"], each["status"]) != (entry["agent_type"], tracker.RUNNING) for each in sessions)
    candidates = own or (of_type if alone else [])
    if what.failed or not candidates:
        return NOTHING
    if len(candidates) > 1:  # to a file, those that were submitted are in progress, too
        candidates = [task for task in candidates if not _is_submitted(what, task)]
    # With several tasks, or another agent of the type at work, it is not known whose task it is.
    task = next(iter(candidates), None) if own or len(candidates) == 1 else None
    if task is None:
        return NOTHING
    done = what.perform("task_update", {"project_root": what.root, "id": task.id, "status": "completed"})
    if done.get("submitted"):
        return NOTHING
    if task.acceptance and not any(_checks(entry["agent_type"]) for entry in sessions):
        note = (
            f"{MARK} Task {task.id} ({line(task.title)}) is completed, and nobody has verified it: have a tester or a "
            f"reviewer check its acceptance: {line(task.acceptance, 400)}"
        )
        with directory.locked(PATIENCE):
            tracker.leave_note(directory, note)
    return NOTHING


def _is_submitted(what: HookEvent, task: Task) -> bool:
    return "submitted_at" in what.perform("task_get", {"project_root": what.root, "id": task.id}).get("task", {})


def _checks(agent_type: str) -> bool:
    agent = bundled.agents().get(agent_type)
    return agent is not None and agent.category == CHECKS


def _before(what: HookEvent, directory: Directory) -> HookAnswer:
    if what.agent_type and blocks(what.agent_type, what.client, what.tool):
        who, tool = line(what.agent_type), line(what.tool)
        why = f"{tool} is withheld from agents of type {who}. Report to the lead what needs to be done."
        return HookAnswer(refusal=f"{MARK} {why}")
    gated = what.settings.planning_gate_edits and what.edits
    if gated and not directory.stamp(TASKS) and (tracker.inside(what.root, what.files) or not what.files):
        return HookAnswer(
            refusal=f"{MARK} An edit in this project needs a task, and there is none: add one with task_add."
        )
    return NOTHING


def _after(what: HookEvent, directory: Directory) -> HookAnswer:
    who = what.agent_id or what.agent_type or tracker.LEAD
    with directory.locked(PATIENCE):
        tracker.used(directory, what, who)
    return NOTHING


def _end(what: HookEvent, directory: Directory) -> HookAnswer:
    with directory.locked(PATIENCE):
        directory.remove(RUNTIME)
        directory.remove(AGENTS)
    return HookAnswer(warning=brief.unfinished(files.read_state(directory)))


def _compact(what: HookEvent, directory: Directory) -> HookAnswer:
    with directory.locked(PATIENCE):
        text = brief.snapshot(files.read_state(directory), knowledge.index(directory), tracker.agents(directory))
        if not what.heard:
            tracker.leave_note(directory, text)
    return HookAnswer(_join(text)) if what.heard else NOTHING


def _tasks_of(state: PlanState, agent_type: str, agent_id: str, assignment: str, busy: Collection[str]) -> list[Task]:
    """Return the tasks that a subagent may begin: assigned to it, or named to it, or begun by its type, or ready for
    its type.

    Of several it is not known which; those of other agents at work are left out.
    """
    numbers = {int(number) for number in NUMBERED.findall(assignment)}
    ready = {task.id for task in state.ready}
    free = [task for task in state.open if task.owner == agent_type and task.owner_agent_id not in busy]
    choices = (
        [task for task in state.open if task.owner_agent_id == agent_id],
        [task for task in state.open if task.id in numbers or (task.title and task.title in assignment)],
        [task for task in free if task.status == "in_progress"],
        [task for task in free if task.id in ready],
    )
    return next(filter(None, choices), [])


TURNS: Mapping[HarnessEvent, Callable[[HookEvent, Directory], HookAnswer]] = {
    HarnessEvent.SESSION_START: _start,
    HarnessEvent.USER_MESSAGE: _message,
    HarnessEvent.SUBAGENT_SPAWN: _spawn,
    HarnessEvent.SUBAGENT_COMPLETE: _complete,
    HarnessEvent.PRE_TOOL_USE: _before,
    HarnessEvent.POST_TOOL_USE: _after,
    HarnessEvent.SESSION_END: _end,
    HarnessEvent.CONTEXT_COMPACT: _compact,
}


INJECTED = "<task-notification>"  # how a client passes a subagent's report to its agent: no user typed the tags in it
MOST = 20  # tags of one message that take effect
PATIENCE = 2.0  # seconds that a hook waits for the lock: less than a client waits for its hook


def carried_out(what: HookEvent, directory: Directory) -> list[str]:
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


def _decide(what: HookEvent, directory: Directory, found: TaggedText) -> str:
    state = files.read_state(directory)
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


def _keep_lesson(what: HookEvent, directory: Directory, found: TaggedText) -> str:
    if not found.rest:
        raise ValueError("write the lesson after it.")
    with directory.locked(PATIENCE):
        return f"The lesson is kept in .nexus/{knowledge.keep_lesson(directory, found.rest)}."


def _tidy(what: HookEvent, directory: Directory, found: TaggedText) -> str:
    with directory.locked(PATIENCE):
        moved = knowledge.tidy(directory)
    where = f" to .nexus/{knowledge.TIDIED}: {', '.join(map(line, moved[:MOST]))}" if moved else ""
    return (
        f"{len(moved)} lessons that were empty or duplicates were moved{where}. Read the others in .nexus/memory: "
        "join those that say the same in other words, and drop those that are no longer true."
    )


def _keep_rule(what: HookEvent, directory: Directory, found: TaggedText) -> str:
    if not found.rest:
        raise ValueError("write the rule after it.")
    with directory.locked(PATIENCE):
        return f"The rule is kept in .nexus/{knowledge.keep_rule(directory, found.variant or 'rules', found.rest)}."


ACTIONS: Mapping[str, Callable[[HookEvent, Directory, TaggedText], str]] = {
    "nx_plan_decide": _decide,
    "memory_store": _keep_lesson,
    "memory_gc": _tidy,
    "rule_store": _keep_rule,
}
