# SPDX-License-Identifier: Apache-2.0
"""The same as torch_multiprocessing with segments that grow: their physical memory goes over as descriptors."""
# env: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
from torch_multiprocessing import main

if __name__ == "__main__":
    main()
