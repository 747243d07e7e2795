#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How the source is written: its format, calls that are not made, its licence and its first words."""

import hashlib
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

FOLDERS = ("src", "tests", "bench", "lib", "bin", "examples", "tools")
GENERATED = t.ROOT / "tests" / "apigen" / "golden"  # what the generator writes, byte for byte
# Calls that src/ does not make, and what it calls instead.
BANNED = {
    "strcpy, stpcpy, strcat, strncpy, strncat, sprintf, vsprintf, gets": "no size, or no end; snprintf",
    "alloca": "a size from outside moves the stack; malloc, or an array with a maximum",
    "atoi, atol, atoll, atof": "what is no number is 0, what is too large is undefined; strtol",
    "rand, srand, random, drand48": "the program's own sequence would change; getrandom",
    "system, popen": "a shell, and another's PATH; posix_spawn or execv",
    "strtok, gmtime, localtime, ctime, asctime, inet_ntoa, gethostbyname, readdir_r, ttyname":
        "one buffer for all threads; the forms with _r",
    "mktemp, tmpnam, tempnam, tmpfile": "a name that others can guess; memfd_create, mkostemp",
    "vfork": "the child writes into the parent's memory; posix_spawn or fork",
    "setjmp, longjmp, sigsetjmp, siglongjmp": "they pass by what is to be freed and unlocked",
    "usleep, sleep": "waits for nothing; a condition variable, a futex or poll",
    "abort, raise": "the client is a guest in a program; an error, or assert",
    "pthread_mutex_lock, pthread_mutex_trylock, pthread_rwlock_rdlock, pthread_rwlock_wrlock, pthread_cond_wait, "
    "pthread_cond_timedwait": "not in the order of locks; tow_mutex_lock and the others of base/mutex.h",
    "strerror_r": "two forms, by feature macro; strerror or %m",
}
# File: calls that it may make, and why.
MAY_CALL = {
    "src/base/locks.c": {"abort": "a thread is about to break the order of locks; in builds for tests only"},
    "src/base/mutex.h": {name: "the order of locks is kept here" for name in (
        "pthread_mutex_lock", "pthread_mutex_trylock", "pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_cond_wait",
        "pthread_cond_timedwait")},
    "src/server/worker/worker.c": {"alloca": "the stack is to grow: grow_stack()"},
}

# Naps: file, how many, and what is waited for that cannot tell us. For a thread of ours there is a condition variable or a
# futex (docs/inside/locks.md).
NAPS = {
    "src/base/clock.h": (1, "tow_time_sleep itself"),
    "src/backend/soft/graph/graph_exec.c": (1, "memory that a kernel or the program writes"),
    "src/cli/ask.c": (1, "time: people look again"),
    "src/cli/bench.c": (2, "time: a rate is measured"),
    "src/client/copy/stage.c": (1, "a word that the GPU writes"),
    "src/client/hostmem/fault.c": (1, "the kernel's memory"),
    "src/nvml/event.c": (1, "time: the caller's own timeout"),
    "src/nvml/state.c": (1, "another process's report"),
    "src/server/copy/download.c": (1, "an event of the GPU's"),
    "src/server/copy/upload.c": (2, "an event of the GPU's"),
    "src/server/pool/worker_pool.c": (1, "workers' processes, with a limit"),
    "src/server/beside/mps.c": (2, "NVIDIA's daemon, which begins and ends without a word"),
    "src/server/beside/gauge.c": (1, "time: questions keep their distance"),
    "src/server/listener/listener.c": (2, "descriptors and memory that others have"),
    "src/server/web/site.c": (1, "time: the history's"),
    "src/server/web/web.c": (2, "descriptors and memory that others have"),
    "src/server/worker/leash.c": (1, "time: a session that has no client any more gets some"),
    "src/server/worker/rejoin.c": (1, "time: a session that has no server any more gets some"),
    "src/transport/hook.c": (1, "time: a line is made slow"),
    "src/transport/patience.c": (1, "a server that is not there yet"),
    "src/transport/sock.c": (1, "a queue of the kernel's, which cannot be polled"),
    "src/transport/unix.c": (1, "the first bytes, which are peeked at: poll would return at once"),
}


def files(folders, *suffixes):
    return [path for folder in folders for path in sorted((t.ROOT / folder).rglob("*"))
            if path.suffix in suffixes and GENERATED not in path.parents]


@t.test(240, matrix="the same for all users")
def clang_format_has_nothing_to_change():
    paths = files(FOLDERS, ".c", ".h")
    paths = {*t.drawn(paths, len(paths) // 4, "format"), *t.changed_files().intersection(paths)}
    said = t.each_file([t.tool("clang-format-14"), "--dry-run"], sorted(paths), 40)
    t.check(not re.search(r"^error: ", said, re.M), said)
    found = sorted(set(re.findall(r"^(\S+?):\d+", said, re.M)))
    t.check(not found, "run: clang-format-14 -i " + " ".join(str(pathlib.Path(path).relative_to(t.ROOT)) for path in found))


def code(text):
    """C without its comments and texts; lines stay where they are."""
    blank = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return blank.sub(lambda found: "\n" * found.group().count("\n") or '""', text)


@t.test()
def calls_that_are_not_made():
    instead = {name: why for names, why in BANNED.items() for name in names.split(", ")}
    form = re.compile(rf"(?<![\w.>])({'|'.join(instead)})\s*\(")
    t.equal([found.group(1) for found in form.finditer(code('x = atoi(y); a->rand(); /* gets(s) */ f("sprintf(");'))], ["atoi"],
            "what is found in a line of four")
    wrong = []
    for path in files(["src"], ".c", ".h"):
        name = str(path.relative_to(t.ROOT))
        for number, line in enumerate(code(path.read_text()).splitlines(), 1):
            wrong += [f"{name}:{number}: {call}: {instead[call]}" for call in form.findall(line) if call not in MAY_CALL.get(name, ())]
    t.check(not wrong, "\n".join(wrong))


# Parts of names that src/ has given up, and what it says instead (docs/inside/glossary.md).
RETIRED = {
    "bay": "staging slot", "lot": "chunk", "passage": "staged copy", "gang": "copy pool", "piece": "chunk, buffer, stripe or area",
    "late": "deferred upload", "note": "fence word; to remember: record, take, set", "slip": "watch number", "desk": "wait slot",
    "crew": "worker pool", "guest": "pending connection", "greet": "hello", "errand": "executor",
    "settle": "its own verb: wait, flush, sync",
}


@t.test()
def words_that_were_given_up_stay_away():
    part = re.compile(rf"(?<![a-z0-9])({'|'.join(RETIRED)})(?:s|d|ed)?(?![a-z0-9])", re.I)
    t.equal([found.group(1) for found in part.finditer("tows_guest_list NOTES slot_noted islot notebook late_")], ["guest", "NOTE", "note", "late"],
            "what is found in six names")
    wrong = []
    for path in files(["src"], ".c", ".h"):
        name = str(path.relative_to(t.ROOT))
        wrong += [f"{name}: {found.group(1)}: {RETIRED[found.group(1)]}" for found in part.finditer(path.stem)]
        for number, line in enumerate(code(path.read_text()).splitlines(), 1):
            wrong += [f"{name}:{number}: {found.group()}: {RETIRED[found.group(1).lower()]}" for found in part.finditer(line)]
    t.check(not wrong, "\n".join(wrong))


@t.test()
def every_lock_is_in_the_list_and_every_row_is_a_lock():
    rows = re.findall(r"^TOW_LOCK\((\w+), ([^,]+), \"([^\"]+)\"\)", (t.ROOT / "src/base/locks.def").read_text(), re.M)
    names = [name for name, _, _ in rows]
    t.equal(len(names), len(set(names)), "rows of src/base/locks.def")
    bare, used = [], set()
    for path in files(["src"], ".c", ".h"):
        if (t.ROOT / "src" / "base") in path.parents:
            continue
        text = code(path.read_text())
        if re.search(r"\bpthread_(mutex|rwlock|spinlock)_t\b|\b(mtx|sem)_t\b", text):
            bare.append(str(path.relative_to(t.ROOT)))
        used.update(re.findall(r"\b(?:TOW_MUTEX|TOW_RWLOCK)\((\w+)\)|", text))
        used.update(re.findall(r"\btow_(?:mutex|lock)_init\(&[^;]*?, (\w+)\)", text))
    t.check(not bare, "a lock that is not in src/base/locks.def; struct tow_mutex of base/mutex.h: " + " ".join(bare))
    t.equal(sorted(set(names) - used), [], "rows that are no lock")
    # What may be held over the driver or a line says why.
    above = (t.ROOT / "src/base/locks.def").read_text().splitlines()
    silent = [line for before, line in zip(above, above[1:]) if line.startswith("TOW_LOCK(") and "TOW_LOCK_OVER" in line
              and not before.rstrip().endswith("*/")]
    t.equal(silent, [], "rows with a mark and without a reason above")


@t.test()
def a_lock_and_what_it_guards_are_one_struct():
    bare = {str(path.relative_to(t.ROOT)) for path in files(["src"], ".c", ".h")
            if re.search(r"^(?:    )?static struct tow_(?:mutex|rwlock|lock) ", code(path.read_text()), re.M)}
    t.equal(sorted(bare), [], "files with a lock that stands alone: static struct {struct tow_mutex lock; ...} name")


@t.test()
def naps_are_for_what_cannot_tell_us():
    found = {}
    for path in files(["src"], ".c", ".h"):
        text = code(path.read_text())
        calls = len(re.findall(r"\b(?:tow_time_sleep|nanosleep|clock_nanosleep)\((?!int64_t)", text))
        if calls:
            found[str(path.relative_to(t.ROOT))] = calls
    t.equal(found, {name: count for name, (count, _) in NAPS.items()}, "naps of each file; see NAPS here")


def sources():
    """Everything that is written by hand: C, CUDA C++, Python and shell."""
    for path in files([*FOLDERS, ".ci"], ".c", ".h", ".cu", ".cuh", ".py", ".sh", ""):
        kept = GENERATED, t.ROOT / "tests" / "fuzz" / "corpus", t.ROOT / "tests" / "versions" / "gen"
        if path.is_file() and not path.is_symlink() and not any(folder in path.parents for folder in kept):
            with path.open("rb") as file:
                if path.suffix or file.read(2) == b"#!":
                    yield path


@t.test()
def every_file_names_its_licence():
    found = list(sources())
    t.check(len(found) > 600, f"only {len(found)} files found")
    missing = []
    for path in found:
        lines = path.read_text().splitlines()[:2]
        mark = ("/* {} */" if path.suffix in (".c", ".h", ".cu", ".cuh") else "# {}").format("SPDX-License-Identifier: Apache-2.0")
        if mark != lines[lines[0].startswith("#!")]:
            missing.append(str(path.relative_to(t.ROOT)))
    t.check(not missing, "without the line SPDX-License-Identifier, first or behind #!: " + " ".join(missing))


@t.test()
def every_file_says_what_it_is_for():
    silent = []
    for path in sources():
        text = path.read_text()
        if path.suffix in (".c", ".h", ".cu", ".cuh"):
            first = re.match(r"/\* SPDX[^\n]*\n\s*(/\*.*?\*/|//[^\n]*)", text, re.S)
        else:
            first = re.match(r"(?:#![^\n]*\n)?# SPDX[^\n]*\n\s*(\"\"\".*?\"\"\"|# [^\n]*)", text, re.S)
        if not first or len(re.findall(r"\w+", first.group(1))) < 3:
            silent.append(str(path.relative_to(t.ROOT)))
    t.check(not silent, "no comment of at least three words behind the licence: " + " ".join(silent))


# What a server and workers of the one before read of each other: a file, or a struct in it (docs/inside/restart.md).
SHARED = {
    "src/server/worker/worker_msg.h": None,
    "src/server/session/session.h": "tows_session_stats",
    "src/server/pool/meeting.h": "tows_meeting_record",
    "src/server/login/who.h": "tows_who",
    "src/server/login/policy.h": "tows_limits",
    "src/wire/login.h": "tow_login_keys",
    "src/wire/control.h": "tow_grant",
}
REJOIN = {1: "b56a7552dea1093d", 2: "792366ec6eb8deb6", 3: "412fc31bb00398ba", 4: "32a57f045d5a027b"}  # the sum of each version


@t.test()
def what_outlives_a_server_has_a_version():
    """A worker of one version would misread the next server's messages if their fields changed places and kept their size."""
    text = ""
    for path, struct in SHARED.items():
        source = (t.ROOT / path).read_text()
        source = re.sub(r"/\*.*?\*/", "", source, flags=re.S)
        if struct:
            found = re.search(rf"^struct {struct} \{{\n.*?^\}};", source, re.M | re.S)
            t.check(found, f"{path} has no struct {struct}; SHARED here says where it is")
            source = found.group()
        text += " ".join(source.split())
    shared = hashlib.sha256(text.encode()).hexdigest()[:16]
    version = int(re.search(r"TOW_REJOIN_VERSION = (\d+)", (t.ROOT / "src/server/worker/rejoin_msg.h").read_text()).group(1))
    t.equal(version, max(REJOIN), "TOW_REJOIN_VERSION and the last row of REJOIN here")
    t.equal(shared, REJOIN[version], "the sum of what both read: it has changed, so add one to TOW_REJOIN_VERSION, and a row to REJOIN here")


if __name__ == "__main__":
    t.main()
