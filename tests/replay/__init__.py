"""Histories that the lane workflow has written, replayed by the workflow as it is now."""
