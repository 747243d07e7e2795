# SPDX-License-Identifier: Apache-2.0
"""The table: every form, and which ones the assembler has refused for sm_90 (refused.txt says why)."""

import pathlib

import forms_float
import forms_int
import forms_memory
import forms_more
import forms_texture
import forms_warp

HERE = pathlib.Path(__file__).resolve().parent
REFUSED = HERE / "refused.txt"
KNOWN = HERE / "known.txt"


def candidates():
    """All forms, also those that sm_90 does not have, each name once."""
    seen = {}
    for part in (forms_int, forms_float, forms_memory, forms_warp, forms_texture, forms_more):
        for form in part.forms():
            if form.name in seen:
                continue
            seen[form.name] = form
    return list(seen.values())


def refused():
    if not REFUSED.exists():
        return {}
    lines = (line.split("\t", 1) for line in REFUSED.read_text().splitlines() if not line.startswith("#"))
    return {name: reason for name, reason in lines}


def known():
    """Forms that are known to differ from the recorded GPU, and why that stays."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def table():
    gone = refused()
    return [form for form in candidates() if form.name not in gone]
