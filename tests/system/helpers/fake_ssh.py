#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ssh for tests, first in PATH under that name. It understands what towline says to ssh and forwards on this machine;
FAKE_SSH says what goes wrong, in OpenSSH's words. What it was called with goes to FAKE_SSH_LOG, a line of JSON for each."""

import getopt
import json
import os
import re
import signal
import socket
import sys
import termios
import threading
import time


def say(text):
    os.write(2, f"{text}\r\n".encode())


def end(text, code=255):
    say(text)
    os._exit(code)


def field(text):
    """The first path of -L as OpenSSH reads it, and the rest."""
    path, rest = re.fullmatch(r"((?:[^\\:]|\\.)*)(?::(.*))?", text, re.S).groups()
    return re.sub(r"\\(.)", r"\1", path).replace("%%", "%"), rest


def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
    except OSError:
        pass
    for end_of_it in (sink, source):
        try:
            end_of_it.shutdown(socket.SHUT_WR if end_of_it is sink else socket.SHUT_RD)
        except OSError:
            pass


def forward(near, path, mode):
    far = socket.socket(socket.AF_UNIX)
    try:
        if mode == "prohibited":
            raise OSError
        far.connect(path)
    except OSError:
        reason = "administratively prohibited" if mode == "prohibited" else "connect failed"
        say(f"channel 2: open failed: {reason}: open failed")
        near.close()
        return
    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    pump(far, near)


def ask():
    """A password, as readpassphrase does: without an echo, whatever the signals were before."""
    tty = os.open("/dev/tty", os.O_RDWR)
    before = termios.tcgetattr(tty)
    quiet = termios.tcgetattr(tty)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(tty, termios.TCSAFLUSH, quiet)
    os.write(tty, b"password: ")
    word = os.read(tty, 100)
    termios.tcsetattr(tty, termios.TCSAFLUSH, before)
    if word != b"secret\n":
        end("me@gpuhost: Permission denied (password).")


def main():
    mode = os.environ.get("FAKE_SSH", "")
    options, words = getopt.getopt(sys.argv[1:], "NTL:o:l:p:")
    settings = dict(value.split("=", 1) for name, value in options if name == "-o")
    named = {name: value for name, value in options if name != "-o"}
    near, far = field(named["-L"])
    far = field(far)[0]
    with open(os.environ["FAKE_SSH_LOG"], "a") as log:
        log.write(json.dumps({"pid": os.getpid(), "named": named, "settings": settings, "host": words, "near": near, "far": far,
                              "args": sys.argv[1:]}) + "\n")
    if mode == "unknown":
        end(f"ssh: Could not resolve hostname {words[0]}: Name or service not known")
    if mode == "denied":
        end(f"me@{words[0]}: Permission denied (publickey).")
    if mode == "changed":
        say("@" * 59)
        say("@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @")
        say("@" * 59)
        end("Host key verification failed.")
    if mode == "taken":
        say("bind [127.0.0.1]:8080: Address already in use")
        end("Could not request local forwarding.")
    if mode == "silent":
        os._exit(7)
    if mode == "ask":
        ask()
    signal.signal(signal.SIGUSR1, lambda *_: end(f"Timeout, server {words[0]} not responding."))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(near)
    if mode == "late":
        time.sleep(0.5)  # bound, and not listened on yet
    listener.listen(128)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=forward, args=(connection, far, mode), daemon=True).start()


main()
