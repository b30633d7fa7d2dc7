"""Tests of the tests' own model provider."""
