"""What hooks tell agents of a plan, in short texts. Standard library alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nexus.planning.knowledge import FOLDERS
from nexus.planning.state import Issue, State, Task
from nexus.planning.tracker import RUNNING, Agent

MARK = "[nexus]"
LONGEST = 9_500  # characters of all that is said at once: a harness cuts at 10,000
TITLE, BLOCK = 120, 2_400  # characters of a title, and of one block of a task
SHOWN = 20  # entries of a list; the rest is counted
LISTED = 60  # files of a folder
SNAPSHOT = f"{MARK} The context was compacted. What stands now:"


def cut(text: str, length: int, rest: str = "(cut)") -> str:
    """A text of at most that length, with a word where something is missing."""
    return text if len(text) <= length else f"{text[: length - len(rest) - 1]} {rest}"


def line(text: str, length: int = TITLE) -> str:
    """A text that somebody wrote, in one line without anything invisible."""
    one = " ".join(text[: 10 * length].split())
    return cut("".join(letter for letter in one if letter.isprintable()), length)


def summary(state: State, files: Mapping[str, Sequence[str]]) -> str:
    """How far plan and tasks are, and how much is known; empty without plan and tasks."""
    lines = []
    if state.topic is not None:
        decided = len(state.issues) - len(state.pending)
        lines.append(f"{MARK} Plan: {line(state.topic)}. {decided} of {len(state.issues)} issues are decided.")
        lines += _one_line("To decide", [_named(issue) for issue in state.pending])
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
    """The files of what a project knows; empty where there are none."""
    lines = []
    for folder, names in files.items():
        lines += [f"- .nexus/{folder}/{line(name)}" for name in names[:LISTED]]
        if len(names) > LISTED:
            lines.append(f"- and {len(names) - LISTED} more in .nexus/{folder}")
    return "\n".join([f"{MARK} What this project knows; read what concerns your task:", *lines]) if lines else ""


def task(task: Task) -> str:
    """A task as its agent is told of it."""
    blocks = [f"TASK: {line(task.title, BLOCK)}"]
    for name, text in (("CONTEXT", task.context), ("APPROACH", task.approach), ("ACCEPTANCE", task.acceptance)):
        if text:
            blocks.append(f"{name}:\n{cut(text, BLOCK, '(cut: task_list has it whole)')}")
    return "\n".join(blocks)


def choice(tasks: Sequence[Task]) -> str:
    """The tasks of which an agent may have one; empty where there are none."""
    if not tasks:
        return ""
    heading = f"{MARK} One of these tasks may be yours. Your assignment says which; task_list has them whole:"
    return "\n".join([heading, *_bullets([_owned(each) for each in tasks])])


def snapshot(state: State, files: Mapping[str, Sequence[str]], agents: Iterable[Agent]) -> str:
    """All that an agent must know that lost its context: mode, plan, tasks, files, agents at work."""
    mode = "run" if state.open else "plan" if state.topic is not None else "none"
    lines = [SNAPSHOT, f"Mode: {mode}."]
    if state.topic is not None:
        lines.append(f"Plan: {line(state.topic)}")
        lines += _bullets([f"{_named(issue)} ({line(issue.status)})" for issue in state.issues])
    if state.tasks is not None:
        ready = {each.id for each in state.ready}
        lines.append("Tasks:")
        lines += _bullets([f"{_owned(each)} ({'ready' if each.id in ready else each.status})" for each in state.tasks])
    running = [each for each in agents if each["status"] == RUNNING]
    if running:
        lines.append("Agents at work:")
        lines += _bullets([f"{line(each['agent_type'])} ({line(each['agent_id'])})" for each in running])
    return "\n".join([*lines, *filter(None, [index(files)])])


def unfinished(state: State) -> str:
    """What a session leaves behind, for its user; empty where nothing is left."""
    left = []
    if state.open:
        left.append(
            f"Tasks not completed: {len(state.open)}. Go on with them next time, or archive them with task_close."
        )
    if state.topic is not None:
        left.append(f"The plan “{line(state.topic)}” is still active: task_close archives it, plan_start replaces it.")
    return "\n".join(f"{MARK} {each}" for each in left)


def stale(state: State) -> str:
    """What an earlier session left behind, for an agent that begins; empty where there is nothing."""
    there = [name for name, value in (("plan.json", state.topic), ("tasks.json", state.tasks)) if value is not None]
    if not there:
        return ""
    names = " and ".join(there)
    return (
        f"{MARK} An earlier session left {names} in .nexus/state. Ask your user whether to go on with that: "
        "plan_status and task_list tell it, task_close archives it."
    )


def _named(issue: Issue) -> str:
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
