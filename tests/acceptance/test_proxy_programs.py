"""The configurations of docs/how-to/run-it-for-real.md, each with the real program in front of a hub."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.acceptance import hub as hubs
from tests.acceptance.hub import ROOT, START_SECONDS, Hub, csrf_token
from tests.conftest import Furnish
from tests.hooks.harness import until
from tests.outside import program
from tests.ports import free_port

PAGE = (ROOT / "docs/how-to/run-it-for-real.md").read_text()
NGINX = """daemon off; pid {at}/pid; error_log stderr; events {{}}
http {{
access_log off; client_body_temp_path {at}/body; proxy_temp_path {at}/proxied; fastcgi_temp_path {at}/f;
uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
{page}
}}
"""
COMMANDS = {
    "nginx": ["nginx", "-p", ".", "-e", "stderr", "-c"],
    "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config"],
    "haproxy": ["haproxy", "-db", "-f"],
}


def configuration(name: str, prefix: str) -> str:
    """The page's configuration for a program; below a prefix, with what the page says of that."""
    found: list[str] = re.findall(rf"```{name}\n(.*?)```", PAGE, re.DOTALL)
    whole, below = found
    if not prefix:
        return whole
    if name == "haproxy":
        return whole + below
    replaced = r"    location / \{.*?\n    \}\n" if name == "nginx" else r"    reverse_proxy .*\n"
    return re.sub(replaced, lambda _: below, whole, flags=re.DOTALL if name == "nginx" else 0)


@pytest.fixture(scope="module")
def certificate(starts_hubs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a certificate of localhost."""
    at = tmp_path_factory.mktemp("certificate")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(at / "localhost.key"), "-out", str(at / "localhost.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    both = (at / "localhost.pem").read_text() + (at / "localhost.key").read_text()
    (at / "localhost.both").write_text(both)
    return at


@pytest.fixture(scope="module")
def hub(starts_hubs: None, furnish: Furnish, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    home = furnish(tmp_path_factory.mktemp("behind") / "home")
    with hubs.serving(home, "--trusted-proxies", "127.0.0.1") as hub:
        yield hub


@contextmanager
def proxied(name: str, prefix: str, hub: Hub, certificate: Path, at: Path) -> Iterator[str]:
    """The address of the hub behind a program."""
    found, port = program(name), free_port()
    text = configuration(name, prefix).replace("127.0.0.1:8420", hub.authority).replace("8443", str(port))
    text = text.replace("/etc/ssl/hub.example", str(certificate / "localhost")).replace("hub.example", "localhost")
    if name == "nginx":
        text = NGINX.format(at=at, page=text)
    elif name == "caddy":
        text = "{\nadmin off\nauto_https disable_redirects\n}\n" + text
    file = at / "configuration"
    file.write_text(text)
    with (at / "said").open("w") as said:
        environ = {"HOME": str(at), "PATH": "/usr/bin:/bin"}
        process = subprocess.Popen(
            [found, *COMMANDS[name][1:], str(file)], cwd=at, env=environ, stdout=said, stderr=said
        )
    try:
        url = f"https://localhost:{port}{prefix}"
        with httpx.Client(verify=trusting(certificate)) as client:

            def is_ready() -> bool:
                assert process.poll() is None, (at / "said").read_text()
                try:
                    return client.get(f"{url}/readyz").status_code == 200
                except httpx.TransportError:
                    return False

            until(is_ready)
        yield url
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate / "localhost.pem"))


@pytest.mark.parametrize("prefix", ["", "/nexus"])
@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_pages_configuration_serves_the_hub(
    name: str, prefix: str, hub: Hub, certificate: Path, tmp_path: Path
) -> None:
    operator, password = re.findall(r"'([^']+)'", next(line for line in hub.lines if "Log in at" in line))
    trusted = trusting(certificate)
    with (
        proxied(name, prefix, hub, certificate, tmp_path) as url,
        httpx.Client(verify=trusted, timeout=START_SECONDS, follow_redirects=True) as browser,
    ):
        host = url.removeprefix("https://").removesuffix(prefix)
        origin = {"origin": f"https://{host}", "accept": "text/html"}

        # A person logs in, and every address on the page is below the prefix.
        page = browser.get(f"{url}/")
        assert str(page.url) == f"{url}/admin/login/?next={prefix}/admin/"
        form = {"username": operator, "password": password, "csrfmiddlewaretoken": csrf_token(browser)}
        home = browser.post(str(page.url), data={**form, "next": f"{prefix}/admin/"}, headers=origin)
        assert (home.status_code, str(home.url)) == (200, f"{url}/admin/")
        links = re.findall(r"""(?:href|src|action|data-live)=["'](/[^"']*)""", home.text + page.text)
        assert [link for link in links if not link.startswith(f"{prefix}/")] == []
        style = next(link for link in links if ".css" in link)
        assert browser.get(f"https://{host}{style}").headers["content-type"].startswith("text/css")
        assert f"{url}/mcp" in browser.get(f"{url}/admin/help/").text

        # What the page's scripts use: the API, with the login, and the WebSocket.
        made = browser.post(f"{url}/api/v1/agents", json={"agent_id": f"{name}-{bool(prefix)}"}, headers=origin)
        assert made.status_code == 201, made.text
        cookies = "; ".join(f"{key}={value}" for key, value in browser.cookies.items())
        socket = f"wss://{host}{prefix}/ws/events/?cursor=0"
        how: dict[str, Any] = {"origin": f"https://{host}", "additional_headers": {"Cookie": cookies}}
        with connect(socket, ssl=trusted, open_timeout=START_SECONDS, **how) as line:
            assert "event" in str(line.recv(START_SECONDS))

        # An agent connects, and a stream begins at once.
        key = {"authorization": f"Bearer {made.json()['data']['api_key']}"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        said = httpx.post(
            f"{url}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            headers={**key, "accept": "application/json, text/event-stream"},
            verify=trusted,
        )
        assert said.json()["result"]["serverInfo"]["name"] == "nexus"
        with httpx.stream("GET", f"{url}/api/v1/stream?cursor=0", headers=key, verify=trusted) as stream:
            assert next(stream.iter_lines())
