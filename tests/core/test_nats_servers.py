"""NATS servers that ask who comes, by each way that `nats_url` has; that forbid something; or that are unlike the one
of the tests."""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
import logging
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import httpx
import nkeys  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nexus.core import fanout
from tests.core.test_fanout import Make, Pair, database, failing, wire
from tests.nats import START_SECONDS, Network, nats
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("starts_processes")

__all__ = ["database", "wire"]

REFUSED = "NATS refuses the user, password, token or key of nats_url"
FORBIDDEN = "NATS does not allow this user the subjects under nexus.>"
HANDSHAKE = "The TLS handshake with NATS failed: see its certificate, and ?ca= of nats_url"


class Key:
    """A key of NATS, of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self.seed: bytes = bytes(nkeys.encode_seed(os.urandom(32), kind))
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public: str = self._pair.public_key.decode()

    def jwt(self, of: Key, name: str, **claims: object) -> str:
        """A claim about another key, signed by this one, as `nsc` makes it."""
        body = {"iat": int(time.time()), "iss": self.public, "name": name, "sub": of.public}
        body["nats"] = {"version": 2, **claims}
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
        text = ".".join(map(coded, (b'{"typ":"JWT","alg":"ed25519-nkey"}', json.dumps(body).encode())))
        return f"{text}.{coded(self._pair.sign(text.encode()))}"


def coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def credentials(path: Path, account: Key) -> Path:
    """A file with the credentials of a user of an account."""
    user = Key(nkeys.PREFIX_BYTE_USER)
    made = account.jwt(user, "nexus", type="user", subs=-1, data=-1, payload=-1)
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{made}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    return path


def test_a_file_of_credentials_lets_in_and_one_of_another_account_does_not(wire: Make, tmp_path: Path) -> None:
    operator, account, other = (
        Key(kind) for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
    )
    unlimited = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "conn": -1, "leaf": -1}
    known = operator.jwt(account, "team", type="account", limits={**unlimited, "wildcards": True})
    settings = (
        f"operator: {operator.jwt(operator, 'op', type='operator')}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {known} }}"
    )
    good, bad = credentials(tmp_path / "good", account), credentials(tmp_path / "bad", other)
    with nats(settings) as server:
        pair = Pair(wire(f"{server.url}?creds={good}"), wire(f"{server.url}?creds={good}"))
        pair.hear("event.a")
        pair.pass_one()
        assert failing(wire(f"{server.url}?creds={bad}")) == REFUSED
        assert failing(wire(server.url)) == REFUSED


def test_a_key_lets_in_and_another_does_not(wire: Make, tmp_path: Path) -> None:
    key, other = Key(nkeys.PREFIX_BYTE_USER), Key(nkeys.PREFIX_BYTE_USER)
    for name, each in (("good", key), ("bad", other)):
        (tmp_path / name).write_bytes(each.seed)
    with nats(f"authorization {{ users: [{{ nkey: {key.public} }}] }}") as server:
        pair = Pair(wire(f"{server.url}?nkey={tmp_path}/good"), wire(f"{server.url}?nkey={tmp_path}/good"))
        pair.hear("event.a")
        pair.pass_one()
        assert failing(wire(f"{server.url}?nkey={tmp_path}/bad")) == REFUSED


@pytest.mark.parametrize("right", [True, False])
def test_a_token_lets_in_and_another_does_not(wire: Make, right: bool) -> None:
    with nats('authorization { token: "t0ken" }', credentials=f"{'t0ken' if right else 'other'}@") as server:
        if right:
            pair = Pair(wire(server.url), wire(server.url))
            pair.hear("event.a")
            pair.pass_one()
        else:
            assert failing(wire(server.url)) == REFUSED


class Authority:
    """An authority of certificates, in files of a directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def settings(self, host: x509.GeneralName) -> str:
        """Lines of the configuration of a server with a certificate for a host."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(x509.Name([]), key, x509.SubjectAlternativeName([host]))
        key_file, file = self._directory / "key", self._directory / "certificate"
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
        return f'tls {{ cert_file: "{file}", key_file: "{key_file}" }}'

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        moment = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - datetime.timedelta(days=1))
            .not_valid_after(moment + datetime.timedelta(days=1))
            .add_extension(extension, critical=True)
            .sign(self._key, hashes.SHA256())
        )


HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def test_tls_with_an_authority_of_its_own(wire: Make, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ours"), Authority(tmp_path, "other")
    with nats(authority.settings(HERE)) as server:
        url = server.url.replace("nats:", "tls:")
        pair = Pair(wire(f"{url}?ca={authority.file}"), wire(f"{server.url}?ca={authority.file}"))
        pair.hear("event.a")
        pair.pass_one()
        assert failing(wire(f"{url}?ca={other.file}")) == HANDSHAKE
        assert failing(wire(url)) == HANDSHAKE
        assert failing(wire(server.url)) == HANDSHAKE


def test_tls_with_a_certificate_for_another_host(wire: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    with nats(authority.settings(x509.DNSName("other.example"))) as server:
        assert failing(wire(f"{server.url.replace('nats:', 'tls:')}?ca={authority.file}")) == HANDSHAKE


@pytest.mark.parametrize("right", ["publish", "subscribe"])
async def test_a_user_that_may_not_publish_or_subscribe_is_named_once(
    right: str, wire: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "AGAIN_SECONDS", 0.01)
    caplog.set_level(logging.WARNING, fanout.__name__)
    user = f'user: "u", password: "p", permissions: {{ {right}: "other.>" }}'
    with nats(f"authorization {{ users: [{{ {user} }}] }}", credentials="u:p@") as server:
        tries, opened = threading.Semaphore(0), fanout.Connection.open

        async def count(self: fanout.Connection, failing: object) -> None:
            tries.release()
            await opened(self, failing)  # type: ignore[arg-type]

        monkeypatch.setattr(fanout.Connection, "open", count)
        on = wire(server.url)
        on.hear("event.a", lambda content: None)
        for _ in range(4):
            on.publish("event.a", b"1")
            assert tries.acquire(timeout=START_SECONDS)
        assert failing(on) == FORBIDDEN
        assert await fanout.problem_of(server.url) == FORBIDDEN
        assert [record.getMessage().partition(".")[0] for record in caplog.records] == [FORBIDDEN.partition(".")[0]]


def test_a_process_that_reads_too_slowly_is_cut_off_and_looks(wire: Make) -> None:
    reads, port = threading.Event(), free_port()
    with nats(f'max_payload: 65536\nmax_pending: 65536\nhttp: "127.0.0.1:{port}"') as server:
        pair = Pair(wire(server.url), wire(server.url))

        def read_late(content: bytes | None) -> None:
            if content is not None:
                reads.wait(START_SECONDS)

        pair.there.hear("event.b", read_late)
        pair.hear("event.a")
        pair.got.clear()
        deadline = time.monotonic() + START_SECONDS
        while not httpx.get(f"http://127.0.0.1:{port}/varz").json()["slow_consumers"]:
            assert time.monotonic() < deadline
            pair.here.publish("event.b", b"x" * 60_000)
        reads.set()
        pair.until(lambda: None in pair.got)  # it looks at what it may have missed
        pair.pass_one()


class Older(Network):
    """Shows a server as one of a version that knows less."""

    def passed(self, data: bytes) -> bytes:
        if not data.startswith(b"INFO "):
            return data
        shown = json.loads(data.removeprefix(b"INFO "))
        kept = {name: shown[name] for name in ("server_id", "host", "port", "max_payload")}
        return b"INFO " + json.dumps({**kept, "version": "0.9.6", "auth_required": False}).encode() + b"\r\n"


@pytest.mark.usefixtures("runs_postgres")
def test_a_server_of_another_version_passes_messages(wire: Make) -> None:
    with nats() as server, closing(Older(server.port)) as network:
        url = f"nats://127.0.0.1:{network.port}"
        pair = Pair(wire(url), wire(url))
        pair.hear("event.a")
        pair.pass_one()
