"""Work that agents hand to other agents."""
