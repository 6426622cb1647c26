"""The processes that run turns: the hub's supervision of its worker, the worker's loop, and the watchdog between them.

It is the program of the pool and may import all its packages; none of them imports it. Begin with `Worker` in
`scheduling.py`, which claims turns; `execution.py` runs one, and `supervision.py` keeps a worker running.
"""
