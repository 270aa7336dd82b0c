"""Runs in a worker before its script: makes operations of what the script does with torch (`pytorchjob_shrink`).

`all_reduce`, `barrier` and `broadcast` of the default group become operations, and so do the gradients of a
DistributedDataParallel model, by a communication hook. The average counts the ranks that take part, or all shares of
the batch if the script takes them from `shares`. torch is not imported here: the functions are replaced when the script
imports torch.distributed.
"""

import inspect
import io
import os
import pickle
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from importlib import import_module
from typing import Any

_BESIDE = f"{__package__}." if __package__ else ""
_imports: Any = import_module(f"{_BESIDE}pytorchjob_after_import")
_backends: Any = import_module(f"{_BESIDE}pytorchjob_backends")
_collectives: Any = import_module(f"{_BESIDE}pytorchjob_collectives")
_saves: Any = import_module(f"{_BESIDE}pytorchjob_saves")
_shrink: Any = import_module(f"{_BESIDE}pytorchjob_shrink")
_PACKAGE, _C10D, _DDP = "torch.distributed", "torch.distributed.distributed_c10d", "torch.nn.parallel.distributed"
_CREATES, _JOIN = "_new_process_group_helper", "torch.distributed.algorithms.join"
_WITH_RANKS = ("reduce", "gather", "scatter", "send", "recv", "isend", "irecv")
"""Functions that take the number of a rank."""
_SAMPLE = 4096
"""Elements of each parameter that the ranks compare after a change, at most."""
_PRIME = (1 << 61) - 1


class _Default:
    """The default group of this process, once there is one whose ranks may go on."""

    def __init__(self, module: Any) -> None:
        """Take torch's module; there is no group yet."""
        self.c10d = module
        self.torch: Any = sys.modules["torch"]
        self.operations: Any = None
        self.refused = ""
        """Why the ranks cannot go on by themselves; empty: nothing speaks against it."""
        self.ready = False
        """Whether the gradients of a model are operations. Before, nothing is one."""
        self.all_reduce = module.all_reduce
        self.world = 0
        """Ranks of the group when the round began."""
        self.counts: Sequence[int] = ()
        """For each share of the batch, whether this rank does it in this step; empty: the script takes no shares."""
        self.included: Sequence[int] | None = None
        """For each share, whether the average that has just been made has it; None: nothing was averaged."""
        self.models: Any = weakref.WeakSet()
        """Those whose gradients are operations, or become some."""
        self.outside = bool(os.environ.get(_shrink.ENTERS))
        """Whether this rank is not in the others' group yet; it has one of its own."""
        self.send, self.receive = module.send, module.recv
        self.backend: Any = None
        """What the backend of the group does in its own way."""

    def begin(self) -> None:
        """The script has made its default group."""
        group = self.c10d._get_default_group()
        if self.operations is not None:
            self.operations.close()
        self.operations, self.ready, self.refused = None, False, ""
        rank, self.world = _own_place() if self.outside else (group.rank(), group.size())
        if self.world < 2 or not _shrink.address():
            return
        self.operations = _shrink.Operations(_shrink.address(), self._as_needed(rank))
        self.operations.on_change = _collectives.change
        if self.outside:
            return
        if decided := self.operations.settle(self.backend.problem(), group.size()):
            self.refuse(decided)

    def _as_needed(self, rank: int) -> Any:
        backend, store = self.backend, self.c10d._get_default_store()

        def claim(key: str, value: str) -> str:
            return str(store.compare_set(key, "", value).decode())

        def read(keys: Sequence[str], seconds: float) -> list[str] | None:
            try:
                store.wait([*keys], timedelta(seconds=seconds))
            except RuntimeError as error:
                if "timeout" not in str(error).lower():
                    raise
                return None
            return [store.get(key).decode() for key in keys]

        def has(keys: Sequence[str]) -> bool:
            return bool(store.check([*keys]))

        own = backend.handle, backend.form, backend.barrier, backend.leave, backend.has_lost
        return _shrink.Group(rank, self.world, store.set, claim, read, has, *own, _end)

    @property
    def divisor(self) -> int:
        """By what sums of gradients are divided: the ranks that take part, or the shares of the batch."""
        ranks = self.operations.ranks
        return self.world if self.counts or not ranks else len(ranks)

    def owned(self, shares: Sequence[int]) -> list[int]:
        """Return which of these shares of the batch this rank does."""
        ranks, rank = self.operations.ranks or range(self.world), self.operations.rank
        return [share for share in shares if _shrink.owner(share, ranks) == rank]

    def saved(self) -> None:
        """Hear that the script has written a checkpoint, or a file of one."""
        if self.operations is not None:
            self.operations.saved()

    def stop(self, problem: str) -> None:
        """Make no operations any more, as all ranks do at the same point of their script."""
        self.ready = False
        self.refuse(problem)

    def refuse(self, problem: str) -> None:
        """Tell the agent why the ranks of this job cannot go on by themselves."""
        self.refused = problem
        if self.operations is not None:
            self.operations.tell(problem=problem)

    def check_rank(self, operation: str, rank: Any) -> None:
        """Raise ShrinkError for a rank that the script names, if ranks have other numbers since one was lost."""
        if rank and self.operations is not None and self.operations.ranks:
            self.refuse("OperationNotRepeatable")
            raise _shrink.ShrinkError(f"{operation} with rank {rank}: a rank is lost, and ranks have other numbers now")

    def protects(self, group: Any, *, async_op: bool) -> bool:
        """Return whether a call for this group is an operation."""
        own = group is None or group is self.c10d.GroupMember.WORLD
        return self.ready and own and not async_op

    def compare(self, parameters: Sequence[Any]) -> None:
        """Raise ShrinkError if a sample of the parameters differs between the ranks that go on."""
        torch = self.torch
        own = torch.tensor([digest(torch, parameters)], dtype=torch.int64, device=self.backend.device)
        least, most = own.clone(), own.clone()
        self.all_reduce(least, op=self.c10d.ReduceOp.MIN)
        self.all_reduce(most, op=self.c10d.ReduceOp.MAX)
        if least.item() != most.item():
            self.operations.tell(problem="ParametersDiffer")
            raise _shrink.ShrinkError("a rank is lost, and the parameters of the others differ")
        self.operations.unchecked = False


def _end() -> None:
    """End this process at once."""
    words = "a rank is lost, and torch does not come back from the operation with it: this rank ends too"
    print(words, file=sys.stderr, flush=True)
    os._exit(1)


def digest(torch: Any, parameters: Sequence[Any]) -> int:
    """Return a number for the values of a sample of these parameters, equal for equal bits."""
    found = 0
    with torch.no_grad():
        for parameter in parameters:
            flat = parameter.detach().reshape(-1)
            sample = flat[:: max(flat.numel() // _SAMPLE, 1)].contiguous().view(torch.uint8).to(torch.int64)
            weights = torch.arange(sample.numel(), dtype=torch.int64, device=sample.device) % 251 + 1
            found = (found * 31 + int((sample * weights).sum())) % _PRIME
    return found


class _Bucket:
    """The gradients that DistributedDataParallel reduces together."""

    def __init__(self, bucket: Any) -> None:
        """Keep what is needed to begin again. The gradients of the parameters stay until the hook has answered."""
        self.buffer, self._views = bucket.buffer(), bucket.gradients()
        self._gradients = [parameter.grad for parameter in bucket.parameters()]
        devices = [self.buffer.device] if self.buffer.is_cuda else []
        self.future: Any = sys.modules["torch"].futures.Future(devices=devices)
        self.work: Any = None
        self.sparse = self.buffer.is_sparse
        separate = not self.sparse and all(
            _is_beside(own, view) for own, view in zip(self._gradients, self._views, strict=True)
        )
        self._input = None if separate else self.buffer.clone()

    def restore(self) -> None:
        """Bring back the input."""
        self.work = None
        if self._input is not None:
            self.buffer.copy_(self._input)
            return
        for view, own in zip(self._views, self._gradients, strict=True):
            view.copy_(own)

    def begin(self, default: _Default) -> None:
        """Begin to average. Raises RuntimeError."""
        self.buffer.mul_(1.0 / default.divisor)  # as DistributedDataParallel does it, to the bit
        self.work = default.all_reduce(self.buffer, async_op=True)


def _is_beside(gradient: Any, view: Any) -> bool:
    """Return whether this is the same gradient in memory of its own, in the same order."""
    return (
        gradient is not None
        and gradient.is_contiguous()
        and gradient.shape == view.shape
        and gradient.dtype == view.dtype
        and gradient.data_ptr() != view.data_ptr()
    )


class _Gradients:
    """The gradients of one model: those of a backward pass are one operation."""

    def __init__(self, default: _Default, model: Any) -> None:
        """Register the communication hook."""
        self._default = default
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._buckets: list[_Bucket] = []
        model.register_comm_hook(None, lambda _, bucket: self.reduce(bucket))  # torch reads annotations
        model._comm_hooks.pop()  # it could not be copied or pickled with the model

    def reduce(self, bucket: Any) -> Any:
        """Begin with a bucket; with the last one, end all of them. They keep their input until then."""
        if bucket.index() == 0:
            self._buckets.clear()
        operations = self._default.operations
        self._buckets.append(_Bucket(bucket))
        added = self._buckets[-1]
        if not self._default.ready:  # as without us, until all ranks have ended a backward pass
            self._begin_operations(bucket, added)
            added.begin(self._default)
            done: Any = added.work.get_future()
            return done.then(lambda future: future.value()[0])
        if not operations.stale and not operations.unchecked:  # the comparison comes first, at all ranks
            with suppress(RuntimeError):  # it begins again below
                added.begin(self._default)
        if bucket.is_last():
            buckets, self._buckets = self._buckets, []
            counts = self._default.counts
            included = operations.run("gradients", lambda again: self._end(buckets, again), steps=True, counts=counts)
            self._default.included = included
            for each in buckets:
                each.future.set_result(each.buffer)
        return added.future

    def _begin_operations(self, bucket: Any, added: _Bucket) -> None:
        """With the last gradients of a backward pass, which is at the same point in all ranks, operations begin."""
        if added.sparse:
            self._default.refuse("ModelNotSupported")
        if bucket.is_last() and not self._default.refused:
            self._default.ready = True
            self._default.operations.tell(ready=True)

    def _end(self, buckets: Sequence[_Bucket], again: bool) -> None:
        operations = self._default.operations
        if operations.unchecked:
            self._default.compare(self._parameters)
        for each in buckets:
            if again or each.work is None:
                each.restore()
                each.begin(self._default)
        works = [each.work for each in buckets]
        for each in buckets:
            each.work = None
        for work in works:
            work.wait()


def _protect(default: _Default, module: Any) -> None:
    """Replace the collectives that can be repeated."""
    all_reduce, barrier, broadcast = module.all_reduce, module.barrier, module.broadcast
    total, of_broadcast = module.ReduceOp.SUM, inspect.signature(broadcast)

    def protected_all_reduce(tensor: Any, op: Any = total, group: Any = None, async_op: Any = False) -> Any:
        if not default.protects(group, async_op=async_op):
            return all_reduce(tensor, op, group, async_op)
        kept = tensor.detach().clone()

        def attempt(again: bool) -> None:
            if again:
                tensor.detach().copy_(kept)
            all_reduce(tensor, op, group)

        default.operations.run(f"all_reduce {[*tensor.shape]}", attempt)
        return None

    def protected_barrier(group: Any = None, async_op: Any = False, device_ids: Any = None) -> Any:
        if not default.protects(group, async_op=async_op):
            return barrier(group, async_op, device_ids)
        default.operations.run("barrier", lambda _: None)  # each operation has one behind it
        return None

    def protected_broadcast(tensor: Any, *args: Any, **options: Any) -> Any:
        given = of_broadcast.bind(tensor, *args, **options).arguments
        root = given.get("src")
        root = given.get("group_src") if root is None else root
        if not default.protects(given.get("group"), async_op=given.get("async_op", False)):
            default.check_rank("broadcast", root)
            return broadcast(tensor, *args, **options)
        kept = tensor.detach().clone()

        def attempt(again: bool) -> None:
            default.check_rank("broadcast", root)
            if again:
                tensor.detach().copy_(kept)
            broadcast(tensor, *args, **options)

        default.operations.run(f"broadcast {[*tensor.shape]}", attempt, root or 0)
        return None

    for name in _WITH_RANKS:
        _replace(module, getattr(module, name), _checked(default, getattr(module, name)))
    _replace(module, all_reduce, protected_all_reduce)
    _replace(module, barrier, protected_barrier)
    _replace(module, broadcast, protected_broadcast)


def _checked(default: _Default, call: Any) -> Any:
    """Return the same function, which refuses ranks that have other numbers now."""
    known = inspect.signature(call)

    def checked(*args: Any, **options: Any) -> Any:
        if default.operations is not None and default.operations.ranks:
            given = known.bind(*args, **options).arguments
            for name in ("src", "dst", "group_src", "group_dst"):
                default.check_rank(call.__name__, given.get(name))
        return call(*args, **options)

    return checked


def _protect_buffers(default: _Default) -> None:
    """Make an operation of the broadcast of a model's buffers, which comes before each forward pass."""
    package: Any = sys.modules[_PACKAGE]
    broadcast = package._broadcast_coalesced

    @wraps(broadcast)
    def protected(group: Any, tensors: Any, size: Any, root: int = 0) -> Any:
        whole = group is default.c10d._get_default_group()
        if not (default.ready and whole) or root:  # the first one comes with all parameters, when a model is made
            return broadcast(group, tensors, size, root)
        kept = [tensor.detach().clone() for tensor in tensors]

        def attempt(again: bool) -> None:
            for tensor, own in zip(tensors, kept if again else (), strict=False):
                tensor.detach().copy_(own)
            broadcast(group, tensors, size, root)

        default.operations.run(f"buffers {len(tensors)}", attempt, root)
        return None

    package._broadcast_coalesced = protected


def _replace(module: Any, original: Any, function: Any) -> None:
    """Replace a function of this module, also where its package offers it already, as in a warm worker."""
    replacement: Any = wraps(original)(function)
    replacement._torchdynamo_disable = True
    name: str = original.__name__
    for place in (module, sys.modules.get(_PACKAGE)):
        if place is not None and vars(place).get(name) is original:
            setattr(place, name, replacement)


def _own_place() -> tuple[int, int]:
    """Return this rank and how many there are, as its agent says."""
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _begin_outside(begins: Any, module: Any, args: Any, options: Any) -> Any:
    """Make the default group with this rank alone: the script prepares in it until the rank comes into the others'.

    Its store is the others': there all of them meet when they form the larger group.
    """
    given = inspect.signature(begins).bind(*args, **options).arguments
    url, store = given.pop("init_method", None) or "env://", given.pop("store", None)
    for name in ("world_size", "rank"):
        given.pop(name, None)
    if store is None:  # as torch does it
        store, _, _ = next(module.rendezvous(url, *_own_place()))
        store = module.PrefixStore("default_pg", store)
    return begins(**given, store=store, rank=0, world_size=1)


def _number_outside(default: _Default, module: Any) -> None:
    """Let the script see the place that this rank is going to have, while it is in a group of its own."""
    for position, call in enumerate((module.get_rank, module.get_world_size)):

        def placed(group: Any = None, call: Any = call, position: int = position) -> Any:
            whole = group is None or group is module.GroupMember.WORLD
            return _own_place()[position] if default.outside and whole else call(group)

        _replace(module, call, placed)


def _given(call: Any, args: Any, options: Any) -> dict[str, Any]:
    """Return the arguments by name; nothing if they do not fit, which the call itself says."""
    with suppress(TypeError):
        return dict(inspect.signature(call).bind(*args, **options).arguments)
    return {}


def _follow_groups(default: _Default, module: Any) -> None:
    """Learn of the default group, and of others, which cannot lose a rank."""
    begins, creates = module.init_process_group, getattr(module, _CREATES)

    def init_process_group(*args: Any, **options: Any) -> Any:
        default.backend = backend = _backends.choose(module, default.all_reduce, _given(begins, args, options))
        if default.outside:
            result = _begin_outside(begins, module, args, options)
        else:
            result = begins(*args, **options, **backend.options)
        backend.begin()
        try:
            default.begin()
        except Exception as error:  # training goes on without it
            default.operations = None
            print(f"pytorchjob-agent: the ranks cannot go on without a lost one: {error}", file=sys.stderr)
        return result

    @wraps(creates)
    def create(*args: Any, **options: Any) -> Any:
        several = module.is_initialized()
        result = creates(*args, **options)
        if several:
            default.refuse("SeveralGroups")
        return result

    _replace(module, begins, init_process_group)
    setattr(module, _CREATES, create)  # all ways to make a group look it up here


_default: list[_Default] = []


def _watch(module: Any) -> None:
    default = _Default(module)
    _default[:] = [default]
    _saves.after_save.append(default.saved)
    if default.outside:
        _number_outside(default, module)
    _follow_groups(default, module)
    _protect(default, module)


def _hook_models(module: Any) -> None:
    """Register the hook before the first forward pass of a model: until then the script may register its own."""
    if not _default:
        return
    _protect_buffers(_default[0])
    prepare = module.DistributedDataParallel._pre_forward
    torch: Any = sys.modules["torch"]

    @wraps(prepare)
    def pre_forward(self: Any, *inputs: Any, **options: Any) -> Any:
        if _default and _default[0].operations is not None and self not in _default[0].models:
            problem = "ModelCompiled" if torch.compiler.is_compiling() else _problem(self, _default[0])
            _default[0].models.add(self)
            if problem:
                _default[0].refuse(problem)
            else:
                _Gradients(_default[0], self)
        return prepare(self, *inputs, **options)

    module.DistributedDataParallel._pre_forward = pre_forward


def may_go_on() -> bool:
    """Return whether nothing that this rank has done keeps its round from going on (`script/surviving`)."""
    default = _default[0] if _default else None
    return default is not None and default.operations is not None and not default.refused


def shares(model: Any) -> Iterator[int] | None:
    """Return the shares of the batch that this rank does in this step (`script/surviving`); None: nothing is known."""
    default = _default[0] if _default else None
    if default is None or default.operations is None:
        return None
    if default.refused:
        return iter([default.operations.rank])
    if not hasattr(model, "require_backward_grad_sync"):
        raise TypeError(f"shares: {type(model).__name__} is no DistributedDataParallel model")
    if not model.require_backward_grad_sync:
        raise RuntimeError("shares: it was called within no_sync(), so what a lost rank has added would be lost")
    return _shares(default, model)


def _shares(default: _Default, model: Any) -> Iterator[int]:
    own = default.owned(range(default.world))
    default.counts, default.included = [int(share in own) for share in range(default.world)], None
    try:
        with model.no_sync():
            yield from own[:-1]
        yield own[-1]
        yield from _missing(default, model)
    finally:
        default.counts = ()


def _missing(default: _Default, model: Any) -> Iterator[int]:
    """Yield the shares that were lost with a rank in this step, and add their gradients to the average."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    while missing := [share for share, count in enumerate(default.included or ()) if not count]:
        averages = [each.grad for each in parameters]
        for each in parameters:
            each.grad = None
        own, synchronizes = default.owned(missing), model.require_forward_param_sync
        model.require_forward_param_sync = False  # ranks that do no share here would not take part
        with model.no_sync():
            yield from own
        model.require_forward_param_sync = synchronizes
        sums = [default.torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        for each, average in zip(parameters, averages, strict=True):
            each.grad = average
        added = _sum(default, sums, [int(share in own) for share in range(default.world)])
        default.included = [before + now for before, now in zip(default.included or (), added, strict=True)]
        for each, total in zip(parameters, sums, strict=True):
            if each.grad is not None:
                each.grad.add_(total)
            elif total.any():
                each.grad = total


def _sum(default: _Default, gradients: Sequence[Any], counts: Sequence[int]) -> Sequence[int]:
    """Sum gradients over the ranks, divided like the average; returns how often each share is in them."""
    kept = [each.mul_(1.0 / default.world).clone() for each in gradients]

    def attempt(again: bool) -> None:
        for each, own in zip(gradients, kept, strict=True):
            if again:
                each.copy_(own)
            default.all_reduce(each)

    found: Sequence[int] = default.operations.run("missing gradients", attempt, counts=counts)
    return found


def steps(numbers: range, state: Sequence[Any]) -> Iterator[int] | None:
    """Return the script's steps, before each of which lost ranks may come back (`script/surviving`); None: none can."""
    default = _default[0] if _default else None
    if default is None or default.operations is None or default.refused or not default.backend.takes_in:
        return None
    return _steps(default, numbers, state)


def _steps(default: _Default, numbers: range, state: Sequence[Any]) -> Iterator[int]:
    first = numbers.start
    if default.outside:
        first = default.operations.come_in()
        default.outside = False
        _load(state, _receive(default))
    default.operations.tell(shares_state=True)
    for step in numbers[numbers.index(first) :] if first in numbers else ():
        if default.operations.enters and default.operations.open(step):
            new = default.operations.entered
            _begin_again(default)
            if default.operations.rank == 0:
                for rank in new:
                    _send(default, [each.state_dict() for each in state], rank)
        yield step


def _begin_again(default: _Default) -> None:
    """Bring all models to where they are before their first backward pass, as they are at a rank that comes in.

    In that pass all ranks together decide anew which gradients they reduce together.
    """
    default.ready = False
    default.operations.tell(ready=False)
    for model in default.models:
        parameters, sparse = model._build_params_for_reducer()
        names = model._build_debug_param_to_name_mapping(parameters)
        model._ddp_init_helper(parameters, sparse, names, model.static_graph)
    default.models.clear()


def _send(default: _Default, state: Sequence[Any], rank: int) -> None:
    """Send a state to the rank at this place of the group."""
    torch, tensors, data = default.torch, [], io.BytesIO()

    class Pickler(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return None
            tensors.append(value.detach().cpu().contiguous())
            return len(tensors) - 1, value.dtype, tuple(value.shape)

    Pickler(data).dump(state)
    words = torch.frombuffer(bytearray(data.getvalue()), dtype=torch.uint8)
    for each in (torch.tensor([words.numel()]), words, *tensors):
        if each.numel():
            default.send(each, group_dst=rank)


def _receive(default: _Default) -> Any:
    """Return the state that rank 0 sends."""
    torch, tensors = default.torch, []
    size = torch.zeros(1, dtype=torch.int64)
    default.receive(size, group_src=0)
    data = bytearray(int(size.item()))
    default.receive(torch.frombuffer(data, dtype=torch.uint8), group_src=0)  # an image may have no numpy

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, name: Any) -> Any:
            _, dtype, shape = name
            tensors.append(torch.empty(shape, dtype=dtype))
            return tensors[-1]

    found = Unpickler(io.BytesIO(data)).load()
    for each in tensors:
        if each.numel():
            default.receive(each, group_src=0)
    return found


def _load(state: Sequence[Any], values: Sequence[Any]) -> None:
    for each, value in zip(state, values, strict=True):
        each.load_state_dict(value)


def _stop_at_join(module: Any) -> None:
    """Ranks that have no more batches shadow the collectives of the others, and know nothing of ours."""
    enter = module.Join.__enter__

    @wraps(enter)
    def entered(self: Any) -> Any:
        if _default:
            _default[0].stop("ModelNotSupported")
        return enter(self)

    module.Join.__enter__ = entered


def _problem(model: Any, default: _Default) -> str:
    """Return why the gradients of this model are no operation; empty: they are."""
    if model.process_group is not default.c10d._get_default_group():
        return "SeveralGroups"
    if model._comm_hooks:
        return "CommunicationHook"
    if model._join_config.enable or model.static_graph:
        return "ModelNotSupported"
    if model.mixed_precision is not None or model._use_python_reducer or model._delay_all_reduce_all_params:
        return "ModelNotSupported"
    return str(default.refused)


def register() -> bool:
    """Make operations from now on, if the environment names an agent that knows them; True if so."""
    if not _shrink.address():
        return False
    _imports.after_import([_C10D], _watch)
    _imports.after_import([_DDP], _hook_models)
    _imports.after_import([_JOIN], _stop_at_join)
    return True
