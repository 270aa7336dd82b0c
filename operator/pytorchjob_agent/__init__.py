"""The in-image elastic agent: reads the contract env, rendezvous, supervises the workers of one pod.

Runs with the standard library and the image's torch alone.
"""

__version__ = "0.1.0"
