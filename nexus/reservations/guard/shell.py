"""The check before a client's shell runs git, for commits and pushes that git's hooks would not see: Gemini CLI empties
`core.hooksPath` in its shells, and any command may leave the hooks out. Standard library only."""

from __future__ import annotations

import os
import re
import shlex
import sys

from nexus.core.harness_events import HookEvent
from nexus.core.processes import in_foreground
from nexus.hooks import client_processes
from nexus.reservations.guard import check, repository

PROGRAM = os.path.join(os.path.dirname(check.__file__), "run.py")  # noqa: PTH120  # pathlib costs more
GIT = re.compile(r"\bgit\b[^|;&\n]*\s(commit|push)(?![\w-])")
LEAVES_HOOKS_OUT = re.compile(r"--no-verif|\s-[A-Za-z]*n|core\.hookspath|\bGIT_CONFIG", re.IGNORECASE)
WITHOUT_HOOKS = "gemini"  # the client whose shells run none of git's
WITH_TEXT = re.compile(r"-[nqsve]*[mF]|--message|--file")  # options whose next word is their value
OF_STAGED = re.compile(
    r"-[nqsve]+|--(no-verify|quiet|signoff|verbose|amend|no-edit|allow-empty|(message|file)=.*)", re.DOTALL
)


def refusal(what: HookEvent) -> str:
    """Return why a line of shell may not run; the empty string if it may."""
    verbs = set(GIT.findall(what.command))
    if not verbs or not (what.client == WITHOUT_HOOKS or LEAVES_HOOKS_OUT.search(what.command)):
        return ""
    here = repository.find_repository(os.path.join(what.root, what.directory))
    if here is None or not here.is_guarded():
        return ""
    texts = []
    if "commit" in verbs:
        bare = _is_of_staged(what.command)
        text = _checked(what, here.top, *([] if bare else [check.CHANGED]))
        hint = (
            "The guard looked at every change here. Stage yours, then run `git commit -m …` as a command of its own.\n"
        )
        texts.append(text if bare or not text else text + hint)
    if "push" in verbs:
        texts.append(_checked(what, here.top, check.UNPUSHED))
    return "".join(texts)


def _is_of_staged(command: str) -> bool:
    """Return whether a line does nothing but commit what is staged before it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    options = iter(words[2:])
    for option in options:
        if WITH_TEXT.fullmatch(option):
            next(options, None)
        elif not OF_STAGED.fullmatch(option):
            return False
    return words[:2] == ["git", "commit"]


def _checked(what: HookEvent, top: str, *given: str) -> str:
    """Return what git's hook would say."""
    settings = what.settings
    store = settings.database_url or str(settings.database)
    about = [check.CHECK, "", store, settings.guard_unreadable, shlex.join(["--home", str(settings.home)]), *given]
    environ = repository.without_repository(os.environ)
    if not client_processes.agents_here(settings.home):
        environ.setdefault(check.AGENT, what.caller)
    done = in_foreground([sys.executable, "-I", "-S", PROGRAM, *about], cwd=top, env=environ, captured=True)
    return done.errors.decode(errors="replace") if done.code else ""
