#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Towline costs, in counts that do not depend on how fast the machine is.

Replies waited for, bytes, instructions, allocations, system calls, memory. docs/performance.md explains them.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = t.ROOT / "tests" / "system" / "helpers"
MEASURE = t.BUILD / "bench" / "towline-measure"
LAUNCH_COUNTS = t.BUILD / "tests" / "client" / "launch_counts"
KINDS = ("unix", "tcp", "shm")

INSTRUCTIONS_MAX = 600  # of client and of server, each, per launch
# Of the client, for a synchronous copy of 4 bytes over unix: an eighth more than on arm64 (gcc 12, -O2). Down it sleeps and wakes.
COPY_INSTRUCTIONS_MAX = {"up": 1340, "down": 2640}
PAIR_INSTRUCTIONS_MAX = 3300, 2500  # of client and server, for cuMemAlloc and cuMemFree
# What a step of the program's "loop" calls besides cuStreamSynchronize.
STEP = ("cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamWaitEvent", "cuMemsetD32Async", "cuLaunchKernel",
        "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2")
LAUNCH_BYTES = 56       # per launch, without the arguments
ASKING_BYTES = 24       # of a command that has no arguments, as one that waits for a stream
CLIENT_MIB = 32
WORKER_MIB = 8


def program():
    return t.build_c(HELPERS / "counts.c", ["-lcuda"], "counts")


# Whether a worker that waited has its context already, so that nobody waits for it, is a matter of time: runs are compared on
# workers that did not wait.
ALL_ALIKE = "--idle-workers=0"


def stats(server, kind, *arguments, line="", env=None):
    """TOWLINE_STATS of one run of the program."""
    return stats_and_output(server, kind, *arguments, line=line, env=env)[0]


def stats_and_output(server, kind, *arguments, line="", env=None):
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "stats"
        done = t.towline_run(line + server.address(kind), [program(), *map(str, arguments)],
                             env={"TOWLINE_STATS": str(path), **(env or {})})
        t.check(done.returncode == 0, f"{kind} {arguments}: {done.stdout}{done.stderr}")
        return json.loads(path.read_text()), done.stdout


def between(server, kind, what, few, many, key):
    """How much more `many` of something take than `few`, of each."""
    stats(server, kind, what, 1)  # what only a first run needs (its code travels once)
    return (stats(server, kind, what, many)[key] - stats(server, kind, what, few)[key]) / (many - few)


def waited_again(run):
    """Replies that a call waited for which had waited for one already."""
    return run["replies_waited"] - sum(call["sync"] for call in run["calls"].values())


@t.test(120, matrix="counts")
def a_training_step_waits_once_for_its_one_synchronisation():
    with t.Server() as server:
        for kind in KINDS:
            stats(server, kind, "loop", 1)  # its code travels once for each tenant
            for _ in range(3):
                run = stats(server, kind, "loop", 40)
                # Over shared memory a synchronisation looks at a word first, and asks once if that takes long; the first
                # of all may ask for the word besides. Two runs differ by how often they asked: each is looked at alone.
                again = waited_again(run)
                t.check(again <= (kind == "shm"), f"{kind}: {again} calls waited for a second reply: {run}")
                for name in STEP:
                    t.equal(run["calls"][name]["sync"], 0, f"{kind}: calls of {name} that waited; their number")


@t.test(120, matrix="counts")
def a_capture_waits_for_nothing_that_it_takes():
    with t.Server(ALL_ALIKE) as server:
        for kind in KINDS:
            stats(server, kind, "capture", 1)  # its code travels once for each tenant
            few, many = (stats(server, kind, "capture", n) for n in (5, 45))
            for name, call in many["calls"].items():
                # Over shared memory these two look at a word first, and ask if that takes long: a matter of time.
                if kind != "shm" or name not in ("cuStreamSynchronize", "cuMemcpyDtoH_v2"):
                    t.equal(call["sync"], few["calls"][name]["sync"], f"{kind}: calls of {name} that waited in captures of 45 and of 5")
            t.equal(many["calls"]["cuLaunchKernel"]["async"] - few["calls"]["cuLaunchKernel"]["async"], 40, f"{kind}: launches more")
            if kind != "shm":
                t.equal(many["replies_waited"], few["replies_waited"], f"{kind}: replies waited for in captures of 45 and of 5")


@t.test(120, matrix="counts")
def kernels_come_with_the_first_load_of_their_image():
    for cache in ((), ("--code-cache=0",)):
        with t.Server(ALL_ALIKE, *cache) as server:
            each = between(server, "tcp", "kernels", 3, 40, "replies_waited")
            t.equal(each, 0, f"{cache}: replies waited for by a kernel on the software GPU; their number")


@t.test(120, matrix="counts")
def an_upload_over_a_network_waits_only_behind_launches():
    with t.Server(ALL_ALIKE) as server:
        idle = between(server, "tcp", "uploads", 10, 30, "replies_waited")
        behind = between(server, "tcp", "behind", 10, 30, "replies_waited")
        t.check(idle < 0.1, f"{idle:g} replies are waited for by a copy that has nothing before it")
        t.check(0.9 < behind <= 1, f"{behind:g} replies are waited for by a copy behind a launch, not one")


@t.test(120, matrix="counts")
def a_download_into_page_locked_memory_waits_for_nothing():
    with t.Server(ALL_ALIKE) as server:
        ways = (("unix", "1"), ("tcp", "1"), ("tcp", "4"))
        for kind, lanes in t.drawn(ways, 1, "downloads") if t.TREE == "plain" else ways:
            stats(server, kind, "downloads:64", 1)  # its code travels once for each tenant
            for size in (4 << 10, 5 << 20, 64 << 20):
                one, five = (stats(server, kind, f"downloads:{size}", n, env={"TOWLINE_LANES": lanes}) for n in (1, 5))
                t.equal(five["replies_waited"] - one["replies_waited"], 0,
                        f"{kind}, {lanes} connections: replies waited for by 4 copies of {size} bytes; their number")
                t.equal(five["calls"]["cuMemcpyDtoHAsync_v2"]["sync"], 0, f"{kind}: copies that waited; their number")
            for width in (100, 200 << 10):  # of 64 rows
                one, five = (stats(server, kind, f"rows:{width}", n, env={"TOWLINE_LANES": lanes}) for n in (1, 5))
                t.equal(five["replies_waited"] - one["replies_waited"], 0,
                        f"{kind}, {lanes} connections: replies waited for by 4 copies of rows of {width} bytes; their number")
                t.equal(five["calls"]["cuMemcpy2DAsync_v2"]["sync"], 0, f"{kind}: copies of rows that waited; their number")


@t.test(120, alone=True, matrix="counts")
def a_download_costs_the_same_behind_many():
    def best(server, count):
        return min(float(stats_and_output(server, "tcp", "downloads:64", count)[1]) for _ in range(3)) / count

    with t.Server() as server:
        few, many = best(server, 4000), best(server, 40000)
        t.check(many < 3 * few, f"{few * 1000:.1f} us each of 4000, {many * 1000:.1f} us each of 40000")


def among_pieces(kind, **env):
    """What a step of launches, an allocation, a free and a synchronisation costs among 5 pieces that nobody uses, and among 500."""
    with t.Server(ALL_ALIKE) as server:
        stats(server, "unix", "pieces:5", 1)  # its code travels once
        each = []
        for pieces in (5, 500):
            few, many = (stats(server, kind, f"pieces:{pieces}", n, env=env) for n in (10, 40))
            each.append({key: (many[key] - few[key]) / 30 for key in ("compared", "compared_bytes", "bytes_out", "bytes_in")})
    for key, spare in (("compared", 1), ("compared_bytes", 100_000)):
        t.check(each[1][key] <= each[0][key] + spare, f"{kind}: {key} of a step among 5 pieces and among 500: {each}")
    t.check(each[0]["compared"] <= 6, f"{kind}: {each[0]['compared']} pieces are compared in a step, of which one was touched")
    for key in ("bytes_out", "bytes_in"):
        t.check(abs(each[1][key] - each[0][key]) < 1000, f"{kind}: {key} of a step: {each}")


@t.test(120, matrix="counts")
def managed_memory_costs_what_is_touched():
    t.must_watch()
    for kind in KINDS:
        among_pieces(kind)


@t.test(120, matrix="counts")
def managed_memory_that_nobody_wrote_is_not_compared():
    """Of an ordinary user, who may not watch it: the kernel tells what was written (Linux 6.7)."""
    t.must_track()
    among_pieces("tcp", TOWLINE_MANAGED="track")


@t.test(120, matrix="counts")
def memory_freed_in_order_goes_back_at_the_next_synchronisation():
    # Pools let go of memory in the driver's synchronisation; a note of the GPU's would not do.
    with t.Server(ALL_ALIKE) as server:
        replies = between(server, "shm", "frees", 1, 40, "replies_waited")
        t.check(replies > 1.8, f"{replies:g} replies are waited for: the allocation's and the synchronisation's are two")


def least(enough, count):
    """A note that is late because the processors are busy is asked for: the least of ten counts, or the first that will do."""
    counts = []
    while len(counts) < 10 and (not counts or counts[-1] > enough):
        counts.append(count())
    return min(counts)


@t.test(120, matrix="counts")
def an_event_that_is_looked_at_often_is_not_asked_for_over_shared_memory():
    with t.Server(ALL_ALIKE) as server:
        # Where a machine is slow, some are late and asked for; without notes each would be.
        replies = least(0.5, lambda: between(server, "shm", "events", 5, 45, "replies_waited"))
        t.check(replies <= 0.5, f"an event's record and query wait for {replies:g} replies")


@t.test(120, matrix="counts")
def the_end_of_a_contexts_work_is_told_by_its_only_stream_over_shared_memory():
    with t.Server(ALL_ALIKE) as server:
        replies = least(0.5, lambda: between(server, "shm", "contexts", 5, 45, "replies_waited"))
        t.check(replies <= 0.5, f"a synchronisation of the context waits for {replies:g} replies")


@t.test(120, matrix="counts")
def what_a_copy_has_told_is_not_asked_for_again():
    """Over shm the word of a synchronous copy says that its stream is through: to wait for the stream then takes no command."""
    def each(what):
        # A copy that is late because the processors are busy is asked for: one command more.
        return least(1.5, lambda: between(server, "shm", what, 5, 45, "commands"))

    with t.Server(ALL_ALIKE) as server:
        for what in ("copies", "told"):
            commands = each(what)
            t.check(commands <= 1.5, f"{what}: a copy takes {commands:g} commands")


@t.test(120, matrix="counts")
def a_graph_is_built_and_updated_without_waiting_for_its_nodes():
    with t.Server(ALL_ALIKE) as server:
        for kind in ("unix", "tcp"):
            built = between(server, kind, "build", 10, 210, "replies_waited")
            t.equal(built, 0, f"{kind}: replies that a kernel, an empty node, a fill and a copy wait for")
            commands = between(server, kind, "build", 10, 210, "commands")
            t.equal(commands, 4, f"{kind}: commands of these four nodes")
            updated = between(server, kind, "update", 5, 55, "replies_waited")
            t.equal(updated, 0, f"{kind}: replies that 20 nodes with other arguments and a launch wait for")
        run = stats(server, "tcp", "build", 50)
        t.equal(run["calls"]["cuGraphCreate"]["sync"], 0, "calls of cuGraphCreate that waited")
        # The first tells whether the driver takes the kernel with that block.
        t.equal(run["calls"]["cuGraphAddKernelNode_v2"]["sync"], 1, "calls of cuGraphAddKernelNode that waited")
        # A mistake is answered at the call; and what is right behind it, waits no longer than that.
        refused = between(server, "tcp", "refused", 5, 25, "replies_waited")
        t.equal(refused, 2, "replies that two mistakes and two right calls wait for")


# An event or stream of which nothing was heard for so long is asked for.
ASK_MS = 200


def expect_few_questions(server, kind, line, arguments, function, most):
    """How many of the program's queries waited for a reply; and the milliseconds it printed."""
    run, output = stats_and_output(server, kind, *arguments, line=line)
    took = float(output)
    calls = run["calls"][function]
    asked, polls = calls["sync"], sum(calls[how] for how in ("local", "cached", "async", "sync"))
    print(f"{line}{kind} {arguments}: {asked} of {polls} waited, {took} ms")
    t.check(asked <= most + took / ASK_MS, f"{line}{kind} {arguments}: {asked} queries waited for a reply in {took} ms")
    t.check(polls > 300, f"only {polls} queries are counted")
    return took


@t.test(120, matrix="counts")
def what_is_not_ready_is_asked_for_once_and_told():
    with t.Server() as server:
        for kind in KINDS:
            # One that is told, and one because the command that lets the stream go was sent meanwhile.
            expect_few_questions(server, kind, "", ("poll:stream", 1000), "cuStreamQuery", 2)
            expect_few_questions(server, kind, "", ("poll:default", 1000), "cuStreamQuery", 2)
        for kind in ("unix", "tcp"):
            expect_few_questions(server, kind, "", ("poll:event", 1000), "cuEventQuery", 1)
            # From the second record on the server tells of it without being asked.
            took = expect_few_questions(server, kind, "", ("rounds", 100), "cuEventQuery", 1)
            t.check(took < 100 * ASK_MS / 4, f"{kind}: 100 rounds took {took} ms: nothing is told")


@t.test(120, matrix="counts")
def a_poll_does_not_wait_for_the_line():
    with t.Server() as server:
        for kind, what in (("tcp", "poll:event"), ("unix", "poll:stream"), ("shm", "poll:stream")):
            function = "cuEventQuery" if what == "poll:event" else "cuStreamQuery"
            took = expect_few_questions(server, kind, "hook:delay=1ms:", (what, 1000), function, 2)
            # Waiting for each reply takes two seconds.
            t.check(took < 1000, f"{kind}: 1,000 polls over a line with 1 ms each way took {took} ms")


@t.test(60, matrix="counts")
def uploads_go_through_shared_memory():
    """Above 16 KiB, and no longer in their commands."""
    with t.Server(ALL_ALIKE) as server:
        for size in ((16 << 10) + 4, 64 << 10, 256 << 10):
            few, many = (stats(server, "shm", f"uploads:{size}", n)["bytes_out"] for n in (10, 50))
            went = (many - few) / 40
            t.check(went < 4096, f"{went:g} bytes went for an upload of {size}")


@t.test(60, matrix="counts")
def a_shared_mapping_that_is_registered_is_used_where_it_is():
    size = 8 << 20

    def each(what, key):
        few, many = (stats(server, "shm", what, n)[key] for n in (2, 18))
        return (many - few) / 16

    with t.Server(ALL_ALIKE) as server:
        stats(server, "shm", "registered:kernel", 1)  # its code travels once
        # A copy up, one down and a synchronisation, which may look for its word and then ask: four commands. A staging takes
        # four pieces of 2 MiB each way. How often a run asks is a matter of time, so the border lies halfway.
        commands = each("registered:copy", "commands")
        t.check(commands <= 4.5, f"a copy up and one down are {commands:g} commands")
        commands = each("private:copy", "commands")
        t.check(commands >= 6, f"private memory is not staged: a copy up and one down are {commands:g} commands")
        # Its first bytes, on no whole page, are commands of their own. Only when they come back they are waited for.
        commands = each("registered:crooked", "commands")
        t.check(commands <= 6.5, f"a copy up and one down of memory off the page are {commands:g} commands")
        replies = least(2.2, lambda: each("registered:crooked", "replies_waited"))
        t.check(replies <= 2.2, f"they wait for {replies:g} replies")
        # Nothing of the memory is compared and sent before a kernel.
        went = each("registered:kernel", "bytes_out")
        t.check(went < 4096, f"{went:g} bytes went for a kernel that uses 8 MiB")
        t.check(each("private:kernel", "bytes_out") >= size, "private memory is not sent: the counting does not work")


def launch_bytes(arguments):
    """Exactly: the arguments lie as the kernel's layout has them, and frames are multiples of 8 bytes."""
    return LAUNCH_BYTES + (arguments + 7) // 8 * 8


@t.test(120, matrix="counts")
def a_launch_takes_at_most_64_bytes_and_its_arguments():
    # What is launched, and the bytes of its arguments; the program's own kernel takes a pointer and a u32.
    kernels = [("launches", 12), *((f"sized:{size}", size) for size in (0, 1, 8, 9, 12, 16, 64))]
    with t.Server() as server:
        for kind in KINDS:
            for what, arguments in kernels:
                t.check(launch_bytes(arguments) <= 64 + arguments, f"{launch_bytes(arguments)} bytes for {arguments} of arguments")
                stats(server, kind, what, 1)  # what only a first run needs (its code travels once)
                few, many = stats(server, kind, what, 500), stats(server, kind, what, 1500)
                commands, size = many["commands"] - few["commands"], many["bytes_out"] - few["bytes_out"]
                # Over shared memory a synchronisation may ask for its word again in one of the runs: that is no launch's.
                asked = commands - 1000
                t.check(abs(asked) <= (10 if kind == "shm" else 0), f"{kind}: 1,000 launches are {commands} commands")
                t.equal(size - asked * ASKING_BYTES, 1000 * launch_bytes(arguments),
                        f"over {kind} the size of 1,000 launches with {arguments} bytes of arguments ({what})")


def expect_no_allocations(done, what):
    t.check(done.returncode == 0, f"{done.stdout}{done.stderr}")
    during, before = map(int, done.stdout.replace("of", "").split())
    t.check(before > 0, "no allocation is seen at all: the counting does not work")
    t.equal(during, 0, f"allocations of all launches over {what}; their number")


@t.test(120, matrix="counts")
def a_launch_allocates_nothing():
    with t.Server() as server:
        for kind in KINDS:
            expect_no_allocations(t.towline_run(server.address(kind), [program(), "heap", "10000"]), kind)


@t.test(120, matrix="counts")
def a_launch_allocates_nothing_on_the_server_either():
    # Client and session in one process; ten times what fits a ring.
    for kind in ("self", "tcp", "shm"):
        expect_no_allocations(t.run([LAUNCH_COUNTS, f"heap-{kind}", "300000"]), f"{kind}, both ends")


@t.test(120, matrix="counts")
def a_launch_to_a_peer_that_is_awake_makes_no_system_call():
    done = t.run([LAUNCH_COUNTS, "drain", "1000"])
    t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
    counts = json.loads(done.stdout)
    t.equal(counts["frames"], 1000, "commands that went out")
    for key in ("sends", "wakes", "sleeps", "receives", "peer_wakes", "peer_sleeps"):
        t.equal(counts[key], 0, f"{key} of 1,000 launches over shm ({counts})")
    t.equal(counts["bytes"], 1000 * launch_bytes(16), "bytes of 1,000 launches with 16 bytes of arguments")


@t.test(60, matrix="counts")
def launches_over_tcp_are_received_many_at_a_time():
    # The server is slower than the client, as with a real driver: what has come meanwhile is taken in one call.
    done = t.run([LAUNCH_COUNTS, "tcp", "20000"])
    t.equal(done.returncode, 0, f"the exit code ({done.stderr})")
    counts = json.loads(done.stdout)
    print(counts)
    full = counts["bytes"] / (64 << 10)  # what one call takes at most
    t.check(counts["server_receives"] <= 4 * full + 20, f"{counts['server_receives']} calls received 20,000 launches")
    t.check(counts["sends"] <= 20000 / 8, f"{counts['sends']} calls sent 20,000 launches")
    t.check(counts["server_sends"] <= 4, f"{counts['server_sends']} calls sent one reply")


def instructions(number, what="launches"):
    """What callgrind counts of so many launches, or copies: in the thread that makes them, and in all others (the session's)."""
    if not shutil.which("valgrind"):
        raise t.Skip("valgrind is not installed (apt install valgrind)")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = pathlib.Path(folder) / "callgrind.out"
        # By threads: where one function begins and another ends callgrind guesses, on arm64 wrongly at times.
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={path}"]
        done = t.run([*command, LAUNCH_COUNTS, what, str(number)], 120)
        t.check(done.returncode == 0, f"{number} {what}: {done.stdout}{done.stderr}")
        counts = {}
        for part in pathlib.Path(folder).glob("callgrind.out-*"):
            found = re.search(r"^(?:summary|totals): (\d+)", part.read_text(errors="replace"), re.M)
            counts[part.suffix] = int(found.group(1)) if found else 0
        client = counts.pop(".out-01", 0)
        t.check(client > 0 and counts, f"callgrind counted nothing: {done.stderr}")
        return client, sum(counts.values())


def instructions_each(few, many, what, enough):
    """Of one, in the client and in the server. Waking a peer that had gone to sleep counts, too, and happens more or less often:
    the least of three counts, or the first that will do."""
    sides = [[], []]
    while len(sides[0]) < 3 and (not sides[0] or any(min(took) > most for took, most in zip(sides, enough))):
        counts = [instructions(number, what) for number in (few, many)]
        for side, took in enumerate(sides):
            took.append((counts[1][side] - counts[0][side]) / (many - few))
    return [min(took) for took in sides]


@t.test(240)
def a_launch_takes_few_instructions_on_both_sides():
    # The client's are with the loop that launches; the session's driver does nothing.
    took = instructions_each(1000, 2000, "launches", [INSTRUCTIONS_MAX] * 2)
    for name, each in zip(("client", "server"), took):
        print(f"{name} {each:g} instructions a launch")
        t.check(50 < each <= INSTRUCTIONS_MAX, f"the {name} takes {each:g} instructions a launch")


@t.test(240)
def a_small_copy_takes_few_instructions_on_the_client():
    for what, most in COPY_INSTRUCTIONS_MAX.items():
        took = instructions_each(100, 600, what, [most])[0]
        print(f"{took:g} instructions for 4 bytes {what}")
        t.check(50 < took <= most, f"the client takes {took:g} instructions for a copy of 4 bytes {what}")


@t.test(240)
def memory_is_taken_and_freed_by_few_instructions():
    # The client sleeps until its replies come, and both sides wake each other.
    took = instructions_each(200, 1200, "pairs", PAIR_INSTRUCTIONS_MAX)
    for name, each, most in zip(("client", "server"), took, PAIR_INSTRUCTIONS_MAX):
        print(f"{name} {each:g} instructions for a pair")
        t.check(50 < each <= most, f"the {name} takes {each:g} instructions for cuMemAlloc and cuMemFree")


@t.test(120, alone=True, matrix="counts")
def a_thousand_launches_over_a_slow_line_take_one_round_trip():
    def best(address):
        times = []
        for _ in range(5):
            done = t.towline_run(address, [program(), "time", "1000"])
            t.check(done.returncode == 0, f"{done.stdout}{done.stderr}")
            times.append(float(done.stdout))
        return min(times)

    with t.Server() as server:
        near = best(server.address("unix"))
        # 20 ms there and back: what else takes its time on a busy machine is less.
        far = best(f"hook:delay=10ms:{server.address('unix')}")
        t.check(far >= 20, f"with 10 ms each way it took {far} ms: the delay does not work")
        t.check(far - near < 30, f"{near} ms without a delay, {far} ms with 10 ms each way: more than one round trip")
        run = stats(server, "unix", "time", 1000, line="hook:delay=1ms:")
        t.equal(run["calls"]["cuLaunchKernel"]["sync"], 0, "launches that waited for a reply; their number")
        t.equal(run["calls"]["cuStreamSynchronize"]["sync"], 2, "synchronisations, the first launch's and that of all")
        t.equal(waited_again(run), 0, "replies that were waited for besides; their number")


@t.test(120, matrix="counts", waits=True)
def a_program_is_ready_after_one_round_trip():
    """The welcome tells what a client wants to know of the context that a worker has made ahead."""
    def least(server, line, kind, runs, good_enough=0):
        times = []
        while len(times) < runs and (not times or min(times) >= good_enough):
            # One that has been idle for a while has its context.
            t.wait_until(lambda: len(server.workers()) == 1, 10, "one idle worker")
            time.sleep(0.3)
            done = t.towline_run(line + server.address(kind), [program(), "ready", "0"])
            t.check(done.returncode == 0, f"{done.stdout}{done.stderr}")
            times.append(float(done.stdout))
        return min(times)

    with t.Server("--idle-workers=1") as server:
        for kind in ("tcp", "shm"):
            near = least(server, "", kind, 5)
            far = least(server, "hook:delay=20ms:", kind, 20, near + 60)  # other tests may run beside this
            print(f"{kind}: {near} ms, {far} ms with 20 ms each way")
            t.check(far >= 40, f"{kind}: with 20 ms each way it took {far} ms: the delay does not work")
            # What arranges the memory of shm goes over its socket before, one round trip that is not delayed here.
            t.check(far - near < 60, f"{kind}: {near} ms without a delay, {far} ms with 20 ms each way: two round trips")


def private_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M)) / 1024


@t.test(120, matrix="counts", waits=True)
def the_client_library_takes_little_memory():
    with t.Server() as server:
        for kind in KINDS:
            done = t.towline_run(server.address(kind), [MEASURE, "--launches", "20000", "memory"])
            t.check(done.returncode == 0, f"{done.stdout}{done.stderr}")
            figure = next(f for f in map(json.loads, done.stdout.splitlines()) if f.get("name") == "private_memory")
            print(f"{kind}: {figure['value']:.1f} MiB")
            t.check(0 < figure["value"] <= CLIENT_MIB, f"{kind}: {figure['value']:g} MiB after 20,000 launches")


@t.test(60, matrix="counts")
def an_idle_worker_takes_little_memory():
    with t.Server("--idle-workers=1", *t.SEEN) as server:
        t.wait_until(lambda: len(server.workers()) == 1, 10, "one idle worker")
        sizes = []

        def settled():
            with contextlib.suppress(OSError, IndexError):
                sizes.append(private_mib(server.workers()[0]))
            return len(sizes) > 10 and sizes[-1] == sizes[-10]
        t.wait_until(settled, 20, "the idle worker's memory stays the same")
        print(f"{sizes[-1]:.1f} MiB")
        t.check(0 < sizes[-1] <= WORKER_MIB, f"an idle worker takes {sizes[-1]:.1f} MiB")


if __name__ == "__main__":
    os.environ.pop("TOWLINE_STATS", None)
    t.main()
