"""Chaos: turns on many lanes while everything under them is killed, frozen and restarted; then a proof of what is left.

    python -m tests.chaos --seconds 60 --seed 7 --json

`script` says what the scripted agents answer, `agents` and `worker` run them, `callers` submit turns, `faults` does the
damage, `collect` writes down what Redis and Temporal hold, and the checker (`evidence`, `judge_*`) proves from files
alone that nothing was lost, repeated or half-written. `docs/chaos.md` says what is proved, and how.
"""
