#!/usr/bin/env python3
"""Writes everything that is derived from the API table.

    apigen.py --api api --out build/gen [--depfile F]   all generated sources
    apigen.py --api api --status docs/api-status.md     the status page
    apigen.py --api api --list-outputs                  what --out would write, one name a line
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
import server  # noqa: E402
import status  # noqa: E402
import table  # noqa: E402


def outputs(model):
    files = {
        "cuda_abi.h": abi.header(model),
        "abi_check.h": abi.check(model),
        "abi_prototypes.c": abi.prototypes(model),
        "functions.h": driver.functions_header(model),
        "functions.c": driver.functions_source(model),
        "driver.h": driver.header(model),
        "driver.c": driver.source(model),
        "client_api.h": client.api_header(model),
        "client_procs.c": client.procs(model),
        "client.map": client.export_map(model),
        "error_names.h": client.error_names(model),
        "golden_vectors.c": golden.source(model),
        "server_api.h": server.header(model),
    }
    for family in model.families:
        files[f"{family.name}_client.c"] = client.source(model, family)
        files[f"{family.name}_server.c"] = server.source(model, family)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", required=True)
    parser.add_argument("--out")
    parser.add_argument("--status")
    parser.add_argument("--list-outputs", action="store_true")
    args = parser.parse_args()
    try:
        model = cgen.Model(table.read_families(args.api), table.read_types(args.api))
        if args.list_outputs:
            print("\n".join(sorted(outputs(model))))
        if args.status:
            Path(args.status).write_text(status.page(model))
        if args.out:
            folder = Path(args.out)
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in outputs(model).items():
                path = folder / name
                if not path.exists() or path.read_text() != text:
                    path.write_text(text)
    except (table.TableError, ValueError) as error:
        sys.exit(f"apigen: {error}")


if __name__ == "__main__":
    main()
