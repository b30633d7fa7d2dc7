"""The lane workflow: deterministic, small, and without I/O."""
