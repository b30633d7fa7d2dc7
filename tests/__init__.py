"""Tests of Laneway."""
