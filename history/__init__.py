"""Conversation history: checkpoints, groups, origins, editing, validation and budgets; pure but for the store."""
