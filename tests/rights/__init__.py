"""Compares the operator's rights with its requests: what the chart grants, the end-to-end tests use, verb by verb.

`granted` reads roles and bindings, `requests` the API server's audit log. `compare` is pure and returns the
differences, `table` the text. `exceptions` lists the rights that the end-to-end tests cannot use. Only `__main__`
touches the cluster and files.
"""
