"""Another agent: it makes the calls that come on stdin, a line each, and answers each with a line."""

import json
import sys

import django


def main() -> None:
    django.setup()
    from nexus.core.database.store import store
    from nexus.core.operations import dispatch
    from nexus.core.operations.caller import Caller
    from nexus.core.operations.registry import TOOLSETS

    store().prepare()
    for line in sys.stdin:
        name, arguments = json.loads(line)
        toolset = next(each for each in TOOLSETS.values() if name in each.operations)
        print(json.dumps(dispatch.run(toolset, Caller("test"), name, arguments)), flush=True)


main()
