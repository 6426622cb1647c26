"""An agent of a hub whose disk fills up: `python -m tests.maintenance.relayed HOME`, on a small file system.

Prints one JSON object: how the last of its messages was answered while the disk was full, and a read; how a message was
answered once there was room again; and of the messages that were taken how many are there then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.acceptance.hub import serving
from tests.acceptance.processes import Raw, is_relayed
from tests.maintenance.caller import full_disk

MOST = 500  # messages until what is free inside the store is used up


def main(home: Path) -> None:
    letter = {"project_root": "/", "from_agent_id": "ana", "subject": "s", "body": "b" * 60_000}
    with serving(home) as hub, Raw(home) as raw:
        raw.greet()
        assert is_relayed(raw, hub)
        taken = [raw.call("message_create", letter)["data"]["message_id"]]
        full_disk(home)
        for number in range(MOST):
            refused = raw.call("message_create", letter, number=number)
            if not refused["ok"]:
                break
            taken.append(refused["data"]["message_id"])
        read = raw.call("message_status", {"message_id": taken[0]})
        (home / "ballast").unlink()
        again = raw.call("message_create", letter)
        there = [raw.call("message_status", {"message_id": message_id})["ok"] for message_id in taken]
        assert is_relayed(raw, hub)
    print(json.dumps({"refused": refused, "read": read, "again": again, "lost": there.count(False)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
