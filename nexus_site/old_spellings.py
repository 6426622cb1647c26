"""Old spellings of command lines: they work until 0.3, with a line on stderr.

Only this module knows them. What clients' configurations contain (`nexus hook`, `nexus runmcp`) does not change.
Standard library only: every start imports this.
"""

from __future__ import annotations

from collections.abc import Sequence

GOES = "the old spelling goes in 0.3."
INBOX = ("list", "pull", "ack", "history")  # the verbs of nexus inbox
LASTING = ("hook", "runmcp")

COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {  # the beginning of a command line, longest first
    ("plan", "status"): ("plan", "show"),
    ("tasks", "add"): ("tasks", "create"),
    ("webhooks", "add"): ("webhooks", "create"),
    ("webhooks", "remove"): ("webhooks", "delete"),
    ("figures",): ("metrics",),
    ("files",): ("reservations",),
    ("issue-keys",): ("agents", "issue-keys"),
}
FLAGS: dict[str, dict[str, str]] = {  # by current command; "" is for all commands
    "": {"--project-root": "--project"},
    "handoffs": {"--for": "--agent"},
    "reservations": {"--as": "--agent", "--here": "--project=."},
    "tail": {"--agent-id": "--agent"},
    "webhooks": {"--agent-id": "--agent"},
}


def current(words: Sequence[str]) -> tuple[list[str], str]:
    """Return a command line, from its command on, in the current spelling, and the message about it: empty if it was
    current."""
    if words[0] in LASTING:
        return list(words), ""
    if words[0] == "inbox" and (new_inbox := _inbox(words[1:])):
        return ["inbox", *new_inbox], f"The agent and the verb of `nexus inbox` changed: see its --help; {GOES}"
    old = next((each for each in COMMANDS if tuple(words[: len(each)]) == each), tuple(words[:1]))
    new = COMMANDS.get(old, old)
    flags = FLAGS[""] | FLAGS.get(new[0], {})
    arguments: list[str] = []
    met: list[str] = []
    for at, word in enumerate(words[len(old) :], len(old)):
        if word == "--":
            arguments += words[at:]
            break
        name, equals, value = word.partition("=")
        if name in flags:
            met.append(name)
        arguments.append(f"{flags.get(name, name)}{equals}{value}")
    if new == old and not met:
        return [*new, *arguments], ""
    before, after = " ".join([*old, *met]), " ".join([*new, *(flags[name] for name in met)])
    return [*new, *arguments], f"`nexus {before}` is now `nexus {after}`; {GOES}"


def _inbox(arguments: Sequence[str]) -> list[str] | None:
    """Return the verb and arguments of an old `nexus inbox` line: its agent was first, its verb a flag."""
    verb = next((flag[2:] for flag in ("--pull", "--ack", "--history") if flag in arguments), "")
    named = bool(arguments) and not arguments[0].startswith("-") and arguments[0] not in INBOX
    if not verb and not named:
        return None
    rest = [word for word in arguments[named:] if word != f"--{verb}"]
    return [verb or "list", *rest, *(["--agent", arguments[0]] if named else [])]
