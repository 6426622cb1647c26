"""What an agent of the pool may do, and what it may spend.

Rules are pure functions over plain values; the operators' own rules and budgets are read at each decision.
`members` says who may act on an agent.

It imports the app's models, settings and errors, and no other package of the pool. Begin with `decide` in `rules.py`;
`operator_rules.py` has the rules that operators write.
"""
