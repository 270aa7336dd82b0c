"""The caches of torch.compile, Triton, CUDA and Hugging Face in a pod, and their copies for new pods: an extension.

`settings` says where the libraries keep them, `machine` and `pod` what the key of a cache is made of, `directory` and
`listing` what is offered, `sources` and `exchange` bring them to a new pod. `round_caches` is
what the core calls.
"""
