#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The towline command forgives: it names what was mistyped, says what was meant, and takes flags where people write them."""

import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

NOWHERE = "/nonexistent/towline.sock"
COMMANDS = ("run", "devices", "status", "top", "check", "doctor", "usage", "end", "suspend", "resume", "trust", "cdi", "bench", "stats", "timeline", "version", "help")


def refused(words, *sentence, code=2, **variables):
    """The command line is refused with one line that has all of these words."""
    done = t.run([t.TOWLINE, *words], env=t.clean_environment(**variables))
    text = f"towline {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    t.equal((done.returncode, done.stdout, done.stderr.count("\n")), (code, "", 1), f"{text}: how it ends")
    for word in sentence:
        t.check(word in done.stderr, f"{word!r} is not in: {text}")


@t.test(trees=("plain", "asan"))
def a_wrong_flag_is_named():
    for command in COMMANDS:
        refused([command, "--frobnicate"], f"towline {command} has no flag --frobnicate", "--help")
        refused([command, "--hepl"], "did you mean --help?")
        refused([command, "-Z"], f"towline {command} has no flag -Z")
    refused(["devices", "--jsn"], "towline devices has no flag --jsn; did you mean --json?")
    refused(["run", "--devcie=soft", "true"], "towline run has no flag --devcie; did you mean --device?")
    refused(["run", "--epochs", "3"], "--epochs", "those of the program come behind its name")
    refused(["bench", "--native", "--max-byte=3"], "did you mean --max-bytes?")
    refused(["end", "17", "--sever", "x"], "did you mean --server?")
    refused(["trust", "--repalce", "tls://x"], "did you mean --replace?")
    refused(["--sever", "x", "devices"], "towline has no flag --sever; did you mean --server?")
    refused(["--" + "x" * 5000], "towline has no flag --xxx")


@t.test(trees=("plain", "asan"))
def a_value_that_is_missing_or_too_many_is_named():
    refused(["run", "-s"], "-s wants a value; write -s ADDRESS")
    refused(["devices", "--server"], "--server wants a value; write --server ADDRESS")
    refused(["status", "--json=1"], "--json takes no value")
    refused(["devices", "gpuhost"], '"gpuhost"', "towline devices -s gpuhost")
    refused(["version", "please"], '"please"', "towline version --help")
    refused(["help", "run", "bench"], "name one command")


@t.test(trees=("plain", "asan"))
def a_wrong_command_is_named():
    for word, meant in (("devcies", "devices"), ("stauts", "status"), ("ru", "run"), ("verison", "version"), ("hlep", "help")):
        refused([word], f'there is no command "{word}"', f"did you mean towline {meant}?")
        refused(["help", word], f"did you mean towline {meant}?")
    refused(["python3", "train.py"], "towline run -- python3")
    refused(["-s", "gpuhost"], "which command", "towline --help")
    refused(["x" * 5000], "there is no command")


@t.test(trees=("plain", "asan"))
def flags_may_stand_before_the_command():
    with t.Server() as server:
        plain = t.run([t.TOWLINE, "devices", "-s", server.address()]).stdout
        t.check("capability" in plain, plain)
        address = server.address()
        for words in (["-s", address, "devices"], ["--server", address, "devices"], [f"--server={address}", "devices"],
                      [f"-s{address}", "devices"], ["devices", f"-s{address}"]):
            t.equal(t.run([t.TOWLINE, *words]).stdout, plain, f"what {words} prints")
        report = json.loads(t.run([t.TOWLINE, "--json", "-s", address, "status"]).stdout)
        t.equal(len(report), 1, "the number of reports")
        done = t.run([t.TOWLINE, "-s", address, "run", "--", "sh", "-c", "echo $TOWLINE_SERVER $0", "-s"])
        t.equal(done.stdout, f"{address} -s\n", "what a program gets")
        # Behind other words, too; a program's own flags stay its own.
        done = t.run([t.TOWLINE, "end", "1234567", "-s", address])
        t.check(done.returncode == 1 and "1234567" in done.stderr, done.stderr)
    refused(["-s", NOWHERE, "version"], "towline version has no flag -s")


@t.test()
def help_is_everywhere():
    for command in COMMANDS:
        texts = {t.run([t.TOWLINE, *words]).stdout for words in (["help", command], [command, "--help"], [command, "-h"])}
        t.equal(len(texts), 1, f"towline {command}: different helps; their number")
        t.check(texts.pop().startswith(f"towline {command}"), f"towline help {command} does not begin with it")
    t.check("towline run" in t.run([t.TOWLINE, "run", "-s", "x", "--help"]).stdout, "help behind another flag")
    t.check("Commands:" in t.run([t.TOWLINE, "-s", "x", "--help"]).stdout, "help behind a flag")
    version = json.loads(t.run([t.TOWLINE, "version", "--json"]).stdout)
    t.equal(t.run([t.TOWLINE, "--version"]).stdout, "towline {version}, protocol {protocol}\n".format(**version), "the version")


@t.test(trees=("plain", "asan"))
def wrong_variables_are_said():
    run = ["run", "--no-check", "-s", NOWHERE, "--", "echo", "started"]
    for name, value, words in (("TRANSPORT", "pigeon", "write auto, unix or shm"), ("LANES", "many", "write a number from 1 to 16"),
                               ("LANES", "17", "write a number"), ("LANES", "3x", "write a number"),
                               ("MANAGED", "guess", "write compare, track or touch"), ("SYNC", "no", "write 1 or 0")):
        name = f"TOWLINE_{name}"
        refused(run, f"{name}={value} is not understood; {words}", "the program was not started", **{name: value})
    for name in ("TOWLINE_LOG_FILE", "TOWLINE_TRACE", "TOWLINE_STATS"):
        refused(run, f"{name}: /nonexistent/file cannot be written: No such file", **{name: "/nonexistent/file"})
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        good = {"TOWLINE_TRANSPORT": "", "TOWLINE_LANES": "16", "TOWLINE_MANAGED": "track", "TOWLINE_SYNC": "0",
                "TOWLINE_TRACE": f"{folder}/trace", "TOWLINE_STATS": "-", "TOWLINE_LOG_FILE": "/dev/null",
                "TOWLINE_BUILD": "/x", "TOWLINE_SOMEBODY_ELSES": "1"}
        done = t.run([t.TOWLINE, *run], env=t.clean_environment(**good))
        t.equal((done.stdout, done.stderr), ("started\n", ""), "with good values, what is said")
    # It may be another program's: the program is started.
    done = t.run([t.TOWLINE, *run], env=t.clean_environment(TOWLINE_SEVER="x"))
    t.equal(done.stdout, "started\n", "with an unknown variable, what is said")
    t.check("TOWLINE_SEVER; did you mean TOWLINE_SERVER?" in done.stderr, done.stderr)


@t.test()
def variables_of_the_manual_are_known():
    """A variable that is not in the table is taken for a mistyped one, where its name is near another's."""
    manual = set(re.findall(r"(?<![A-Z_])TOWLINE_[A-Z_]+", (t.ROOT / "docs" / "man" / "towline.1").read_text()))
    table = re.findall(r'^    \{"(TOWLINE_\w+)", KIND', (t.ROOT / "src" / "cli" / "environment.c").read_text(), re.M)
    t.equal(set(table), manual, "the variables of the table")


@t.test(trees=("plain", "asan"))
def run_takes_settings_of_the_software_gpu():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        env = t.clean_environment(XDG_RUNTIME_DIR=base, XDG_CONFIG_HOME=base, XDG_CACHE_HOME=base)
        show = ["--", t.TOWLINE, "devices", "--json"]
        for flags, count in ((["--device", "soft", "--soft-devices", "2"], 2), (["--soft-devices=3"], 3)):
            done = t.run([t.TOWLINE, "run", *flags, "--soft-memory", "1G", "--soft-capability=9.0", *show], 60, env=env)
            t.equal((done.returncode, done.stderr), (0, ""), "how it ends")
            devices = json.loads(done.stdout)[0]["report"]["devices"]
            t.equal([(device["memory"], device["capability"]) for device in devices], [(1 << 30, "9.0")] * count, f"with {flags}, the GPUs")
        done = t.run([t.TOWLINE, "run", "--soft-memory", "1Q", *show], env=env)
        t.check(done.returncode == 1 and "soft-memory = 1Q" in done.stderr, done.stderr)
    refused(["run", "--device", "cuda", "--soft-memory=1G", "true"], "--soft-memory is a setting of the software GPU", "--device soft")
    refused(["run", "-s", NOWHERE, "--soft-memory=1G", "true"], "use either -s or --soft-memory")
    refused(["run", "-s", "self:", "--soft-memory=1G", "true"], "-s self:soft-memory=VALUE")


def on_a_terminal(command, **variables):
    """What a command writes, stdout and stderr together, to a terminal."""
    ours, its = pty.openpty()
    env = {"TERM": "xterm", **t.clean_environment(), **variables}
    with subprocess.Popen([str(word) for word in command], stdin=its, stdout=its, stderr=its, env=env):
        os.close(its)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # nobody has the other end any more
    os.close(ours)
    return text.decode().replace("\r\n", "\n")


@t.test()
def terminals_get_colours():
    for command in (["devcies"], ["--help"], ["help", "run"], ["devices", "-s", NOWHERE]):
        command = [t.TOWLINE, *command]
        done = t.run(command)
        plain = done.stdout + done.stderr
        t.check("\033" not in plain, f"colours in a pipe: {plain!r}")
        coloured = on_a_terminal(command, TERM="xterm", NO_COLOR="")
        t.check("\033[1" in coloured and "\033[0m" in coloured, f"no colours on a terminal: {coloured!r}")
        t.equal(re.sub("\033\\[[0-9;]*m", "", coloured), plain, "what stands there beside colours")
        t.equal(on_a_terminal(command, NO_COLOR="1"), plain, "what stands there with NO_COLOR")
        t.equal(on_a_terminal(command, TERM="dumb"), plain, "what stands there on a terminal that is dumb")


if __name__ == "__main__":
    t.main()
