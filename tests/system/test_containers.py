#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers: the file that `towline cdi` writes, and what podman makes of it with an image that knows nothing of Towline."""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import podman as p  # noqa: E402
import towtest as t  # noqa: E402

LIBRARIES = "/usr/lib/towline"
KEYS = "/etc/towline/known_servers"
PLAIN = "localhost/plain"


def cdi(*words, code=0, **variables):
    done = t.run([t.TOWLINE, "cdi", *words], env=t.clean_environment(**variables))
    t.equal(done.returncode, code, f"the exit code of towline cdi {words} ({done.stdout}{done.stderr})")
    return done


def device(done):
    """Its name, what its container's environment is, and which file is where in it."""
    whole = json.loads(done.stdout)
    t.equal((whole["kind"], len(whole["devices"])), ("towline/gpu", 1), "what the file is about")
    edits = whole["devices"][0]["containerEdits"]
    t.equal(sorted(edits), ["env", "mounts"], "what a container is given")
    for mount in edits["mounts"]:
        t.check("ro" in mount["options"], f"a container may write to {mount}")
    return (whole["devices"][0]["name"], dict(word.split("=", 1) for word in edits["env"]),
            {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]})


@t.test(trees=("plain", "asan"))
def a_container_is_given_what_the_server_needs():
    with tempfile.TemporaryDirectory() as folder:
        token = pathlib.Path(folder, "token")
        token.write_text("no token\n")
        token.chmod(0o600)
        done = cdi("-s", "gpuhost", TOWLINE_TOKEN_FILE=str(token))
        name, variables, files = device(done)
        t.equal((name, done.stderr), ("all", ""), "the device, and what is said")
        t.equal(variables, {"TOWLINE_SERVER": "tcp://gpuhost", "LD_LIBRARY_PATH": LIBRARIES, "TRITON_LIBCUDA_PATH": LIBRARIES,
                            "TOWLINE_TOKEN_FILE": "/etc/towline/token"}, "the variables")
        t.equal(files, {LIBRARIES: os.path.realpath(t.BUILD / "lib"), "/etc/towline/token": os.path.realpath(token)}, "the files")
        _, variables, _ = device(cdi("-s", "a,b", "--library-path", "/opt/lib:/opt/other"))
        t.equal((variables["TOWLINE_SERVER"], variables["LD_LIBRARY_PATH"]),
                ("tcp://a,tcp://b", f"{LIBRARIES}:/opt/lib:/opt/other"), "two servers, and the image's own folders")
        t.check("is the container itself" in cdi("-s", "localhost").stderr, "nobody said whose localhost it is")
        authority = pathlib.Path(folder, "ca.pem")
        authority.write_text("")
        _, variables, files = device(cdi("-s", "tls://gpuhost", TOWLINE_TLS_CA=str(authority)))
        t.equal((variables["TOWLINE_TLS_CA"], files["/etc/towline/ca.pem"], KEYS in files),
                ("/etc/towline/ca.pem", os.path.realpath(authority), False), "certificates in place of keys")
        target = pathlib.Path(folder, "new", "towline.json")
        said = cdi("-s", "gpuhost", "--name", "lab.1", "--output", target).stdout
        t.check("podman run --device towline/gpu=lab.1 IMAGE PROGRAM" in said and "Once it lies in /etc/cdi, a container" in said, said)
        t.equal((json.loads(target.read_text())["devices"][0]["name"], target.stat().st_mode & 0o777), ("lab.1", 0o644), "the file")


# With /etc/towline and /etc/cdi of its own.
OTHER_ETC = """
mount -t tmpfs tmpfs /run && mkdir /run/new /run/work && mount -t overlay -o lowerdir=/etc,upperdir=/run/new,workdir=/run/work overlay /etc &&
install -Dm644 "$1" /etc/towline/known_servers && shift && exec "$@"
"""


@t.test(trees=("plain", "asan"))
def keys_of_the_machine_are_given_before_those_of_a_user():
    """Only its owner can read a user's, also in a container."""
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder, "towline", "known_servers")
        own.parent.mkdir()
        own.write_text(f"gpuhost:4838 sha256:{'5a' * 32}\n")
        own.chmod(0o600)
        settings = {"HOME": folder, "XDG_CONFIG_HOME": folder}
        done = cdi("-s", "tls://gpuhost:4838", **settings)
        t.equal(device(done)[2][KEYS], str(own), "the user's")
        t.check(f"the user with number {os.getuid()} can read {own} in a container; for others put the line" in done.stderr, done.stderr)
        elsewhere = ["unshare", "-m", "sh", "-c", OTHER_ETC, "sh"]
        if os.getuid() != 0 or t.run([*elsewhere, own, "true"]).returncode != 0:
            raise t.Skip("nobody may change /etc for himself here")
        words = [t.TOWLINE, "cdi", "-s", "tls://gpuhost:4838"]
        done = t.run([*elsewhere, own, *words], env=t.clean_environment(**settings))
        t.equal((device(done)[2][KEYS], done.stderr), (KEYS, ""), "the machine's")
        done = t.run([*elsewhere, own, *words, "-o", "/etc/cdi/all.json"], env=t.clean_environment(**settings))
        t.check("/etc/cdi/all.json. A container gets" in done.stdout, f"{done.stdout}{done.stderr}")
        other = pathlib.Path(folder, "other")
        other.write_text(f"gpuhost:4838 sha256:{'00' * 32}\n")
        done = t.run([*elsewhere, other, *words], env=t.clean_environment(**settings))
        t.equal(device(done)[2][KEYS], str(own), "the user's, where the machine's is another key")


@t.test(trees=("plain", "asan"))
def a_secret_that_others_can_read_is_not_given():
    with tempfile.TemporaryDirectory() as folder:
        secret = pathlib.Path(folder, "secret")
        secret.write_text("")
        secret.chmod(0o640)
        for variable in ("TOWLINE_TOKEN_FILE", "TOWLINE_TLS_KEY"):
            done = cdi("-s", "gpuhost", code=1, **{variable: str(secret)})
            t.check(f"others can read {secret}, and programs do not use it then; run chmod 600 {secret}" in done.stderr, done.stderr)


@t.test(trees=("plain", "asan"))
def what_a_container_cannot_use_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder, "file")
        plain.write_text("")
        home = {"HOME": folder, "XDG_CONFIG_HOME": folder}
        for words, code, sentence in (
                (["-s", "ssh://gpuhost"], 1, "a container cannot use ssh://gpuhost; name a server by HOST, tls://HOST or the path of a socket"),
                (["-s", "self:"], 1, "a container cannot use self:"),
                (["-s", "@name"], 1, "a container cannot reach the socket @name; have towlined listen on a path that begins with /"),
                (["-s", f"{folder}/none"], 1, f"{folder}/none cannot be given to a container: No such file or directory"),
                (["-s", plain], 1, f"{plain} is no socket; name the one that towlined listens on"),
                (["-s", "tls://gpuhost:4838"], 1, "the key of tls://gpuhost:4838 is not known here; run towline trust tls://gpuhost:4838"),
                (["-s", "gpuhost", "--name", "a/b"], 2, "--name=a/b is no name of a CDI device"),
                (["-s", "gpuhost", "--name", ""], 2, "is no name of a CDI device"),
                (["-s", "gpuhost", "--output", "x.yaml"], 2, "the file's name must end with .json"),
                (["-s", "gpuhost", "--output", f"{plain}/x.json"], 1, f"{plain}/x.json cannot be written: ")):
            done = cdi(*words, code=code, **home)
            t.check(sentence in done.stderr and not done.stdout, f"{words}: {sentence!r} is not in: {done.stderr}{done.stdout}")


# ---- podman ----

@t.test(180)
def an_unmodified_image_computes_on_the_servers_gpu():
    """By each way to a server; without the device its program finds no driver."""
    p.need()
    t.need_tls()
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "session.c", ["-lcuda"], "session")
    with tempfile.TemporaryDirectory(prefix="towline-podman-") as folder, t.TlsServer() as server:
        podman = p.Podman(folder)
        podman.make_image(program)
        done = podman.run(PLAIN)
        t.check(done.returncode != 0 and "libcuda.so.1" in done.stderr, f"without the device: {done.returncode}, {done.stderr}")
        for kind in ("unix", "tcp", "tls"):
            cdi("-s", server.address(kind), "--name", kind, "--output", podman.folder / "cdi" / f"{kind}.json", **server.settings)
        for kind in ("unix", "tcp", "tls"):
            done = podman.run(PLAIN, "--device", f"towline/gpu={kind}")
            t.equal((done.returncode, done.stdout), (0, "OK\n"), f"over {kind} ({done.stderr})")


# ---- examples ----

PACKAGING = t.ROOT / "packaging"
EXAMPLES = ("compose/compose.yaml", "kubernetes/server.yaml", "kubernetes/client.yaml")


def inside(node):
    """Every dictionary in a document."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from inside(child)


def documents():
    try:
        import yaml
    except ImportError as error:
        raise t.Skip("python3-yaml is not installed") from error
    return {name: yaml.safe_load((PACKAGING / name).read_text()) for name in EXAMPLES}


@t.test()
def examples_use_flags_and_variables_that_exist():
    flags = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", t.run([t.TOWLINED, "--help"]).stdout, re.M)) | {"-l"}
    manual = (t.ROOT / "docs" / "man" / "towline.1").read_text()
    seen = set()
    for name, document in documents().items():
        for node in inside(document):
            words = [*node.get("args", []), *(node.get("command", []) if node.get("image", "").startswith("localhost/towlined") else [])]
            used = {word.split("=")[0] for word in words if isinstance(word, str) and word.startswith("-")}
            t.check(used <= flags, f"{name}: towlined has no {used - flags}")
            variables = node["environment"] if isinstance(node.get("environment"), dict) else [node.get("name", "")]
            for variable in variables:
                if str(variable).startswith("TOWLINE_"):
                    t.check(re.search(rf"\b{variable}\b", manual), f"{name}: {variable} is not in the manual")
                    seen.add(variable)
            seen |= used
    t.check({"--token-file", "--tls-key", "-l", "TOWLINE_SERVER", "TOWLINE_TOKEN"} <= seen, f"only {seen} were looked at")


@t.test()
def the_server_of_the_example_for_kubernetes_starts():
    """With a folder of its own in place of the Secret's."""
    t.need_tls()
    container = documents()["kubernetes/server.yaml"]["spec"]["template"]["spec"]["containers"][0]
    if not shutil.which("openssl"):
        raise t.Skip("openssl, which makes certificates, is not installed")
    with tempfile.TemporaryDirectory() as folder:
        made = t.run([t.TOWLINED, "token", "create", "--user", "ann", "--token-file", f"{folder}/tokens"])
        t.equal(made.returncode, 0, f"towlined token create ({made.stderr})")
        done = t.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=node",
                      "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt"])
        t.equal(done.returncode, 0, f"openssl req ({done.stderr})")
        flags = [word.replace("/etc/towline-secret", folder).replace("0.0.0.0:4837", "127.0.0.1:0") for word in container["args"]]
        with t.Server(*[word for word in flags if "listen" not in word], listen=[word.split("=", 1)[1] for word in flags if "listen" in word]) as server:
            address = server.address("tls")
            env = t.clean_environment(TOWLINE_TLS_CA=f"{folder}/tls.crt", TOWLINE_TOKEN=made.stdout.strip())
            done = t.run([t.TOWLINE, "devices", "-s", address], env=env)
            t.check(done.returncode == 0 and "Software GPU" in done.stdout, f"a client with the Secret's: {done}")
            del env["TOWLINE_TOKEN"]
            done = t.run([t.TOWLINE, "devices", "-s", address], env=env)
            t.check(done.returncode != 0 and "token" in done.stderr, f"a client without a token: {done}")


if __name__ == "__main__":
    t.main()
