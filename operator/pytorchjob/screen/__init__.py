"""Values become text: rich on a terminal, plain text for a pipe, and kubectl's formats of objects."""
