"""What Laneway costs, measured: `python -m bench`, or `python -m bench --smoke` for a small run of each."""
