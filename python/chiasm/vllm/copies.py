"""The seam between a worker and the memory that its encoder outputs are in.

`HostCopies` is for engines on CPU: plain copies in native code, done when the call returns.
`device_copies.DeviceCopies` is for accelerators. Both report every order exactly once.
"""

from typing import TYPE_CHECKING, Protocol

import torch

from chiasm.vllm.logs import logger

if TYPE_CHECKING:
    from chiasm._native import Order, Worker


class Copies(Protocol):
    """Copies between tensors and the region. Every order is reported, also where a call raises."""

    def save(self, order: "Order", tensor: torch.Tensor) -> None:
        """Copies the tensor into the region, now or soon. It may be freed right after the call."""

    def load(self, order: "Order") -> torch.Tensor:
        """A tensor of `order.rows` x `order.width` that holds the entry by the time that the
        current stream uses it."""

    def shutdown(self) -> None:
        """Waits for the copies that are under way and lets go of the region."""


class HostCopies:
    """Copies in host memory."""

    def __init__(self, worker: "Worker", dtype: torch.dtype) -> None:
        self._worker = worker
        self._dtype = dtype

    def save(self, order: "Order", tensor: torch.Tensor) -> None:
        """See `Copies`."""
        if not fits(order, tensor):
            self._worker.complete(order, False)
            return
        source = tensor.detach().contiguous()
        self._worker.save(order, source.data_ptr(), source.nbytes)

    def load(self, order: "Order") -> torch.Tensor:
        """See `Copies`."""
        target = torch.empty((order.rows, order.width), dtype=dtype_of(order, self._dtype))
        self._worker.load(order, target.data_ptr(), target.nbytes)
        return target

    def shutdown(self) -> None:
        """Nothing is ever under way."""


def dtype_of(order: "Order", otherwise: torch.dtype) -> torch.dtype:
    """The entry's element type; the model's where a peer has not said it."""
    named = getattr(torch, (order.dtype or "").removeprefix("torch."), None)
    return named if isinstance(named, torch.dtype) else otherwise


def fits(order: "Order", tensor: torch.Tensor) -> bool:
    """Whether this is the encoder output that the order was made for. What is not is not saved: it
    was announced in another shape."""
    of_rows = tensor.dim() > 0 and tensor.shape[-1] == order.width
    if of_rows and tensor.numel() == order.rows * order.width and tensor.nbytes == order.nbytes:
        return True
    logger.warning(
        "an encoder output of shape %s (%s, %d bytes) is not saved: %d x %d elements (%d bytes) "
        "were expected from the placeholders and the width that vLLM measured",
        tuple(tensor.shape),
        tensor.dtype,
        tensor.nbytes,
        order.rows,
        order.width,
        order.nbytes,
    )
    return False
