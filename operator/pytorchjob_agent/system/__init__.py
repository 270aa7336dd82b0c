"""Helpers for Linux and the network that know nothing about jobs: process trees, signals, ports, cgroups, waiting.

May import `contract` only.
"""
