"""What the operator and the agent agree on: environment, wire messages, exit codes, settings of hangs and starts.

Pure values: parse and print, nothing else. The operator imports this package of the agent and no other. Imports nothing
but the standard library and itself.
"""
