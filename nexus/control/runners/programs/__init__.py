"""Small programs that a runner starts by their file, with the standard library alone: none of ours is loaded there."""
