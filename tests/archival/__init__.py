"""Exact archival: what gives way to a checkpoint, and how it is read back."""
