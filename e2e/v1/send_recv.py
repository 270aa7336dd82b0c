"""Rank 0 sends everybody a matrix and gets its square back: once blocking, once not."""

import torch
import torch.distributed as dist


def blocking(rank: int, world: int) -> None:
    """Serve one peer after the other."""
    for peer in range(1, world) if rank == 0 else ():
        asked, answer = torch.full((2, 2), float(peer)), torch.zeros(2, 2)
        dist.send(asked, dst=peer)
        dist.recv(answer, src=peer)
        check(answer, peer, "blocking")
    if rank:
        box = torch.zeros(2, 2)
        dist.recv(box, src=0)
        dist.send(box * box, dst=0)


def non_blocking(rank: int, world: int) -> None:
    """Serve all peers at the same time."""
    if rank:
        box = torch.zeros(2, 2)
        dist.irecv(box, src=0).wait()
        dist.isend(box * box, dst=0).wait()
        return
    answers = {peer: torch.zeros(2, 2) for peer in range(1, world)}
    sent = [dist.isend(torch.full((2, 2), float(peer)), dst=peer) for peer in answers]
    received = [dist.irecv(box, src=peer) for peer, box in answers.items()]
    for work in (*sent, *received):
        work.wait()
    for peer, answer in answers.items():
        check(answer, peer, "non-blocking")


def check(answer: torch.Tensor, peer: int, how: str) -> None:
    """Every peer squares its own rank."""
    if not bool((answer == peer * peer).all()):
        raise ValueError(f"{how}: rank {peer} answered {answer.tolist()}, expected {peer * peer} everywhere")
    print(f"{how}: rank {peer} answered {peer * peer}", flush=True)


def main() -> None:
    """Meet by the environment, as every job does."""
    dist.init_process_group("gloo", init_method="env://")
    rank, world = dist.get_rank(), dist.get_world_size()
    blocking(rank, world)
    non_blocking(rank, world)
    dist.barrier()
    print(f"rank {rank} of {world}: done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
