"""The part of GitHub's published OpenAPI description that Nexus uses, cut from the npm package @octokit/openapi."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.outside import npm_packages

FILE = "node_modules/@octokit/openapi/generated/api.github.com.json"
REPOSITORY = "/repos/{owner}/{repo}"
OPERATIONS = {
    REPOSITORY: ("get",),
    f"{REPOSITORY}/issues": ("get",),
    f"{REPOSITORY}/issues/{{issue_number}}": ("get",),
    f"{REPOSITORY}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{REPOSITORY}/issues/comments/{{comment_id}}": ("patch",),
    f"{REPOSITORY}/pulls": ("get", "post"),
    f"{REPOSITORY}/pulls/{{pull_number}}": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}/comments": ("get",),
    f"{REPOSITORY}/pulls/{{pull_number}}/reviews": ("get",),
    f"{REPOSITORY}/commits/{{ref}}/check-runs": ("get",),
    f"{REPOSITORY}/commits/{{ref}}/status": ("get",),
    f"{REPOSITORY}/collaborators/{{username}}/permission": ("get",),
    f"{REPOSITORY}/actions/jobs/{{job_id}}/logs": ("get",),
}
KEPT = ("200", "201", "302", "304")


def published() -> str:
    """Return the part as JSON. Without npm a contributor's test is skipped."""
    return json.dumps(cut(json.loads((npm_packages() / FILE).read_text())))


def cut(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the operations above, and what they refer to, without words for people."""
    paths = {}
    for path, verbs in OPERATIONS.items():
        paths[path] = {verb: whole["paths"][path][verb] for verb in verbs}
        for found in paths[path].values():
            found["responses"] = {code: answer for code, answer in found["responses"].items() if code in KEPT}
    part: dict[str, Any] = {"openapi": whole["openapi"], "info": whole["info"], "paths": paths, "components": {}}
    waiting = list(_references(paths))
    while waiting:
        kind, name = waiting.pop().removeprefix("#/components/").split("/", 1)
        group = part["components"].setdefault(kind, {})
        if name not in group:
            group[name] = whole["components"][kind][name]
            waiting += _references(group[name])
    terse: dict[str, Any] = _terse(part)
    return terse


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _terse(value: Any, within: str = "") -> Any:
    if isinstance(value, dict):
        named = within in ("properties", "examples", "value")
        return {
            key: _terse(each, key if within != "value" else "value")
            for key, each in value.items()
            if named
            or not (key in ("description", "x-github", "externalDocs", "summary") and isinstance(each, str | dict))
        }
    return [_terse(each, within) for each in value] if isinstance(value, list) else value
