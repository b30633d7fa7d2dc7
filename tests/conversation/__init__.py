"""A conversation of 300 turns with facts planted in it, under each way of keeping a history small."""
