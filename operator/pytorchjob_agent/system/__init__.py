"""What Linux and the network offer, without a word about jobs: process trees, signals, ports, cgroups, waiting.

May import nothing of the agent but `contract`.
"""
