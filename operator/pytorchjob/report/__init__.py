"""What `pytorchjob report` collects, without the secrets in it.

`collect` reads the cluster, `fields` lists the fields that are kept, `secrets` knows what a secret is, `redaction`
removes them, purely, and `archive` writes the file.
"""
