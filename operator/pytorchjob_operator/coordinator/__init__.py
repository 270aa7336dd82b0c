"""The coordinator: agents dial in, `rounds` decides, this is the shell around it. A thread of its own; no cluster."""
