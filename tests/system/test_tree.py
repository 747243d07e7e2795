#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tree itself: include arrows, READMEs, leftovers, documents that must follow the code."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import rooms  # noqa: E402
import towtest as t  # noqa: E402

SRC = t.ROOT / "src"
# What each folder may include beside itself and generated headers (gen/).
MAY_INCLUDE = {
    "base": set(),
    "gen": set(),
    "wire": {"base"},
    "transport": {"base", "wire"},
    "ptx": {"base"},
    "backend": {"base", "ptx"},
    "client": {"base", "wire", "transport"},
    "server": {"base", "wire", "transport", "backend"},
    "cli": {"base", "wire", "transport"},
    "nvml": {"base", "wire", "transport"},
}


def sources(*suffixes):
    return [path for path in sorted(SRC.rglob("*")) if path.suffix in suffixes]


@t.test()
def include_arrows_point_one_way():
    wrong = []
    for path in sources(".c", ".h"):
        folder = path.relative_to(SRC).parts[0]
        for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            other = included.split("/")[0]
            if "/" in included and other not in MAY_INCLUDE[folder] | {folder, "gen"}:
                wrong.append(f"{path.relative_to(t.ROOT)} includes {included}")
    t.check(not wrong, "\n".join(wrong))


# Folders whose rooms are closed: src/FOLDER/ROOMS.
CLOSED = ["ptx", "backend/soft", "server", "client"]


@t.test(150)
def calls_between_rooms_run_one_way():
    wrong = []
    for folder in CLOSED:
        closed = rooms.Rooms(folder)
        seen = len(rooms.objects(t.BUILD, closed))
        files = sum(len(list((SRC / folder / room).glob("*.c"))) for room in closed.names)
        t.check(seen >= files - 1, f"src/{folder}: {seen} object files of {files} sources were found")
        wrong += rooms.mistakes(t.BUILD, closed)
    t.check(not wrong, "\n".join(wrong))


@t.test(150)
def folders_without_rooms_have_small_circles_of_calls():
    wrong, folders = [], rooms.without_rooms()
    for folder in ("base", "wire", "transport", "cli", "nvml"):
        t.check(folder in folders, f"src/{folder} is not looked at, only {folders}")
    for folder in folders:
        missing = {path.name for path in (SRC / folder).glob("*.c")} - set(rooms.objects_without_rooms(t.BUILD, folder))
        t.check(len(missing) <= 1, f"src/{folder}: no object files were found of {sorted(missing)}")  # one is a program's own
        wrong += rooms.mistakes_without_rooms(t.BUILD, folder)
    t.check(not wrong, "\n".join(wrong))


@t.test()
def a_name_says_its_side():
    """A function of the client, one of the server and one of both cannot be confused in a backtrace."""
    shared = {"tow_fn_info", "tow_table_hash", "tow_travels", "tow_travel_count",  # the table: generated, in both
              "tow_self_start"}  # what the client looks up in libtowline-server.so
    wrong, seen = [], 0
    folder = t.BUILD / "src"
    paths = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*.o"))]
    listing = subprocess.run(["nm", "-A", "--defined-only", "--extern-only", "--format=posix", *paths], cwd=folder,
                             capture_output=True, text=True, check=True)
    for line in listing.stdout.splitlines():
        path, _, symbol = line.partition(": ")
        name = symbol.split()[0]
        side = {"client": "towc_", "server": "tows_"}.get(pathlib.PurePath(path).parts[0], "tow_")
        if name.startswith("tow") and name not in shared:
            seen += 1
            if not name.startswith(side):
                wrong.append(f"src/{path}: {name} does not begin with {side}")
    t.check(seen > 1000, f"{seen} names were seen")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def walls_are_made_anew_when_rooms_change():
    watched = json.loads((t.BUILD / "meson-info" / "intro-buildsystem_files.json").read_text())
    stale = [folder for folder in CLOSED if str(SRC / folder / "ROOMS") not in watched]
    t.check(not stale, f"meson does not look at src/FOLDER/ROOMS again: {stale}")


@t.test()
def inside_h_is_for_its_own_room_alone():
    wrong, seen = [], 0
    for path in sorted(list(SRC.rglob("*.[ch]")) + list((t.ROOT / "tests").rglob("*.[ch]"))):
        for header in re.findall(r'^#include "(\S*/inside\.h)"', path.read_text(), re.M):
            seen += 1
            if (SRC / header).parent != path.parent:
                wrong.append(f"{path.relative_to(t.ROOT)} includes {header}")
    t.check(not wrong and seen > 0, f"{seen} were seen: " + "\n".join(wrong))


@t.test()
def a_room_cannot_include_what_is_above():
    """Of each source of a closed folder: no header of a room above is in a directory where its compiler looks."""
    wrong, seen = [], 0
    compiled = json.loads((t.BUILD / "compile_commands.json").read_text())
    # Unit tests compile some of them again: what the product is made of comes last, and counts.
    compiled.sort(key=lambda entry: entry["output"].startswith("src/"))
    commands = {pathlib.Path(entry["directory"], entry["file"]).resolve(): entry for entry in compiled}
    for folder in CLOSED:
        closed = rooms.Rooms(folder)
        for number, room in enumerate(closed.names):
            above = [path.relative_to(SRC) for name in closed.names[number + 1:] for path in (SRC / folder / name).glob("*.h")]
            for path in sorted((SRC / folder / room).glob("*.c")):
                entry = commands[path]
                looked = [pathlib.Path(entry["directory"], name) for name in re.findall(r"(?:^|\s)-I(\S+)", entry["command"])]
                t.check(looked, f"{path}: no include directories in {entry['command']}")
                wrong += [f"{path.relative_to(t.ROOT)} could include {header}" for header in above
                          if any((place / header).exists() for place in looked)]
                seen += 1
    t.check(seen >= 10 * len(CLOSED), f"only {seen} sources were seen")
    t.check(not wrong, "\n".join(wrong))


@t.test()
def only_the_transports_know_their_names():
    """What a kind of line can do is asked of it (transport/line.h, transport/transport.h): a new one needs no change here."""
    found = []
    for path in sorted((SRC / "client").rglob("*.[ch]")) + sorted((SRC / "server").rglob("*.[ch]")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path.name in ("self.c", "self.h") or (path.name == "listen.c" and "snprintf(address," in line):
                continue  # what stands behind self:, and where towlined listens when nobody says where
            if re.search(r'"(?:self:|hook:|(?:unix|tcp|shm)://)(?:%s)?"|\bTOW_TRANSPORT_(?:SELF|UNIX|TCP|SHM|HOOK)\b|'
                         r"tow_line_kind\([^)]*\)[^,;]*==", line):
                found.append(f"{path.relative_to(t.ROOT)}:{number}: {line.strip()}")
    t.check(not found, "\n".join(found))


@t.test()
def every_folder_has_a_readme():
    for folder in sorted(path for path in SRC.iterdir() if path.is_dir() and path.name != "gen"):
        readme = folder / "README.md"
        t.check(readme.exists(), f"{readme.relative_to(t.ROOT)} is missing")
        lines = len(readme.read_text().splitlines())
        t.check(lines <= 60, f"{readme.relative_to(t.ROOT)} has {lines} lines, more than 60")
    for readme in [SRC / folder / room / "README.md" for folder in CLOSED for room in rooms.Rooms(folder).names]:
        t.check(readme.exists(), f"{readme.relative_to(t.ROOT)} is missing")
        lines = len(readme.read_text().splitlines())
        t.check(lines <= 30, f"{readme.relative_to(t.ROOT)} has {lines} lines, more than 30")


@t.test()
def nothing_is_left_to_do_later():
    found = []
    for path in sources(".c", ".h") + sorted((t.ROOT / "tools").rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b", line):
                found.append(f"{path.relative_to(t.ROOT)}:{number}: {line.strip()}")
    t.check(not found, "\n".join(found))


@t.test()
def no_file_is_too_long():
    long = [f"{path.relative_to(t.ROOT)}: {lines}" for path in sources(".c", ".h")
            if (lines := len(path.read_text().splitlines())) > 1000]
    t.check(not long, "past 1,000 lines: " + ", ".join(long))


def writable_variables(compiled):
    """Names of an object file's variables that are written, static ones in functions too; not those of a thread."""
    table = subprocess.run(["objdump", "-t", str(compiled)], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^[0-9a-f]+ .{6}O (\.(?:data|bss)\S*)\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", table, re.M)
    return {re.sub(r"\.\d+$", "", name) for section, name in found if not section.startswith(".data.rel.ro")}


@t.test()
def the_client_says_why_a_variable_is_process_wide():
    """What belongs to a context, a stream or a server is not kept for all of them. So whatever is, says in its paragraph
    /* Process-wide: why */."""
    wrong, seen = [], 0
    for name, compiled in rooms.objects(t.BUILD, rooms.Rooms("client")).items():
        path = SRC / "client" / name
        paragraphs = re.split(r"\n\s*\n", re.sub(r"_Atomic\(([^()]*)\)", r"\1", path.read_text()))
        reasoned = "\n\n".join(text for text in paragraphs if "/* Process-wide: " in text)
        for name in sorted(writable_variables(compiled)):
            seen += 1
            if not re.search(rf"^(?:[ \t]*static |[a-z]|\}} )[^()=\n]*\b{name}\b(?:\[[^\n]*\])? *(?:[=;,]|$)", reasoned, re.M):
                wrong.append(f"{path.relative_to(t.ROOT)}: {name}")
    t.check(seen > 50, f"only {seen} variables were found")
    t.check(not wrong, "no /* Process-wide: why */ beside: " + ", ".join(wrong))


@t.test()
def manual_knows_every_flag():
    done = t.run([t.TOWLINED, "--help"])
    flags = re.findall(r"^  (?:-\w, )?--([\w-]+)", done.stdout, re.M)
    t.check(len(flags) > 10, done.stdout)
    manual = (t.ROOT / "docs" / "man" / "towlined.8").read_text().replace("\\-", "-")
    example = (t.ROOT / "packaging" / "towlined.conf").read_text()
    for flag in flags:
        t.check(f"--{flag}" in manual, f"--{flag} is not in docs/man/towlined.8")
        if flag not in ("help", "version", "config"):
            t.check(re.search(rf"^#?{flag} = ", example, re.M), f"{flag} is not in packaging/towlined.conf")


def variables_read():
    """Names of environment variables that the product asks for: by getenv, by a function that hands its argument to it, or
    because the client forwards them to the server."""
    names = set()
    for path in sources(".c"):
        text = path.read_text()
        readers = ["getenv", "secure_getenv"] + [name for name, _ in re.findall(
            r"^static [^\n;]*?(\w+)\(const char \*(\w+)\)\n\{[^}]*?getenv\(\2\)", text, re.M)]
        names.update(re.findall(rf'\b(?:{"|".join(readers)})\(\s*"(\w+)"\s*\)', text))
    lists = re.findall(r"\btow_driver_variables\[\] = \{([^}]*)\}", (SRC / "wire" / "handshake.c").read_text())
    t.equal(len(lists), 1, "lists of forwarded variables; their number")
    return names | set(re.findall(r'"(\w+)"', lists[0]))


@t.test()
def manual_knows_every_variable_and_no_other():
    read = {name for name in variables_read() if name.startswith(("TOWLINE_", "CUDA_"))}
    t.check({"TOWLINE_SERVER", "CUDA_LOG_FILE", "CUDA_AUTO_BOOST"} <= read, f"not understood: {sorted(read)}")
    named = {}
    for page in [t.ROOT / "README.md", *(t.ROOT / "docs" / "guide").glob("*.md"), *(t.ROOT / "docs" / "man").glob("*.[0-9]")]:
        # Not TRITON_LIBCUDA_PATH, and not the names of errors.
        for name in re.findall(r"(?<![A-Z_])(?:TOWLINE|CUDA)_(?!ERROR_)[A-Z0-9_]+", page.read_text()):
            named.setdefault(name, set()).add(page)
    for name in sorted(set(named) - read):
        t.check(False, f"{name}, in {', '.join(str(p.relative_to(t.ROOT)) for p in named[name])}, is read by nobody")
    for name in sorted(read):
        t.check(any(page.parent.name == "man" for page in named.get(name, ())), f"{name} is not in docs/man")


@t.test()
def example_config_is_understood():
    text = (t.ROOT / "packaging" / "towlined.conf").read_text()
    config = t.BUILD / "test-programs" / "towlined.conf"
    config.parent.mkdir(exist_ok=True)
    # Every example setting on, but for those that need this or that machine.
    active = [line[1:] for line in text.splitlines() if re.match(r"#([\w-]+ = |\[)", line)]
    t.check(len(active) > 8, text)
    config.write_text("\n".join(line for line in active if not re.match("listen|device|cache-dir|restart-dir|token-file|usage-file|soft-memory", line)) + "\n")
    with t.Server(f"--config={config}", f"--token-file={config.parent}/tokens", f"--usage-file={config.parent}/usage") as server:
        t.equal(len(server.status()["devices"]), 1, "the number of devices")


@t.test()
def api_status_is_current():
    page = t.ROOT / "docs" / "api-status.md"
    made = t.BUILD / "test-programs" / "api-status.md"
    made.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, str(t.ROOT / "tools" / "apigen" / "apigen.py"), "--api", str(t.ROOT / "api"),
                    "--status", str(made)], check=True)
    t.check(page.exists() and made.read_text() == page.read_text(),
            "docs/api-status.md is old; run: tools/apigen/apigen.py --api api --status docs/api-status.md")


def changed_outputs(was, becomes):
    """The generated files that another text in api/event.api changes."""
    sys.path.insert(0, str(t.ROOT / "tools" / "apigen"))
    import apigen
    import cgen
    import table

    def outputs(api):
        return apigen.outputs(cgen.Model(table.read_families(api), table.read_types(api)))

    with tempfile.TemporaryDirectory(prefix="towline-tree-") as folder:
        shutil.copytree(t.ROOT / "api", folder, dirs_exist_ok=True)
        path = pathlib.Path(folder) / "event.api"
        t.check(was in path.read_text(), f"api/event.api has no '{was}' any more; choose another")
        path.write_text(path.read_text().replace(was, becomes, 1))
        old, new = outputs(t.ROOT / "api"), outputs(folder)
    return {name for name in new if old.get(name) != new[name]}


def compiled_again(changed):
    """The objects that ninja would compile when these generated files have changed, by its own records."""
    text = (t.BUILD / "build.ninja").read_text().replace("$\n", "")
    edges = [(outputs.split(), set(inputs.split()))
             for outputs, inputs in re.findall(r"^build ([^:|]+)[^:\n]*: \S+ ([^|\n]*)", text, re.M)]
    recorded = t.run(["ninja", "-C", t.BUILD, "-t", "deps"]).stdout
    edges += [([output], set(inputs.split()))
              for output, inputs in re.findall(r"^(\S+): #deps.*\n((?:    .*\n)+)", recorded, re.M)]
    dirty = {f"{folder}/{name}" for folder in ("src/gen", "tests/versions/gen") for name in changed}
    before = 0
    while len(dirty) > before:  # the tests' cuda.h is made of generated headers
        before = len(dirty)
        for outputs, inputs in edges:
            if not inputs.isdisjoint(dirty):
                dirty.update(outputs)
    return sorted(path for path in dirty if path.endswith(".o"))


@t.test()
def a_changed_line_of_the_table_builds_its_family_again():
    """The rest of the API, and who does not use the family, stays as it is."""
    found = compiled_again(changed_outputs(" shows asks since(12080)", " shows quick asks since(12080)"))
    t.check(0 < len(found) <= 8, f"a behaviour word compiles {len(found)} files: {' '.join(found)}")
    found = compiled_again(changed_outputs(
        "family event 760;", "family event 760;\n## Made up.\nfn 799 cuEventMadeUp(out int *a, CUevent b) asks since(13000);"))
    t.check("src/gen/event_client.c" in " ".join(found).replace("meson-generated_.._.._gen_", "src/gen/").replace(".c.o", ".c"),
            f"not understood: {found}")
    product = [path for path in found if path.startswith(("src/", "lib/", "bin/"))]
    t.check(len(product) <= 24, f"a new function compiles {len(product)} files of the product: {' '.join(product)}")
    t.check(len(found) <= 65, f"a new function compiles {len(found)} files: {' '.join(found)}")


if __name__ == "__main__":
    t.main()
