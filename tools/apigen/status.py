# SPDX-License-Identifier: Apache-2.0
"""docs/api-status.md: which functions work, and why the others do not."""

REASONS = {
    "graphics": "Graphics interop needs the display driver of the machine that draws.",
    "external": "External memory and semaphores are handles of the client's own kernel; "
                "no other machine can open them.",
    "checkpoint": "Checkpointing a process with its driver is a matter of the process that owns the GPU, "
                  "which is the server's worker.",
    "coredump": "GPU core dumps are written by the driver in the server's process.",
    "texref": "Texture and surface references were removed from the toolkit; texture objects replace them.",
    "32bit": "The entry has 32-bit sizes and addresses; no 64-bit program can use it with today's GPUs.",
    "rdma": "Direct access of other devices to GPU memory is only possible on the GPU's own machine.",
    "notification": "Notifications about memory of other processes concern the server's machine.",
    "hmm": "Unified function pointers need memory that CPU and GPU share by hardware.",
    "removed": "NVIDIA removed the feature.",
    "pending": "Not written yet.",
}


def _how(f):
    if f.stub:
        return "refused"
    if f.local:
        return "local"
    return "no reply" if "async" in f.flags else "reply"


def page(model):
    lines = ["# Driver functions", "",
             "Made from `api/*.api` by `tools/apigen`; CI proves that it is current.", ""]
    count = len(model.functions)
    variants = sum(1 for f in model.functions if f.variant)
    refused = sum(1 for f in model.functions if f.stub)
    lines.append(f"{count} functions ({count + variants} exported symbols with their per-thread-stream "
                 f"variants): {count - refused} implemented, {refused} refused.")
    lines += ["", "## Refused, by reason", ""]
    for reason, text in REASONS.items():
        names = [f.name for f in model.functions if f.stub and f.reason == reason]
        if names:
            lines += [f"**{text}** ({len(names)})", "", ", ".join(f"`{n}`" for n in names) + ".", ""]
    lines += ["## All functions", ""]
    for family in model.families:
        lines += [f"### {family.name}", "",
                  "| number | function | how | what it does |", "|---|---|---|---|"]
        for f in family.functions:
            lines.append(f"| {f.number} | `{f.name}` | {_how(f)} | {f.doc} |")
        lines.append("")
    return "\n".join(lines)
