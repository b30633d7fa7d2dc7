"""Turns that wait for answers from outside."""
