"""Search by meaning: messages become vectors, and the nearest of them are found. Needs nexus-hub[semantic].

`source` has the model, `encoder` runs a local one, `remote` asks a service, `worker` makes the vectors, `index` knows
which are missing, `vectors` compares them. Whoever does not use it loads none of its libraries.
"""
