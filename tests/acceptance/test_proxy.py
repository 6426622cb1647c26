"""A hub on loopback behind a reverse proxy that the operator named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance import hub as hubs
from tests.acceptance.hub import Hub
from tests.conftest import Furnish

FORWARDED = {"host": "nexus.example", "x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}


@pytest.fixture(scope="module")
def hub(furnish: Furnish, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    home: Path = furnish(tmp_path_factory.mktemp("behind") / "home")
    with hubs.serving(home, "--trusted-proxies", "127.0.0.1") as hub:
        yield hub


@pytest.mark.parametrize("headers", [FORWARDED, {}, {"x-forwarded-for": "127.0.0.1"}])
def test_nobody_is_local(hub: Hub, headers: dict[str, str]) -> None:
    """Not even who says nothing of it: on loopback there is the proxy, and programs that cannot be told from it."""
    assert httpx.get(f"{hub.url}/api/v1/agents", headers=headers).status_code == 401


def test_the_first_operator_logs_in_over_https(hub: Hub) -> None:
    said = next(line for line in hub.lines if "Log in at" in line)
    name, password = re.findall(r"'([^']+)'", said)
    with httpx.Client(base_url=hub.url, headers=FORWARDED) as browser:
        page = browser.get("/admin/login/")
        token = browser.cookies["csrftoken"]
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token, "next": "/admin/"}
        origin = {"origin": "https://nexus.example", "referer": "https://nexus.example/admin/login/"}
        answer = browser.post(str(page.url.path), data=form, headers=origin)
        assert (answer.status_code, answer.headers["location"]) == (302, "/admin/")
        assert browser.get("/api/v1/agents").status_code == 200
