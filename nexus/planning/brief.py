"""The texts about a plan that hooks show to agents. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nexus.planning.knowledge import FOLDERS
from nexus.planning.state import IssueState, PlanState, Task
from nexus.planning.tracker import RUNNING, Agent

MARK = "[nexus]"
LONGEST = 9_500  # characters of one answer: a client cuts at 10,000
TITLE, BLOCK = 120, 2_400  # characters of a title, and of one block of a task
SHOWN = 20  # entries of a list that are shown; the rest is counted
LISTED = 60  # files of a folder that are listed
SNAPSHOT = f"{MARK} The context was compacted. The current state:"


def shorten(text: str, length: int, rest: str = "(cut)") -> str:
    """Return a text of at most `length` characters, with a note where it was cut."""
    return text if len(text) <= length else f"{text[: length - len(rest) - 1]} {rest}"


def line(text: str, length: int = TITLE) -> str:
    """Return somebody's text in one line without invisible characters."""
    one = " ".join(text[: 10 * length].split())
    return shorten("".join(letter for letter in one if letter.isprintable()), length)


def summary(state: PlanState, files: Mapping[str, Sequence[str]]) -> str:
    """Return the progress of plan and tasks, and the number of knowledge files; empty without plan and tasks."""
    lines = []
    if state.topic is not None:
        decided = len(state.issues) - len(state.pending)
        lines.append(f"{MARK} Plan: {line(state.topic)}. {decided} of {len(state.issues)} issues are decided.")
        lines += _one_line("To decide", [_title(issue) for issue in state.pending])
    if state.tasks is not None:
        active = [task for task in state.open if task.status == "in_progress"]
        done, waiting = len(state.tasks) - len(state.open), len(state.open) - len(active)
        lines.append(f"{MARK} Tasks: {done} completed, {len(active)} in progress, {waiting} pending.")
        lines += _one_line("In progress", [_owned(task) for task in active])
        lines += _one_line("Ready", [_owned(task) for task in state.ready])
    if not lines:
        return ""
    counts = ", ".join(f"{len(files[folder])} in .nexus/{folder}" for folder in FOLDERS)
    return "\n".join([*lines, f"{MARK} Files: {counts}."])


def index(files: Mapping[str, Sequence[str]]) -> str:
    """Return the list of a project's knowledge files; empty where there are none."""
    lines = []
    for folder, names in files.items():
        lines += [f"- .nexus/{folder}/{line(name)}" for name in names[:LISTED]]
        if len(names) > LISTED:
            lines.append(f"- and {len(names) - LISTED} more in .nexus/{folder}")
    return "\n".join([f"{MARK} What this project knows; read what concerns your task:", *lines]) if lines else ""


def task(task: Task) -> str:
    """Return a task as text for its agent."""
    blocks = [f"TASK: {line(task.title, BLOCK)}"]
    for name, text in (("CONTEXT", task.context), ("APPROACH", task.approach), ("ACCEPTANCE", task.acceptance)):
        if text:
            blocks.append(f"{name}:\n{shorten(text, BLOCK, '(cut: task_list shows all of it)')}")
    return "\n".join(blocks)


def choice(tasks: Sequence[Task]) -> str:
    """Return the tasks of which an agent may have one; empty where there are none."""
    if not tasks:
        return ""
    heading = f"{MARK} One of these tasks may be yours. Your assignment says which; task_list has them whole:"
    return "\n".join([heading, *_bullets([_owned(each) for each in tasks])])


def snapshot(state: PlanState, files: Mapping[str, Sequence[str]], agents: Iterable[Agent]) -> str:
    """Return what an agent needs after it lost its context: mode, plan, tasks, files, agents at work."""
    mode = "run" if state.open else "plan" if state.topic is not None else "none"
    lines = [SNAPSHOT, f"Mode: {mode}."]
    if state.topic is not None:
        lines.append(f"Plan: {line(state.topic)}")
        lines += _bullets([f"{_title(issue)} ({line(issue.status)})" for issue in state.issues])
    if state.tasks is not None:
        ready = {each.id for each in state.ready}
        lines.append("Tasks:")
        lines += _bullets([f"{_owned(each)} ({'ready' if each.id in ready else each.status})" for each in state.tasks])
    running = [each for each in agents if each["status"] == RUNNING]
    if running:
        lines.append("Agents at work:")
        lines += _bullets([f"{line(each['agent_type'])} ({line(each['agent_id'])})" for each in running])
    return "\n".join([*lines, *filter(None, [index(files)])])


def unfinished(state: PlanState) -> str:
    """Return what a session leaves unfinished, for its user; empty where nothing is left."""
    left = []
    if state.open:
        left.append(
            f"Tasks not completed: {len(state.open)}. Go on with them next time, or archive them with task_close."
        )
    if state.topic is not None:
        left.append(f"The plan “{line(state.topic)}” is still active: task_close archives it, plan_start replaces it.")
    return "\n".join(f"{MARK} {each}" for each in left)


def stale(state: PlanState) -> str:
    """Return what an earlier session left unfinished, for an agent that begins; empty where nothing is left."""
    there = [name for name, value in (("plan.json", state.topic), ("tasks.json", state.tasks)) if value is not None]
    if not there:
        return ""
    names = " and ".join(there)
    return (
        f"{MARK} An earlier session left {names} in .nexus/state. Ask your user whether to go on with that: "
        "plan_status and task_list show it, task_close archives it."
    )


def _title(issue: IssueState) -> str:
    return f"{issue.id}. {line(issue.title)}"


def _owned(task: Task) -> str:
    return f"{task.id}. {line(task.title)}" + (f" [{line(task.owner)}]" if task.owner else "")


def _one_line(what: str, entries: Sequence[str]) -> list[str]:
    if not entries:
        return []
    more = f"; and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
    return [f"{what}: {'; '.join(entries[:SHOWN])}{more}"]


def _bullets(entries: Sequence[str]) -> list[str]:
    more = [f"- and {len(entries) - SHOWN} more"] if len(entries) > SHOWN else []
    return [*(f"- {entry}" for entry in entries[:SHOWN]), *more]
