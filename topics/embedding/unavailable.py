"""That there is no search by meaning now."""


class Unavailable(Exception):
    """Why not, and what to do, in sentences for whoever searched."""
