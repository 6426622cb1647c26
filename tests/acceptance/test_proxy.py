"""A hub on loopback behind a reverse proxy that the operator named."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance import hub as hubs
from tests.acceptance.hub import Hub, csrf_token
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


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ({}, "https://nexus.example"),
        ({}, "https://nexus.example:8443"),  # nginx's $host has no port
        ({"host": "nexus.example:443"}, "https://nexus.example"),
        ({"host": "127.0.0.1:8420", "x-forwarded-host": "nexus.example:8443"}, "https://nexus.example:8443"),
        ({"host": "[2001:db8::1]:8443"}, "https://[2001:db8::1]:8443"),
        ({"x-forwarded-proto": "https, http"}, "https://nexus.example"),
    ],
)
def test_the_first_operator_logs_in_over_https(hub: Hub, given: dict[str, str], origin: str) -> None:
    said = next(line for line in hub.lines if "Log in at" in line)
    name, password = re.findall(r"'([^']+)'", said)
    with httpx.Client(base_url=hub.url, headers={**FORWARDED, **given}) as browser:
        page = browser.get("/admin/login/")
        form = {"username": name, "password": password, "csrfmiddlewaretoken": csrf_token(browser), "next": "/admin/"}
        by_page = {"origin": origin, "referer": f"{origin}/admin/login/"}
        answer = browser.post(str(page.url.path), data=form, headers=by_page)
        assert (answer.status_code, answer.headers["location"]) == (302, "/admin/")
        assert browser.get("/api/v1/agents", headers=by_page).status_code == 200
        assert all(name.startswith("nexus_") for name in browser.cookies), (
            "another Django site on this host has Django's"
        )


@pytest.mark.parametrize("origin", ["https://evil.example", "https://nexus.example.evil.example", "null"])
def test_a_page_of_another_site_reaches_nothing(hub: Hub, origin: str) -> None:
    answer = httpx.get(f"{hub.url}/api/v1/agents", headers={**FORWARDED, "origin": origin})
    assert answer.status_code == 403 and "--trusted-proxies" in answer.text


def test_two_hubs_on_a_host_keep_their_logins_apart(hub: Hub, furnish: Furnish, tmp_path: Path) -> None:
    with hubs.serving(furnish(tmp_path / "home")) as other:
        names = [set(httpx.get(f"{each.url}/admin/login/", follow_redirects=True).cookies) for each in (hub, other)]
    assert names[0].isdisjoint(names[1])


@pytest.mark.parametrize("host", ["", "10.0.0.9:8420"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_probe_is_answered(hub: Hub, method: str, host: str) -> None:
    """Of a load balancer, with HTTP/1.0, with and without a Host."""
    head = f"{method} /readyz HTTP/1.0\r\n" + (f"Host: {host}\r\n" if host else "") + "\r\n"
    with socket.create_connection(hub.address) as line:
        line.sendall(head.encode())
        said = line.makefile("rb").read()
    assert said.startswith(b"HTTP/1.0 200 ") and said.endswith(b"}") == (method == "GET")
