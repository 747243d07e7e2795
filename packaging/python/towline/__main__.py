# SPDX-License-Identifier: Apache-2.0
"""The commands towline and towlined: this process becomes the program of that name."""

import os
import sys

from towline import BIN


def _become(name):
    os.execv(BIN / name, [name, *sys.argv[1:]])


def client():
    _become("towline")


def server():
    _become("towlined")


if __name__ == "__main__":
    client()
