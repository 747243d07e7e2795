# SPDX-License-Identifier: Apache-2.0
"""What the framework programs share: results as text that does not depend on where they were computed."""

import hashlib


def show(name, tensor):
    """A tensor's shape and the hash of its bits."""
    array = tensor.detach().cpu().contiguous() if hasattr(tensor, "detach") else tensor
    if hasattr(array, "view") and hasattr(array, "numpy"):
        import torch

        if array.dtype == torch.bfloat16:
            array = array.view(torch.int16)
        array = array.numpy()
    data = array.tobytes()
    print(f"{name} {tuple(array.shape)} {hashlib.sha256(data).hexdigest()[:16]}")
