"""Plain torch.distributed, without torchrun: every rank sends a tensor to rank 0 and gets an answer.

The environment of a PyTorchJob (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) is all that it needs.
"""

import torch
import torch.distributed as dist


def main() -> None:
    """Send, receive, compare."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        for peer in range(1, world):
            box = torch.zeros(1)
            dist.recv(box, src=peer)
            print(f"rank 0 received {box.item():g} from rank {peer}", flush=True)
            dist.send(box * 10, dst=peer)
    else:
        box = torch.full((1,), float(rank))
        dist.send(box, dst=0)
        dist.recv(box, src=0)
        print(f"rank {rank} received {box.item():g} from rank 0", flush=True)
        if box.item() != rank * 10:
            raise ValueError(f"rank {rank} received {box.item():g}, expected {rank * 10}")
    dist.barrier()
    print(f"rank {rank} of {world}: done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
