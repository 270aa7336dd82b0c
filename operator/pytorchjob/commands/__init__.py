"""One module for each command: it reads the options, calls the rest of the package, and chooses the exit status."""
