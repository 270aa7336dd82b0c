"""Draws the pictures of the terminal in docs/pictures from real runs: `make pictures`."""
