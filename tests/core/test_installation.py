"""The command that adds an extra fits how this copy of Nexus was installed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nexus.core import installation
from nexus.core.installation import install_command
from tests.acceptance.hub import ROOT

WHEEL = {"url": "file:///dist/nexus_hub-1-py3-none-any.whl", "archive_info": {}}
FROM_WHEEL = "'nexus-hub[{}] @ file:///dist/nexus_hub-1-py3-none-any.whl'"
CLONE = {"url": "file:///my%20clone", "dir_info": {"editable": True}}


def as_installed(monkeypatch: pytest.MonkeyPatch, *extras: str, **origin: Any) -> None:
    """This copy was installed from there, with those extras."""
    needed = ["django>=5", *(f"{extra}-x[y]>=1; extra == '{extra}'" for extra in ("acp", "postgres", "dev"))]
    copy = SimpleNamespace(requires=needed, read_text={"direct_url.json": json.dumps(origin)}.get)
    there = {f"{extra}-x" for extra in extras}
    monkeypatch.setattr(installation, "distribution", lambda name: copy)
    monkeypatch.setattr(installation, "distributions", lambda name: [copy] if name == "nexus-hub" else there & {name})


@pytest.mark.parametrize(
    ("marker", "origin", "command"),
    [
        ("uv-receipt.toml", WHEEL, f"uv tool install {FROM_WHEEL.format('acp,postgres')}"),
        ("uv-receipt.toml", CLONE, "uv tool install --editable '/my clone[acp,postgres]'"),
        ("pipx_metadata.json", WHEEL, f"pipx install --force {FROM_WHEEL.format('acp,postgres')}"),
        ("archive-v0/Jx2/", WHEEL, f"uvx --from {FROM_WHEEL.format('acp,postgres')} nexus"),
        ("", WHEEL, f"{sys.executable} -m pip install {FROM_WHEEL.format('acp,postgres')}"),
        ("", {}, f"{sys.executable} -m pip install 'nexus-hub[acp,postgres]'"),
        (
            "",
            {"url": "https://example.com/hub", "vcs_info": {"vcs": "git", "requested_revision": "v1"}},
            f"{sys.executable} -m pip install 'nexus-hub[acp,postgres] @ git+https://example.com/hub@v1'",
        ),
    ],
)
def test_it_fits_the_installer_and_the_origin_and_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str, origin: dict[str, Any], command: str
) -> None:
    as_installed(monkeypatch, "acp", "dev", **origin)
    if marker.endswith("/"):
        tmp_path = tmp_path / marker
    elif marker:
        (tmp_path / marker).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation, "find_spec", lambda name: name)  # pip is there
    assert install_command("postgres") == command


def test_an_environment_without_pip_is_filled_by_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_installed(monkeypatch, **WHEEL)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(installation, "find_spec", lambda name: None)
    assert install_command("acp") == f"uv pip install --python {sys.executable} {FROM_WHEEL.format('acp')}"


def test_no_text_names_an_extra_by_a_package_that_no_registry_has() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts += [path for room in ("nexus", "nexus_site", "templates") for path in (ROOT / room).rglob("*.[ph][yt]*")]
    found = {path: re.findall(r"nexus-hub\[[a-z]", path.read_text()) for path in texts if path.suffix != ".pyc"}
    assert len(found) > 500 and not [path for path, names in found.items() if names]
