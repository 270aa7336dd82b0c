"""The worker of the launcher's tests: the first argument says how it behaves; none of it needs torch but `reduce`."""

import os
import signal
import subprocess
import sys
import time

what, rank = sys.argv[1], os.environ["RANK"]
if what == "reduce":
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    port, libuv = os.environ["MASTER_PORT"], os.environ.get("USE_LIBUV", "default")
    print(f"rank={rank} sum={total.item():g} libuv={libuv} port={port}", flush=True)
    dist.destroy_process_group()
elif what == "once":  # fails in the first round alone
    print(f"round {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
    sys.exit(rank == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0")
elif what == "missing module":
    print("starts", flush=True)
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401
elif what == "usage":
    print("starts", flush=True)
    sys.exit(2)
elif what == "value":
    print("starts", flush=True)
    raise ValueError("no two are alike")
elif what == "busy":
    subprocess.Popen(["sleep", "600"], start_new_session=True)  # a helper out of the worker's own group
    print("busy", flush=True)
    time.sleep(600)
elif what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(600)
elif rank != "1":
    time.sleep(600)
elif what == "raise":
    raise ValueError("no such luck")
elif what == "exit":
    sys.exit(17)
elif what == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
