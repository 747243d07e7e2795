#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes everything that is derived from the API table.

    apigen.py --api api --out build/gen                 all generated sources
    apigen.py --api api --out build/gen --only FAMILY   those of one family
    apigen.py --api api --out build/gen --only all      those that need all families
    apigen.py --api api --status docs/api-status.md     the status page
    apigen.py --api api --families                      the families, one name a line
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import abi  # noqa: E402
import cgen  # noqa: E402
import client  # noqa: E402
import driver  # noqa: E402
import golden  # noqa: E402
import record  # noqa: E402
import server  # noqa: E402
import status  # noqa: E402
import table  # noqa: E402


def of_family(model, family):
    """What is derived from one family's table and the types."""
    name = family.name
    return {
        f"{name}.h": abi.family_header(family),
        f"{name}_client.h": client.family_header(family),
        f"{name}_server.h": server.family_header(family),
        f"{name}_client.c": client.source(model, family),
        f"{name}_server.c": server.source(model, family),
        f"{name}_driver.c": driver.family_source(family),
        f"{name}_golden.c": golden.family_source(model, family),
    }


def of_all(model):
    """What is derived from all families together."""
    return {
        "cuda_types.h": abi.types_header(model),
        "cuda_abi.h": abi.header(model),
        "abi_check.h": abi.check(model),
        "error_names.h": client.error_names(model),
        "functions.h": driver.functions_header(model),
        "driver_stubs.h": driver.stubs_header(model),
        "client_api.h": client.api_header(model),
        "server_api.h": server.header(model),
        "record_rules.h": record.header(),
        "record_rules.c": record.source(model),
        "functions.c": driver.functions_source(model),
        "client_procs.c": client.procs(model),
        "golden_vectors.c": golden.source(model),
        "abi_prototypes.c": abi.prototypes(model),
        "client.map": client.export_map(model),
    }


def outputs(model):
    files = of_all(model)
    for family in model.families:
        files.update(of_family(model, family))
    return files


def write(folder, files):
    """Only what has changed: what is derived from the rest is not built again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def generate(api, only, folder):
    types = table.read_types(api)
    if only not in (None, "all"):
        family = table.read_family(Path(api) / f"{only}.api")
        model = cgen.Model([family], types)
        record.check(model)
        write(folder, of_family(model, family))
        return
    model = cgen.Model(table.read_families(api), types)
    record.check(model)
    write(folder, of_all(model) if only else outputs(model))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", required=True)
    parser.add_argument("--out")
    parser.add_argument("--only")
    parser.add_argument("--status")
    parser.add_argument("--families", action="store_true")
    args = parser.parse_args()
    try:
        if args.families:
            print("\n".join(f.name for f in table.read_families(args.api)))
        if args.status:
            model = cgen.Model(table.read_families(args.api), table.read_types(args.api))
            Path(args.status).write_text(status.page(model))
        if args.out:
            generate(args.api, args.only, Path(args.out))
    except (table.TableError, ValueError) as error:
        sys.exit(f"apigen: {error}")


if __name__ == "__main__":
    main()
