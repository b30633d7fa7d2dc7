"""History editing in turns: what is sent, what is kept, and what an edit leaves behind."""
