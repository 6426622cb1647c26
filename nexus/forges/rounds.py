"""The worker of connected forges: looks for issues that changed, and brings each taken issue and its forge in line.

A forge is a lane. A webhook only says that it is time to look: what is true is what the forge answers, so calls of a
webhook that are lost, repeated or out of order do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module

from django.db.models import Q

from coordination.services import audit
from nexus.core.background_work import Work
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError
from nexus.forges import services
from nexus.forges.config import ForgeSettings
from nexus.forges.models import PAUSES, Forge, ForgeKind
from nexus.forges.protocol import Busy, Client, ForgeError, Issue, TokenRefused

CLIENTS = {
    ForgeKind.GITHUB: ("nexus.forges.github", "GitHubClient"),
    ForgeKind.GITLAB: ("nexus.forges.gitlab", "GitLabClient"),
}


def client(forge: Forge) -> Client:
    """Return a client of a forge. Raises CONFIG_ERROR where its library is not installed."""
    module, name = CLIENTS[ForgeKind(forge.kind)]
    try:
        made: Client = getattr(import_module(module), name)(forge.url, forge.repository, forge.token)
    except ModuleNotFoundError:
        raise services.refuse_kind(forge.kind) from None
    return made


@dataclass(frozen=True)
class Look:
    """A look at a forge's issues."""

    forge: Forge


@dataclass(frozen=True)
class Seen:
    """What a look found; `issues` is None where nothing changed."""

    error: ForgeError | None = None
    issues: Sequence[Issue] | None = None
    etag: str = ""


class Rounds(Work[Look, Seen]):
    """Background work: a forge is a lane, a look at it an item."""

    name = "forges"
    threads = 4
    watches_log = True

    def lanes(self) -> Sequence[str]:
        moment = now()
        waiting = Q(refused_at__isnull=False) | Q(next_attempt_at__gt=moment)
        return list(Forge.objects.exclude(waiting).values_list("pk", flat=True))

    def claim(self, lane: str) -> Look | None:
        moment = now()
        forge = Forge.objects.filter(pk=lane, poll_at__lte=moment, refused_at=None).select_related("workspace").first()
        if forge is None or (forge.next_attempt_at is not None and forge.next_attempt_at > moment):
            return None
        again = moment + timedelta(seconds=ForgeSettings.current().forge_poll_seconds)
        if not Forge.objects.filter(pk=lane, poll_at=forge.poll_at).update(poll_at=again):
            return None  # another hub looks
        return Look(forge)

    def act(self, item: Look) -> Seen:
        try:
            found = client(item.forge).issues(item.forge.since, item.forge.etag)
        except ForgeError as error:
            return Seen(error)
        except NexusError as error:
            return Seen(ForgeError(error.message))
        return Seen(etag=item.forge.etag) if found is None else Seen(issues=found[0], etag=found[1])

    def settle(self, item: Look, outcome: Seen) -> bool:
        error = outcome.error
        if error is None:
            try:
                self._take(item.forge, outcome)
            except NexusError as refusal:
                error = ForgeError(refusal.message)
        settle_call(item.forge, error)
        return error is None

    def _take(self, forge: Forge, seen: Seen) -> None:
        since = forge.since
        for issue in seen.issues or ():
            if services.is_wanted(forge, issue):
                services.take(forge, issue)
            since = max(since, issue.updated_at)
        Forge.objects.filter(pk=forge.pk, token=forge.token).update(since=since, etag=seen.etag)


def settle_call(forge: Forge, error: ForgeError | None) -> None:
    """Store how a call to a forge went. A failure pauses it, longer after each one in a row; a refused token stops it
    until there is a new one."""
    moment = now()
    row = Forge.objects.filter(pk=forge.pk, token=forge.token)  # a new token was not refused
    with write():
        if error is None:
            row.update(polled_at=moment, failures=0, next_attempt_at=None, last_error=None)
        elif isinstance(error, TokenRefused):
            if row.filter(refused_at=None).update(refused_at=moment, last_error=str(error)[:255]):
                audit.record("nexus", "forge.token_refused", moment, forge_id=forge.pk, repository=forge.repository)
        elif isinstance(error, Busy):
            until = moment + timedelta(seconds=min(max(error.seconds, 1), PAUSES[-1]))
            row.update(next_attempt_at=until, poll_at=until, last_error=str(error)[:255])
        else:
            failures = forge.failures + 1
            until = moment + timedelta(seconds=PAUSES[min(failures, len(PAUSES)) - 1])
            row.update(failures=failures, next_attempt_at=until, poll_at=until, last_error=str(error)[:255])


ROUNDS = Rounds()
