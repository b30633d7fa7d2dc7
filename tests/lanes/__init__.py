"""What lanes hold under fire: order, exactly-once outcomes, cancellation, endless lanes."""
