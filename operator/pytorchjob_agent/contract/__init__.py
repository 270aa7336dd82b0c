"""What operator and agent agree on: a pod's environment, wire messages, exit codes, termination message, hang rules.

Pure values, parsed and printed. The operator imports this package of the agent and no other. It may import the
standard library and itself only.
"""
