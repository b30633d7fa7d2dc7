"""The demo: a conversation about the files of a folder, whose worker is killed and whose servers are stopped."""
