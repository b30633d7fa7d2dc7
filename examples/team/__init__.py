"""A research lead and its readers: work handed out over the files of a folder, and a report that needs approval."""
