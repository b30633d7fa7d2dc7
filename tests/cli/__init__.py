"""The command line, as its users meet it: real processes, servers and terminals."""
