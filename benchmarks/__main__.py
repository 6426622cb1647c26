"""The table of fairness; each other module here measures something else and runs by its own name."""

from benchmarks.fairness import main

main()
