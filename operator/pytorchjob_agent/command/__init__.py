"""From the command line to torch: the first process of a pod, the launcher's process and what it launches.

The top of the agent. May import every other package but `standalone`.
"""
