"""What can be known before the first rendezvous: is this image, machine and environment fit for the job?

`read` and its helpers look, `checks` judges, `policy` says what a problem means; `gate` is for `run`.
"""
