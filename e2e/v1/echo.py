"""Each process says what torchrun told it, then meets the others."""

import os

import torch.distributed as dist

TOLD = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RESTART_COUNT")


def main() -> None:
    """Echo, and wait for everybody."""
    print(" ".join(f"{name}={os.environ[name]}" for name in TOLD), flush=True)
    dist.init_process_group("gloo")
    dist.barrier()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: met everybody", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
