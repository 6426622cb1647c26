"""That there is no search by meaning now."""


class Unavailable(Exception):
    """Why not, and what to do, in sentences for whoever searched."""


class Refused(Unavailable):
    """The model takes this text at no length, and others it takes."""
