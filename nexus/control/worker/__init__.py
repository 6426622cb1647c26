"""The processes that run turns: the hub's supervision of its worker, and the worker's loop.

It is the program of the pool and may import all its packages; none of them imports it. Begin with `Worker` in
`scheduling.py`, which claims turns; `execution.py` runs one, and `supervision.py` keeps a worker running.
"""
