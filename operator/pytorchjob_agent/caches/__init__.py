"""The caches of torch.compile, Triton, CUDA and Hugging Face in a pod, and their copies for new pods."""
