"""What is measured beside each other: Laneway, the floor under it, and what people would use instead."""
