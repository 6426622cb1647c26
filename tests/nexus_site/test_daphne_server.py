"""What the hub's server adds to Daphne that no client sees at once."""

from __future__ import annotations

import time

import time_machine

from nexus_site.serving.daphne import reactor


def test_it_keeps_its_timers_when_the_clock_is_moved() -> None:
    for hours in (1, -1):
        with time_machine.travel(time.time()) as clock:
            timer = reactor.callLater(60, print)
            clock.shift(hours * 3600)
            assert 50 < reactor.timeout() <= 60
            timer.cancel()
