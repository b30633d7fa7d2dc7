"""Laneway: the place where long-running agents live."""
