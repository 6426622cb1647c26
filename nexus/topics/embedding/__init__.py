"""Semantic search: messages become vectors, and the nearest ones are found. Needs the extra `semantic`.

`source` has the model, `local` runs it, `background` makes the vectors, `index` finds which are missing, `vectors`
compares them. A hub without semantic search imports none of its libraries.
"""
