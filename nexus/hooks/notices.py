"""Notices: what needs a person is sent to addresses outside of Nexus, by the hub.

No notice is stored. The hub compares what needs a person now with what an address was sent, and sends what is new as
one notice. So what was answered during quiet hours, or while a service was away, is never sent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core import signing
from django.db.models import F

from coordination.ids import new_id
from coordination.log import selectors as log
from coordination.services import audit, workspaces
from inbox.monitoring import Picture
from nexus.core import apps, outward
from nexus.core.background_work import BackgroundWork
from nexus.core.clock import now
from nexus.core.contributions import AttentionItem, AttentionKind
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.processes import CHUNK, CODE, NEUTRAL, environment, python, run
from nexus.hooks import sender
from nexus.hooks.config import HookSettings
from nexus.hooks.models import PAUSES, NoticeAddress
from nexus.hooks.send_notice import SECONDS

MOST_ADDRESSES = 50
EACH = 100  # needs of a kind that are compared
LISTED = 10  # lines of a notice
LINE = 300  # characters of a line
LOOK_SECONDS = 30.0  # between two looks when the log has nothing new: time alone makes some needs
AGAIN = timedelta(seconds=2 * SECONDS)  # a notice whose process died is sent again after this
LINK_SECONDS = 7 * 24 * 3600
DESKTOP = ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS")  # what a notice on this machine's screen needs
TEST = ("Nexus: a test", "What needs a person will come here.")


# Addresses


def add(*, given: Mapping[str, Any], project_root: str | None, operator: str) -> NoticeAddress:
    """Send what needs a person from now on to an address, and a test first. Raises VALIDATION_ERROR,
    WORKSPACE_UNRESOLVED."""
    columns = _columns(given)
    workspace, moment = workspaces.locate(project_root) if project_root is not None else None, now()
    with write():
        if NoticeAddress.objects.count() >= MOST_ADDRESSES:
            raise invalid(f"There are {MOST_ADDRESSES} addresses already; remove one first.")
        if workspace is not None:
            workspaces.ensure(workspace, moment)
        row = NoticeAddress.objects.create(
            notice_id=new_id("ntc"),
            workspace_id=workspace.workspace_id if workspace else None,
            operator=operator,
            created_at=moment,
            test_requested=True,
            **columns,
        )
        audit.record(operator, "notice.added", moment, notice_id=row.pk, name=row.name)
    return row


def change(*, notice_id: str, given: Mapping[str, Any], operator: str) -> NoticeAddress:
    """Change an address; a parameter that is not given keeps its value, and a pause ends. Raises NOT_FOUND,
    VALIDATION_ERROR."""
    columns = _columns(given)
    with write():
        find_address(notice_id)
        NoticeAddress.objects.filter(pk=notice_id).update(**columns, failures=0, next_attempt_at=None)
        audit.record(operator, "notice.changed", now(), notice_id=notice_id, changed=sorted(given))
    return find_address(notice_id)


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns for parameters of an address. Raises VALIDATION_ERROR."""
    columns = dict(given)
    if "url" in columns:
        columns["name"] = _service(columns["url"])
    for kind in columns.get("kinds") or ():
        if kind not in kind_names():
            raise invalid(f"There is no kind {kind!r}; the kinds are {', '.join(kind_names())}.", field="kinds")
    if columns.get("with_answers") and not HookSettings.current().public_url:
        raise invalid("with_answers needs the setting public_url, with which the links begin.", field="with_answers")
    if "quiet" in columns:
        columns["quiet_from"], columns["quiet_until"] = _hours(columns.pop("quiet"))
    _zone(columns.get("timezone"))
    return columns


def remove(*, notice_id: str, operator: str) -> None:
    """Remove an address; the links that were sent to it answer nothing any more. Raises NOT_FOUND."""
    with write():
        find_address(notice_id).delete()
        audit.record(operator, "notice.removed", now(), notice_id=notice_id)


def test(*, notice_id: str) -> NoticeAddress:
    """Send a test to an address now, whatever the hour, and store how it went. Raises NOT_FOUND, and CONFIG_ERROR with
    the reason if it did not arrive."""
    row = find_address(notice_id)
    notice = Notice(row, *TEST, keys=row.sent_keys)
    outcome = send(notice)
    settle_notice(notice, outcome)
    if outcome.error is not None:
        raise NexusError(
            Code.CONFIG_ERROR,
            f"Nothing arrives at {row.name}: {outcome.error}. Change what is wrong there, or add the right address.",
        )
    row.refresh_from_db()
    return row


def find_address(notice_id: str) -> NoticeAddress:
    """Return an address. Raises NOT_FOUND."""
    row = NoticeAddress.objects.filter(pk=notice_id).first()
    if row is None:
        raise not_found("notice address", notice_id[:200])
    return row


def kind_names() -> list[str]:
    """Return the names of all kinds of needs, the worst first."""
    return [kind.name for kind in apps.kinds_of_needs()]


def answerable_kind(name: str) -> AttentionKind | None:
    """Return the kind of this name if its items can be answered by a link."""
    return next((kind for kind in apps.kinds_of_needs() if kind.name == name and kind.answerable), None)


def _service(url: str) -> str:
    """Return the name of a service's address without its secrets. Raises VALIDATION_ERROR."""
    scheme, separator, rest = url.partition("://")
    plain = len(url) <= sender.MAX_URL and url.isprintable() and " " not in url
    if not (plain and separator and rest and scheme.isascii() and scheme.isalnum()):
        raise invalid("url must be an address such as ntfys://ntfy.sh/topic.", field="url")
    return scheme.lower()


def _hours(quiet: str | None) -> tuple[time | None, time | None]:
    if quiet is None:
        return None, None
    try:
        start, end = (time.fromisoformat(part) for part in quiet.split("-"))
        if start == end or start.tzinfo or end.tzinfo:
            raise ValueError
    except ValueError:
        raise invalid("quiet must be two times such as 22:00-07:00.", field="quiet") from None
    return start, end


def _zone(name: str | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):
        raise invalid("timezone must be a name such as Europe/Berlin.", field="timezone") from None


def is_quiet(row: NoticeAddress, moment: datetime) -> bool:
    """Return whether a moment is within the address's quiet hours."""
    if row.quiet_from is None or row.quiet_until is None:
        return False
    clock = moment.astimezone(_zone(row.timezone)).time()
    if row.quiet_from < row.quiet_until:
        return row.quiet_from <= clock < row.quiet_until
    return clock >= row.quiet_from or clock < row.quiet_until


# Links


def link(row: NoticeAddress, kind: AttentionKind, item: AttentionItem) -> str:
    """Return the address of the page that shows an item and answers it without a login; empty where there is none."""
    root = HookSettings.current().public_url.rstrip("/")
    if not (root and row.with_answers and kind.answerable and item.subject):
        return ""
    return f"{root}/answer/{_signer().sign_object([row.pk, kind.name, item.subject])}"


def read_link(token: str) -> tuple[str, str, str]:
    """Return the address, the kind and the subject of a link. Raises signing.BadSignature, SignatureExpired."""
    notice_id, kind, subject = _signer().unsign_object(token, max_age=LINK_SECONDS)
    return notice_id, kind, subject


def _signer() -> signing.TimestampSigner:
    return signing.TimestampSigner(salt="nexus.hooks.answer", sep=".")


# Sending


@dataclass(frozen=True)
class Notice:
    """What is to be sent to an address."""

    address: NoticeAddress
    title: str
    body: str
    keys: Sequence[str] = ()  # of all needs of the moment: those of before, and those that it tells


@dataclass(frozen=True)
class NoticeResult:
    """The outcome of an attempt."""

    error: str | None = None


def send(notice: Notice) -> NoticeResult:
    """Send a notice in a process of its own, which takes SECONDS at most."""
    row = notice.address
    if row.subscription:
        return NoticeResult("browsers get no notices any more: remove this address and add one of a service")
    request = {"url": row.url, "title": notice.title, "body": notice.body, "allow_private": row.allow_private}
    env = environment(*DESKTOP, "HOME", "XDG_RUNTIME_DIR", *outward.VARIABLES, PYTHONPATH=CODE)
    try:
        done = run(
            python("nexus.hooks.send_notice"),
            cwd=NEUTRAL,
            env=env,
            input=json.dumps(request).encode(),
            seconds=SECONDS,
            largest=CHUNK,
        )
        answer = json.loads(done.output)
    except TimeoutError:
        return NoticeResult("the service did not answer in time")
    except (OSError, ValueError) as error:
        return NoticeResult(f"it could not be sent ({type(error).__name__})")
    return NoticeResult(answer.get("error"))


@dataclass
class Notices(BackgroundWork[Notice, NoticeResult]):
    """Background work: an address is a queue. `queues` reads what needs a person and keeps what is to be sent: that
    takes long on a large store, and `claim` has the writer's turn."""

    ready: dict[str, Notice] = field(default_factory=dict)
    looked: tuple[int, datetime] | None = None
    name = "notices"
    threads = 4

    def queues(self) -> Sequence[str]:
        rows = list(NoticeAddress.objects.select_related("workspace").order_by("pk"))
        if not rows:
            return []
        moment, newest = now(), log.newest_event_id()
        for row in rows:
            if row.test_requested:
                self.ready[row.pk] = Notice(row, *TEST, keys=row.sent_keys)
        waiting = [row for row in rows if row.pk not in self.ready and _may_be_sent(row, moment)]
        if waiting and (self.looked is None or self.looked[0] != newest or moment - self.looked[1] >= LOOK):
            self.looked = newest, moment
            pictures = {row.workspace_id: row.workspace for row in waiting}
            needs = {pk: apps.needs(Picture(moment, workspace), EACH) for pk, workspace in pictures.items()}
            for row in waiting:
                if (notice := compose(row, needs[row.workspace_id])) is not None:
                    self.ready[row.pk] = notice
        return list(self.ready)

    def claim(self, queue: str) -> Notice | None:
        notice = self.ready.pop(queue, None)
        if notice is None:
            return None
        row, moment = notice.address, now()
        same = NoticeAddress.objects.filter(pk=queue, claims=row.claims)
        if not same.update(claims=F("claims") + 1, test_requested=False, next_attempt_at=moment + AGAIN):
            return None  # removed, or another hub sends it
        return notice

    def act(self, item: Notice) -> NoticeResult:
        return send(item)

    def given_up(self, item: Notice, why: str) -> NoticeResult:
        return NoticeResult(why)

    def settle(self, item: Notice, outcome: NoticeResult) -> bool:
        settle_notice(item, outcome)
        self.looked = None
        return False


LOOK = timedelta(seconds=LOOK_SECONDS)
NOTICES = Notices()


def settle_notice(notice: Notice, outcome: NoticeResult) -> None:
    """Store the outcome of an attempt. A failure pauses the address, longer after each in a row."""
    moment = now()
    with write():
        row = NoticeAddress.objects.filter(pk=notice.address.pk)
        if outcome.error is None:
            row.update(
                sent_keys=list(notice.keys), last_sent_at=moment, last_error=None, failures=0, next_attempt_at=None
            )
        else:
            failures = notice.address.failures + 1
            pause = timedelta(seconds=PAUSES[min(failures, len(PAUSES)) - 1])
            row.update(failures=failures, last_error=outcome.error[:255], next_attempt_at=moment + pause)


def _may_be_sent(row: NoticeAddress, moment: datetime) -> bool:
    return (row.next_attempt_at is None or row.next_attempt_at <= moment) and not is_quiet(row, moment)


def compose(row: NoticeAddress, needs: Sequence[tuple[AttentionKind, Any]]) -> Notice | None:
    """Return the notice of what an address was not sent yet; None if there is nothing."""
    wanted = [
        (kind, item) for kind, found in needs if row.kinds is None or kind.name in row.kinds for item in found.needs
    ]
    keys = {_key(kind, item): (kind, item) for kind, item in wanted}
    sent = [key for key in row.sent_keys if key in keys]
    new = [key for key in keys if key not in sent]
    if not new:
        return None
    lines = []
    for key in new[:LISTED]:
        kind, item = keys[key]
        answer = link(row, kind, item)
        lines.append(_line(row, kind, item) + (f"\n{answer}" if answer else ""))
    if len(new) > LISTED:
        lines.append(f"and {len(new) - LISTED} more")
    root = HookSettings.current().public_url.rstrip("/")
    if root:
        lines.append(f"{root}/admin/attention/")
    count = f"{len(new)} things need" if len(new) > 1 else "1 thing needs"
    where = f" in {Path(row.workspace.root_realpath).name}" if row.workspace else ""
    return Notice(row, f"Nexus: {count} a person{where}", "\n".join(lines), [*sent, *new])


def _key(kind: AttentionKind, item: AttentionItem) -> str:
    return f"{kind.name} {item.subject or item.page_of or item.title}"[:LINE]


def _line(row: NoticeAddress, kind: AttentionKind, item: AttentionItem) -> str:
    if not row.with_text:
        return kind.title
    words = f"{item.title}: {item.detail}" if item.detail else item.title
    return f"{kind.title}. {' '.join(words.split())}"[:LINE]
