"""What runs a turn: a runner of each kind (`acp`, `model`, `rehearsal`), its tools, and the sandbox of its programs.

Each kind is a module of that name with a function `take`, imported when the first turn needs it. Every program of an
agent starts in `processes.py`, inside `sandbox.py`; git on an agent's files, in `git.py`.

It imports `agents` and `permissions`. Begin with `Scene` in `base.py`, which is all that a runner is given.
"""
