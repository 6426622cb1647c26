"""Runners of turns. Each kind is a module of that name, imported when the first turn needs it."""
