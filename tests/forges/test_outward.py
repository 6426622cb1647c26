"""One way out: a forge's API, a push, a webhook and a notice go through one proxy and know its private CA."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from handoffs.models import Handoff
from nexus.core import outward, surroundings
from nexus.forges.models import ForgeIssue
from nexus.hooks import notices, sender
from nexus.hooks.models import NoticeAddress
from tests.forges.github_server import GitHub, serve
from tests.forges.test_pulls import Look, project, publish, submitted
from tests.hooks.receiver import Receiver, receiver
from tests.opening_proxy import OpeningProxy, opening_proxy

__all__ = ["project", "receiver", "submitted"]


@pytest.fixture
def github(runs_git: None, opened: OpeningProxy, served: GitHub) -> GitHub:
    """The forge, behind the proxy."""
    served.url = "https://git.example"
    return served


@pytest.fixture
def served(starts_processes: None) -> Iterator[GitHub]:
    with serve() as github:
        yield github


@pytest.fixture
def opened(
    tmp_path: Path, served: GitHub, receiver: Receiver, request: pytest.FixtureRequest, kept_variables: None
) -> Iterator[OpeningProxy]:
    """The proxy, as this machine's variables say, or its settings of git."""
    place = tmp_path / "proxy"
    place.mkdir()
    with opening_proxy(place, {"git.example": served.url, "hooks.example": receiver.url}) as proxy:
        for name in outward.VARIABLES:
            os.environ.pop(name, None)
        if getattr(request, "param", "variables") == "variables":
            os.environ |= {"HTTPS_PROXY": proxy.url, "REQUESTS_CA_BUNDLE": str(proxy.certificate)}
        else:
            os.environ |= {"HOME": str(place), "XDG_CONFIG_HOME": str(place)}
            (place / ".gitconfig").write_text(f"[http]\nproxy = {proxy.url}\nsslCAInfo = {proxy.certificate}\n")
        outward.settle()
        surroundings.take_git_settings()
        yield proxy


BOTH = pytest.mark.parametrize("opened", ["variables", "gitconfig"], indirect=True)


@BOTH
def test_issues_come_in_and_work_goes_out_by_one_way(
    github: GitHub, opened: OpeningProxy, submitted: Handoff, look: Look
) -> None:
    read = len(opened.asked)
    assert read and set(opened.asked) == {"git.example"}
    publish(submitted.pk)
    look()
    row = ForgeIssue.objects.get()
    assert (row.last_error, len(github.pulls)) == (None, 1)
    assert "POST /acme/shop.git/git-receive-pack" in github.calls
    assert len(opened.asked) > read


@pytest.mark.usefixtures("sandboxed")
def test_a_push_from_the_sandbox_knows_the_certificates(
    github: GitHub, opened: OpeningProxy, submitted: Handoff, look: Look
) -> None:
    publish(submitted.pk)
    look()
    assert (ForgeIssue.objects.get().last_error, len(github.pulls)) == (None, 1)


@BOTH
def test_a_webhook_goes_the_same_way(opened: OpeningProxy, receiver: Receiver) -> None:
    sender.post("https://hooks.example/here?x=1", "{}", {"content-type": "application/json"}, allow_private=False)
    assert opened.asked == ["hooks.example"] and len(receiver.got) == 1


@BOTH
def test_a_notice_goes_the_same_way(opened: OpeningProxy, receiver: Receiver, db: None) -> None:
    address = NoticeAddress(name="phone", url="jsons://hooks.example/here")
    assert notices.send(notices.Notice(address, "Nexus", "Look.")) == notices.NoticeResult()
    assert opened.asked == ["hooks.example"] and len(receiver.got) == 1


def test_the_proxys_login_is_given_to_it_alone(opened: OpeningProxy, receiver: Receiver) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        os.environ[name] = opened.url.replace("//", "//ann:s%40cret@")
    sender.post("https://hooks.example/", "{}", {}, allow_private=False)
    assert opened.logins == ["Basic YW5uOnNAY3JldA=="]
    assert "proxy-authorization" not in receiver.got[0][0]


def test_what_is_excepted_goes_directly(opened: OpeningProxy, receiver: Receiver) -> None:
    os.environ |= {"http_proxy": opened.url, "no_proxy": "127.0.0.1"}
    sender.post(receiver.url, "{}", {}, allow_private=True)
    assert (opened.asked, len(receiver.got)) == ([], 1)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"https_proxy": "http://127.0.0.1:1"}, "the proxy 127.0.0.1 does not lead there"),
        ({"https_proxy": "socks5://127.0.0.1:1080"}, "the proxy must be of the form http://host:port"),
        ({"SSL_CERT_FILE": os.devnull}, "TLS failed"),
    ],
)
def test_a_way_that_leads_nowhere_says_so(
    opened: OpeningProxy, receiver: Receiver, variables: dict[str, str], said: str
) -> None:
    os.environ |= variables
    with pytest.raises(sender.Undelivered, match=said):
        sender.post("https://hooks.example/", "{}", {}, allow_private=False)
    assert receiver.got == []


def test_a_name_that_only_the_proxy_does_not_know_is_said(opened: OpeningProxy) -> None:
    with pytest.raises(sender.Undelivered, match=r"the proxy .* does not lead there .*502"):
        sender.post("https://elsewhere.example/", "{}", {}, allow_private=False)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "10.1.2.3"])
def test_a_private_address_is_refused_where_this_machine_knows_it(opened: OpeningProxy, name: str) -> None:
    with pytest.raises(sender.Undelivered, match="private"):
        sender.post(f"https://{name}/", "{}", {}, allow_private=False)
    assert opened.asked == []
