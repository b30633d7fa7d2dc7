"""The steps of a turn: adapters to the agent frameworks, staging, commit and abort."""
