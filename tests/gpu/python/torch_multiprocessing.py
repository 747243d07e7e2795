# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of one process in another: sent through a queue, changed there, seen here; and the other way."""
import torch
import torch.multiprocessing as mp
from common import show

ROUNDS = 5


def child(inbox, outbox):
    torch.cuda.init()
    while (got := inbox.get()) is not None:
        name, tensor = got
        seen = tensor.sum(dtype=torch.float64).item()
        if name == "copied":
            tensor.copy_(torch.arange(tensor.numel(), dtype=tensor.dtype))
        else:
            tensor.mul_(2).add_(1)
        torch.cuda.synchronize()
        shape = tuple(tensor.shape)
        del tensor, got
        outbox.put((name, shape, seen))
    own = torch.arange(1 << 16, dtype=torch.int32, device="cuda") * 3
    outbox.put(own)
    inbox.get()  # the memory is the child's: it stays until the parent has let go


def main():
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(there, back))
    process.start()
    big = torch.arange(3_000_000, dtype=torch.float32, device="cuda").reshape(1000, 3000)
    tensors = {"copied": torch.zeros(1 << 16, device="cuda"), "small": torch.ones(7, device="cuda"),
               "big": big, "a view": big[10:20, ::3],
               "half": torch.full((33, 5), 0.5, dtype=torch.float16, device="cuda")}
    for name, tensor in tensors.items():
        there.put((name, tensor))
        print(*back.get())
        show(name, tensor)
    counter = torch.zeros(1 << 20, dtype=torch.int64, device="cuda")
    for i in range(ROUNDS):  # what is queued here comes before what the child does, without waiting
        counter += 1
        there.put(("counter", counter))
        print(*back.get())
    show("counter", counter)
    there.put(None)
    own = back.get()
    print("from the child", own.device.type, own.dtype, own.sum().item())
    del own
    there.put(None)
    process.join()
    print("exit", process.exitcode)


if __name__ == "__main__":
    main()
