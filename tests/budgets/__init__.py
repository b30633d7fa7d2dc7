"""Budgets: what may be asked of a model, and what may be spent on it."""
