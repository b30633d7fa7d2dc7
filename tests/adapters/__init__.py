"""Adapters, against the frameworks that they adapt."""
