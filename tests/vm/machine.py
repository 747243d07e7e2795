# SPDX-License-Identifier: Apache-2.0
"""A guest that runs: QEMU, and commands in it by the protocol of agent.c.

At most one guest runs for a build tree. Tests share it (a lock keeps it from being stopped under them); one that wants
another flavour waits until nobody uses it, and stops it.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import select
import shlex
import signal
import socket
import struct
import subprocess
import time

import image
import towtest as t

PORTS = 4  # as many commands can run at once; agent.c has the same
MEMORY = {"plain": 512, "systemd": 768, "debian": 896}  # MiB
BOOT_SECONDS = 200  # ten times what an idle machine needs, emulated and with systemd
KVM_SECONDS = 30  # the same with KVM
RUN = image.CACHE / "run"  # the running guest: pid, flavour, sockets, console
NO_KVM = image.CACHE / "no-kvm"  # what KVM has started here never answered
HOST = "10.0.2.2"  # the host's loopback, seen from the guest


class Broken(AssertionError):
    """The guest does not answer any more, or QEMU does not start."""


def use_kvm():
    if NO_KVM.exists():
        return False
    try:
        with open("/dev/kvm", "r+b", buffering=0):
            return True
    except OSError:
        return False


def qemu_command(flavour):
    kernel, archive, _ = image.make(flavour)
    kvm = use_kvm()
    command = [image.QEMU, "-name", f"towline-guest-{flavour}", "-nodefaults", "-nographic", "-no-reboot", "-smp", "2",
               "-m", str(MEMORY[flavour]), "-accel", "kvm" if kvm else "tcg", "-machine", image.MACHINE["kvm" if kvm else "emulated"],
               "-cpu", "host" if kvm else image.MACHINE["processor"],
               "-kernel", str(kernel), "-initrd", str(archive),
               "-append", f"console={image.MACHINE['console']} quiet panic=-1 net.ifnames=0 rdinit=/init systemd.show_status=0 "
               + os.environ.get("TOWLINE_VM_APPEND", ""),
               "-serial", "file:console", "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
               "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
    for i in range(PORTS):
        command += ["-chardev", f"socket,id=port{i},path=port{i},server=on,wait=off",
                    "-device", f"virtserialport,chardev=port{i},name=towline.{i}"]
    for name, folder in (("tree", t.ROOT), ("build", t.BUILD)):
        path = str(folder).replace(",", ",,")
        command += ["-fsdev", f"local,id={name},path={path},security_model=none,readonly=on,multidevs=remap",
                    "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
    if os.access("/dev/vhost-vsock", os.R_OK | os.W_OK):
        command += ["-device", f"vhost-vsock-pci,guest-cid={1000 + os.getpid() % 1000000}"]
    return command


def running():
    """(pid, flavour) of this tree's guest, or None."""
    try:
        state = json.loads((RUN / "state").read_text())
        if os.readlink(f"/proc/{state['pid']}/cwd") == str(RUN) and not t.gone(state["pid"]):
            return state["pid"], state["flavour"]
    except (OSError, ValueError, KeyError):
        pass
    return None


def console():
    try:
        return (RUN / "console").read_text(errors="replace")
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def guest_lock(kind):
    image.CACHE.mkdir(parents=True, exist_ok=True)
    with open(image.CACHE / "guest.lock", "w") as handle:
        fcntl.flock(handle, kind)
        yield handle


def stop_running():
    found = running()
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)  # nothing in it is worth keeping
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found[0], 0)
        t.wait_until(lambda: t.gone(found[0]), 10, "QEMU ends")
    elif (RUN / "state").exists():
        print(f"the guest before this one ended by itself; QEMU: {(RUN / 'qemu.log').read_text()} console:\n{console()[-3000:]}")
    (RUN / "state").unlink(missing_ok=True)


def start(flavour):
    """Starts QEMU and waits until the guest answers. The caller has the lock. In some virtual machines KVM can be opened, but what it
    runs stands still: such a guest is emulated from then on."""
    if use_kvm():
        try:
            boot(flavour, KVM_SECONDS)
            return
        except Broken as broken:
            print(f"with KVM: {broken}\nthe guest is emulated", flush=True)
            NO_KVM.touch()
    boot(flavour, BOOT_SECONDS)


def boot(flavour, seconds):
    command = qemu_command(flavour)
    image.fresh(RUN)
    begin = time.monotonic()
    # The sockets' names are short because QEMU runs in their folder.
    with open(RUN / "qemu.log", "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=RUN, start_new_session=True)
    (RUN / "state").write_text(json.dumps({"pid": process.pid, "flavour": flavour}))
    try:
        port = None
        while port is None:
            with contextlib.suppress(OSError):
                port = connect(0)
            if process.poll() is not None:
                raise Broken(f"QEMU has ended:\n{(RUN / 'qemu.log').read_text()}")
            if time.monotonic() - begin > 60:
                raise Broken("QEMU does not open its sockets")
            time.sleep(0.02)
        with port:
            synchronize(port, seconds)
    except BaseException:
        stop_running()
        raise
    print(f"the {flavour} guest answered after {time.monotonic() - begin:.1f} s ({'KVM' if use_kvm() else 'emulated'})", flush=True)


# ---- the protocol ----

def connect(number):
    port = socket.socket(socket.AF_UNIX)
    folder = os.open(RUN, os.O_PATH)
    try:
        port.connect(f"/proc/self/fd/{folder}/port{number}")  # its own name may be longer than a socket's may
    except OSError:
        port.close()
        raise
    finally:
        os.close(folder)
    return port


def send(port, kind, data=b""):
    port.sendall(kind.encode() + struct.pack("<I", len(data)) + data)


def read_exactly(port, size, deadline):
    data = b""
    while len(data) < size:
        ready, _, _ = select.select([port], [], [], min(3600, max(0, deadline - time.monotonic())))
        if not ready:
            if time.monotonic() < deadline:
                continue
            raise TimeoutError
        piece = port.recv(size - len(data))
        if not piece:
            raise Broken(f"the guest has ended:\n{console()[-3000:]}")
        data += piece
    return data


def receive(port, deadline):
    head = read_exactly(port, 5, deadline)
    return chr(head[0]), read_exactly(port, struct.unpack("<I", head[1:])[0], deadline)


def synchronize(port, seconds):
    """Until the agent answers: what was on its way before does not matter."""
    cookie = os.urandom(8)
    send(port, "p", cookie)
    wanted, seen = b"p" + struct.pack("<I", 8) + cookie, b""
    deadline = time.monotonic() + seconds
    try:
        while not seen.endswith(wanted):
            seen = seen[-len(wanted) + 1:] + read_exactly(port, 1, deadline)
    except TimeoutError:
        raise Broken(f"the guest does not answer within {seconds} s; its console:\n{console()[-3000:]}") from None


# ---- for tests ----

class Guest:
    """The running guest. `with guest() as vm: vm.run("uname -r")`."""

    def __init__(self, flavour, version):
        self.flavour = flavour
        self.version = version

    @contextlib.contextmanager
    def port(self):
        """One that nobody else uses."""
        def try_one():
            for i in range(PORTS):
                handle = open(RUN / f"port{i}.lock", "w")
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    found.append((i, handle))
                    return True
                handle.close()
            return False

        found = []
        t.wait_until(try_one, 120, "one of the guest's ports is free")
        with found[0][1], connect(found[0][0]) as port:
            synchronize(port, BOOT_SECONDS)
            yield port

    def run(self, command, timeout=60, env=None, input=b"", check=False):
        """A shell command, or a list of words, in the guest; a CompletedProcess with text."""
        if not isinstance(command, str):
            command = shlex.join(str(word) for word in command)
        words = "".join(f"export {key}={shlex.quote(str(value))}; " for key, value in (env or {}).items())
        out, err = [], []
        with self.port() as port:
            deadline = time.monotonic() + timeout
            send(port, "r", (words + command).encode())
            for start in range(0, len(input), 1 << 16):
                send(port, "i", input[start:start + (1 << 16)])
            send(port, "c")
            try:
                while True:
                    kind, data = receive(port, deadline)
                    if kind == "x":
                        break
                    (out if kind == "o" else err).append(data)
            except TimeoutError:
                send(port, "k")
                text = b"".join(out + err).decode(errors="replace")
                raise AssertionError(f"in the guest, no end after {timeout} s: {command}\n{text}") from None
        done = subprocess.CompletedProcess(command, data[0], *(b"".join(part).decode(errors="replace") for part in (out, err)))
        if check:
            t.check(done.returncode == 0, f"in the guest, {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def path(self, path):
        """Where the guest sees a file of the build tree or of this tree."""
        path = pathlib.Path(path).resolve()
        for folder, name in ((t.BUILD, "/build"), (t.ROOT, "/tree")):
            if path.is_relative_to(folder):
                return f"{name}/{path.relative_to(folder)}"
        raise ValueError(f"the guest does not see {path}")

    def address(self, server):
        """A towlined of the host, seen from the guest."""
        return f"tcp://{HOST}:{server.port()}"

    def towline_run(self, server, command, **more):
        return self.run([self.path(t.TOWLINE), "run", "-s", self.address(server), "--", *command], **more)


@contextlib.contextmanager
def guest(flavour="plain"):
    """The running guest of this flavour; starts it where there is none. It stays if TOWLINE_VM_KEEP is set, until
    `tests/vm/guest stop`; it turns itself off when nobody has used it for 15 minutes."""
    image.must_have()
    try:
        while True:
            with guest_lock(fcntl.LOCK_SH):
                found = running()
                if found and found[1] == flavour:
                    yield Guest(flavour, (image.CACHE / "kernel" / "version").read_text())
                    return
            with guest_lock(fcntl.LOCK_EX):
                found = running()
                if not found or found[1] != flavour:
                    stop_running()
                    start(flavour)
    finally:
        if not os.environ.get("TOWLINE_VM_KEEP"):
            stop()


def stop():
    with guest_lock(fcntl.LOCK_EX):
        stop_running()
