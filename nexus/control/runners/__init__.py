"""Runners: what takes a turn. A kind is a module of its name, loaded when the first turn needs it."""
