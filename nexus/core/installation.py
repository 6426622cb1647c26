"""How this copy of Nexus was installed, and the command that adds an extra to it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "nexus-hub"
NOT_OURS = {"dev"}  # extras of developers
UVX = "archive-v0"  # the directory of `uvx` programs in uv's cache
EXTRA = re.compile(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]")  # a requirement, and the extra that it belongs to


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to this installation and keeps those that it has."""
    environment, wanted = Path(sys.prefix), requirement(extra)
    if UVX in environment.parts:
        command = ["uvx", "--from", *wanted, "nexus"]
    elif (environment / "uv-receipt.toml").is_file():
        command = ["uv", "tool", "install", *wanted]
    elif (environment / "pipx_metadata.json").is_file():
        command = ["pipx", "install", "--force", *wanted]
    elif find_spec("pip"):
        command = [sys.executable, "-m", "pip", "install", *wanted]
    else:
        command = ["uv", "pip", "install", "--python", sys.executable, *wanted]
    return shlex.join(command)


def needs_extra(what: str, extra: str) -> str:
    """Return the sentence, without its full stop, that `what` needs an extra, with the command that adds it."""
    return f"{what} needs the extra {extra}: {install_command(extra)}"


def requirement(*more: str) -> list[str]:
    """Return the words by which an installer gets this copy again, with its extras and `more`."""
    extras = ",".join(sorted({*_extras(), *more}))
    name = f"{DISTRIBUTION}[{extras}]" if extras else DISTRIBUTION
    origin = _origin()
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        path = unquote(urlsplit(url).path)
        return ["--editable", f"{path}[{extras}]" if extras else path]
    if "vcs_info" in origin:
        revision = origin["vcs_info"].get("requested_revision")
        url = f"{origin['vcs_info']['vcs']}+{url}" + (f"@{revision}" if revision else "")
    return [f"{name} @ {url}" if url else name]


def _origin() -> dict[str, Any]:
    """Return what this copy was installed from, as direct_url.json has it; empty for a package index."""
    for each in distributions(name=DISTRIBUTION):  # a checkout's egg-info may come first, which does not know
        if text := each.read_text("direct_url.json"):
            origin: dict[str, Any] = json.loads(text)
            return origin
    return {}


def _extras() -> set[str]:
    """Return the extras whose requirements are all installed."""
    try:
        needed = [found.groups() for each in distribution(DISTRIBUTION).requires or () if (found := EXTRA.match(each))]
    except PackageNotFoundError:  # a checkout
        return set()
    lacking = {extra for name, extra in needed if not any(distributions(name=name))}
    return {extra for _, extra in needed} - lacking - NOT_OURS
