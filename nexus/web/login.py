"""Login with the hub's token in place of a password, or by an address that works once; failed logins slow down the next
ones."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from django.contrib.auth import login
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from nexus.core.access import is_operators_token, operators_tokens
from nexus.core.config import CoreSettings
from nexus.core.instance import redeem
from nexus.core.operations.caller import LOCAL_OPERATOR

if TYPE_CHECKING:
    from django.contrib.auth.models import User
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network

LOCAL_RIGHTS = {"is_staff": True, "is_superuser": True, "password": "!"}  # no password hashes to "!"


class ByToken(ModelBackend):
    """Log in as `local`, the account of local operators. The login ends where the token changes."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **more: Any
    ) -> User | None:
        """Return the account if the password is the token, otherwise None."""
        return _with_token(local_account()) if is_token_login(username, password) else None

    def get_user(self, user_id: int) -> User | None:
        """Return the account of a login; Django ends the login if the token is another one now."""
        return _with_token(super().get_user(user_id))

    async def aget_user(self, user_id: int) -> User | None:
        """Do what `get_user` does from an event loop."""
        return _with_token(await super().aget_user(user_id))


def is_token_login(username: str | None, password: str | None) -> bool:
    """Return whether this is a login with the hub's token, which nobody can guess."""
    return username == LOCAL_OPERATOR and is_operators_token((password or "").strip())


def _with_token(account: User | None) -> User | None:
    """Give an account, in memory alone, a password that nobody can use and that changes with the token: Django compares
    a hash of the password with the one that a session began with."""
    if account is not None:
        account.password = "!" + hashlib.sha256(" ".join(operators_tokens()).encode()).hexdigest()
    return account


def local_account() -> User:
    """Return the account of local requests; it has no usable password. Raises the store's errors."""
    from django.contrib.auth.models import User

    return (
        User.objects.filter(username=LOCAL_OPERATOR).first()
        or User.objects.get_or_create(username=LOCAL_OPERATOR, defaults=LOCAL_RIGHTS)[0]
    )


def enter(request: HttpRequest, code: str) -> HttpResponse:
    """Log in whoever has a code that `nexus setup`, `nexus restart` or `nexus serve` printed; others get the login."""
    if request.method == "GET" and redeem(CoreSettings.current().home, code):
        login(request, _with_token(local_account()), "nexus.web.login.ByToken")
    return redirect("admin:index")


FREE = 3  # failures without a delay, for typing errors
LONGEST_SECONDS = 30.0  # so that a stranger behind the same address keeps nobody out for long
FORGOTTEN_SECONDS = 900.0
KEPT = 4096  # addresses, and names, that are remembered; the oldest are dropped
NAME_CHARACTERS = 150  # the login's limit


class Failures:
    """The number of failures by key, and the time of the next allowed try. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()  # failures, time of the last one

    def count(self, key: str) -> int:
        failures, last = self._counts.get(key, (0, 0.0))
        return failures if self._clock() - last < FORGOTTEN_SECONDS else 0

    def wait(self, key: str) -> float:
        """Return the seconds until the next allowed try."""
        if (failures := self.count(key)) < FREE:
            return 0.0
        delay = min(2.0 ** min(failures - FREE, 10), LONGEST_SECONDS)
        return max(self._counts[key][1] + delay - self._clock(), 0.0)

    def add(self, key: str) -> None:
        self._counts[key] = self.count(key) + 1, self._clock()
        self._counts.move_to_end(key)
        if len(self._counts) > KEPT:
            self._counts.popitem(last=False)

    def forget(self, key: str) -> None:
        self._counts.pop(key, None)


class Throttle:
    """The delays before a password is checked.

    An address without recent failures never waits for the failures of others: strangers who try a name from elsewhere
    must not lock its owner out. An address with failures waits for its own and for those of the name, whoever made
    them. Refused tries do not count, otherwise a delay would never end. The hub's token never waits.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers, self._names = Failures(clock), Failures(clock)
        self.failed = self.refused = 0  # since the process started

    def wait(self, peer: str, name: str) -> float:
        """Return the seconds that a login must wait; 0 if it may be tried now."""
        peer = network_of(peer)
        if not self._peers.count(peer):
            return 0.0
        return max(self._peers.wait(peer), self._names.wait(_key(name)))

    def add_failure(self, peer: str, name: str) -> None:
        self.failed += 1
        self._peers.add(network_of(peer))
        self._names.add(_key(name))

    def forget(self, peer: str, name: str) -> None:
        """Forget failures after a successful login."""
        self._peers.forget(network_of(peer))
        self._names.forget(_key(name))


def network_of(peer: str) -> str:
    """Return the network from which one client can choose addresses: an IPv6 client has 2**64 of them."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(ip_network((address.packed[:8] + bytes(8), 64)))
    return str(address)


def _key(name: str) -> str:
    return name[:NAME_CHARACTERS].casefold()
