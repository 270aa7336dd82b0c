"""What `pytorchjob report` collects, without the secrets in it. `redaction` is pure; `collect` reads the cluster."""
