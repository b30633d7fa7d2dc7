"""Whole turns: what survives kills, failures and bad input."""
