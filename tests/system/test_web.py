#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`towlined --http`: metrics, health and JSON over HTTP; who may see and end what; what no browser would say."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import cutter  # noqa: E402
import towtest as t  # noqa: E402
from web import Web, holding  # noqa: E402

MIB = 1 << 20


# ---- OpenMetrics ----

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[n"\\])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,{LABEL})*)\}})? (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)$")


def open_metrics(text):
    """What the format's specification asks for, and nothing that it lets pass: {name: {labels: value}}."""
    t.check(text.endswith("\n# EOF\n"), f"the end of {text[-80:]!r}")
    t.check("\r" not in text and "\n\n" not in text, "ends of lines")
    samples, family, seen, kind, unit = {}, None, set(), None, None
    for line in text.splitlines()[:-1]:
        meta = re.match(rf"# (TYPE|UNIT|HELP) ({NAME}) (.+)$", line)
        if meta:
            if meta.group(1) == "TYPE":
                family, kind, unit = meta.group(2), meta.group(3), None
                t.check(family not in seen, f"{family} comes twice")
                seen.add(family)
                t.check(kind in ("gauge", "counter"), line)
                t.check(not family.endswith("_total"), line)
            t.equal(meta.group(2), family, "whose line it is")
            if meta.group(1) == "UNIT":
                unit = meta.group(3)
                t.check(family.endswith("_" + unit), line)
            continue
        found = SAMPLE.match(line)
        t.check(found, f"no sample: {line!r}")
        t.equal(found.group(1), family + ("_total" if kind == "counter" else ""), "the sample's name")
        labels = tuple(re.findall(LABEL, found.group(2) or ""))
        t.equal(len({name for name, _ in labels}), len(labels), f"names of labels in {line}")
        of_name = samples.setdefault(found.group(1), {})
        t.check(labels not in of_name, f"{line} comes twice")
        of_name[labels] = float(found.group(7))
    return samples


def metrics(server):
    """Those of now: the process for HTTP answers several who come at once with one report."""
    asked, found = server.status()["uptime_s"], []

    def new():
        status, fields, body = server.ask("/metrics")
        t.equal(status, 200, "the status")
        t.equal(fields["Content-Type"], "application/openmetrics-text; version=1.0.0; charset=utf-8", "the type")
        found.append(open_metrics(body))
        return found[-1]["towline_uptime_seconds"][()] >= asked
    t.wait_until(new, 10, "the metrics are newer than the status")
    return found[-1]


@t.test(trees=("plain", "asan"))
def metrics_agree_with_the_status():
    with Web("--soft-devices=2") as server:
        before = metrics(server)
        t.equal(before["towline_sessions"], {(): 0}, "sessions")
        t.equal([dict(labels)["gpu"] for labels in before["towline_gpu_info"]], ["0", "1"], "GPUs")
        with holding(server.address()), holding(server.address(), mode="launch"):
            now, state = metrics(server), server.status()
            t.equal(now["towline_sessions"][()], len(state["sessions"]), "sessions")
            t.equal(now["towline_workers"][(("state", "busy"),)], state["workers"]["busy"], "workers")
            t.equal(now["towline_sessions_limit"][()], state["max_sessions"], "the most sessions")
            for gpu in range(2):
                key = (("gpu", str(gpu)),)
                t.equal(now["towline_gpu_memory_size_bytes"][key], state["devices"][gpu]["memory"], "memory")
                t.equal(now["towline_gpu_memory_used_bytes"][key], sum(s["used"][gpu] for s in state["sessions"]), f"GPU {gpu}'s use")
            t.check(now["towline_gpu_memory_used_bytes"][(("gpu", "0"),)] >= 256 * MIB, now)
            t.wait_until(lambda: metrics(server)["towline_calls_total"][()] > now["towline_calls_total"][()], 20, "calls are counted")
        t.wait_until(lambda: metrics(server)["towline_sessions"][()] == 0, 20, "the sessions end")
        ended = metrics(server)
        t.equal(ended["towline_sessions_served_total"][()], 2, "sessions so far")
        t.check(ended["towline_calls_total"][()] >= now["towline_calls_total"][()], "a counter goes back when sessions end")
        t.check(ended["towline_received_bytes_total"][()] > 0 and ended["towline_sent_bytes_total"][()] > 0, ended)
        totals = server.status()["totals"]
        t.equal([totals["sessions"], totals["calls"]], [ended[f"towline_{name}_total"][()] for name in ("sessions_served", "calls")], "totals")


def states(server):
    return {labels[0][1]: value for labels, value in metrics(server)["towline_session_states"].items()}


def detached(server):
    return any("detached_s" in session for session in server.status()["sessions"])


@t.test(trees=("plain", "asan"))
def sessions_that_are_cut_off_or_suspended_are_counted():
    with Web() as server, holding(server.address()), cutter.Cutter(server.port()) as proxy, holding(proxy.address, mode="poll"):
        t.equal(states(server), {"running": 2, "detached": 0, "suspended": 0}, "two that run")
        t.equal(t.run([t.TOWLINE, "suspend", "-s", server.address(), "1"]).returncode, 0, "exit code of towline suspend")
        proxy.down = True
        proxy.cut_all()
        t.wait_until(lambda: detached(server), 10, "the second one is detached")
        t.equal(states(server), {"running": 0, "detached": 1, "suspended": 1}, "neither runs")
        report = server.json("/status.json")
        t.equal((report["sessions"], report["states"]), ([], {"detached": 1, "suspended": 1}), "what everybody sees")
        t.equal(server.status()["states"], {"detached": 1, "suspended": 1}, "what towline status --json has")
        proxy.down = False
        t.wait_until(lambda: not detached(server), 10, "it goes on")
        t.equal(t.run([t.TOWLINE, "resume", "-s", server.address(), "1"]).returncode, 0, "exit code of towline resume")
        t.equal(states(server), {"running": 2, "detached": 0, "suspended": 0}, "both run")


@t.test()
def names_of_dcgm_come_when_asked_for():
    with Web() as server:
        t.check(not any(name.startswith("DCGM") for name in metrics(server)), "names of DCGM")
    with Web("--http-dcgm") as server, holding(server.address()):
        found = metrics(server)
        (labels, used), = found["DCGM_FI_DEV_FB_USED"].items()
        t.equal([name for name, _ in labels], ["gpu", "UUID", "device", "modelName"], "labels")
        t.equal(used, found["towline_gpu_memory_used_bytes"][(("gpu", "0"),)] // MIB, "memory in MiB")


@t.test()
def promtool_has_no_complaint():
    tool = shutil.which("promtool")
    if not tool:
        raise t.Skip("there is no promtool (apt install prometheus)")
    with Web() as server, holding(server.address()):
        _, fields, body = server.ask("/metrics", Accept="text/plain")
        t.check(fields["Content-Type"].startswith("text/plain; version=0.0.4"), fields)
        done = subprocess.run([tool, "check", "metrics"], input=body, capture_output=True, text=True)
        t.equal((done.returncode, done.stderr), (0, ""), "promtool's exit code and what it says")


@t.test()
def grafanas_board_asks_for_what_there_is():
    """Of GPUs also what the software GPU does not know: the table in the code has it."""
    board = json.loads((t.ROOT / "packaging" / "grafana" / "towline.json").read_text())
    wanted = {name for panel in board["panels"] for target in panel["targets"] for name in re.findall(r"towline_\w+", target["expr"])}
    table = (t.ROOT / "src" / "server" / "web" / "metrics.c").read_text()
    known = {name + end for name in re.findall(r'"(towline_\w+)"', table) for end in ("", "_total")}
    t.check(len(wanted) > 10 and not wanted - known, wanted - known)
    with Web() as server:
        there = set(metrics(server))
    t.check(there >= {name for name in wanted if not re.search("utilization|temperature|power", name)}, wanted - there)


@t.test(limit=120)
def prometheus_scrapes_it():
    tool = shutil.which("prometheus")
    if not tool:
        raise t.Skip("there is no prometheus (apt install prometheus)")
    with Web() as server, holding(server.address()), socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        config = server.folder / "prometheus.yml"
        config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: towline\n  static_configs:\n"
                          f"  - targets: ['127.0.0.1:{server.port_of_page}']\n")
        with subprocess.Popen([tool, f"--config.file={config}", f"--storage.tsdb.path={server.folder / 'tsdb'}",
                               f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            def value(query):
                with contextlib.suppress(OSError, ValueError, LookupError):
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                    with contextlib.closing(connection):
                        connection.request("GET", f"/api/v1/query?query={query}")
                        return json.loads(connection.getresponse().read())["data"]["result"][0]["value"][1]
                return None
            try:
                t.wait_until(lambda: value("towline_sessions") == "1" and value("up") == "1", 60, "Prometheus has seen the session")
                t.check(int(value("towline_gpu_memory_used_bytes")) >= 256 * MIB, "memory")
            finally:
                process.kill()


# ---- who may ----

@t.test(trees=("plain", "asan", "tsan"))
def without_a_token_there_are_totals_only():
    with Web() as server, holding(server.address()):
        t.wait_until(lambda: server.json("/status.json")["workers"]["busy"] == 1, 10, "a report with the session")
        report = server.json("/status.json")
        t.equal((report["sessions"], report["others"]["sessions"]), ([], 1), "what everybody sees")
        t.check("listen" not in report and "pid" not in report, report)
        t.check("hold" not in json.dumps(report), "the program's name")
        t.equal(server.ask("/sessions/1/end", "POST")[0], 401, "the answer to an order without a token")
        t.equal(len(server.status()["sessions"]), 1, "sessions")


@t.test(trees=("plain", "asan"))
def with_a_token_one_sees_and_ends_ones_own():
    with Web("--require-token", "--http-admins=root,chief") as server:
        ann, bob, chief = (server.token(name) for name in ("ann", "bob", "chief"))
        tcp = server.address("tcp")
        with holding(tcp, ann) as first, holding(tcp, bob) as second:
            seen = server.json("/status.json", ann)
            t.equal(([s["tenant"] for s in seen["sessions"]], seen["you"]), (["ann (token)"], "ann (token)"), "what ann sees")
            everything = server.json("/status.json", chief)
            t.equal(sorted(s["tenant"] for s in everything["sessions"]), ["ann (token)", "bob (token)"], "what an administrator sees")
            of = {s["tenant"][:3]: s["id"] for s in everything["sessions"]}
            state = {s["id"]: s for s in server.status()["sessions"]}
            for session in everything["sessions"]:
                t.equal({name: session[name] for name in ("client", "memory", "used", "gpu", "worker_pid")},
                        {name: state[session["id"]][name] for name in ("client", "memory", "used", "gpu", "worker_pid")}, "as the status has it")
            path = f"/sessions/{of['bob']}/end"
            status, _, said = server.ask(path, "POST", ann)
            t.equal(status, 404, f"the answer to another's order ({said})")
            t.check("you have no session" in said, said)
            t.equal(server.ask(path, "POST", bob, Origin="http://evil.example")[0], 403, "an order of another site's page")
            t.equal(server.ask(path, "GET", bob)[0], 405, "an order by GET")
            t.equal((first.poll(), second.poll(), len(server.status()["sessions"])), (None, None, 2), "nothing has ended")
            own = f"http://127.0.0.1:{server.port_of_page}"
            t.equal(server.ask(f"/sessions/{of['ann']}/end", "POST", ann, Origin=own)[0], 200, "one's own")
            t.wait_until(lambda: [s["id"] for s in server.status()["sessions"]] == [of["bob"]], 20, "ann's session ends")
            t.equal(server.ask(path, "POST", chief)[0], 200, "an administrator's order")
            t.wait_until(lambda: not server.status()["sessions"], 20, "bob's session ends")
            t.check("bob" not in json.dumps(server.json("/status.json")), "what everybody sees")
        t.check("ann (token) asked for it (http)" in server.log(), server.log())


@t.test(trees=("plain", "asan"))
def wrong_tokens_are_refused_and_slowed_down():
    with Web() as server:
        good = server.token("ann")
        wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
        t.equal(server.json("/status.json", good)["you"], "ann (token)", "who it is: no --require-token is needed")
        for token in (wrong, "towl-00", "x" * 400):
            status, fields, _ = server.ask("/status.json", token=token)
            t.equal((status, fields.get("WWW-Authenticate")), (401, 'Bearer realm="towline"'), "the answer")
        t.check(re.search(r"http://127\.0\.0\.1:\d+ was refused: with token \w+: its secret is another", server.log()), server.log())
        start = time.monotonic()
        for _ in range(3):
            server.ask("/status.json", token=wrong)
        t.check(time.monotonic() - start > 1, "wrong tokens are answered at once")
        t.equal(server.ask("/healthz")[2], "ok\n", "the health")
        done = t.run([t.TOWLINED, "token", "revoke", good.split("-")[1], "--token-file", server.folder / "tokens"])
        t.equal(done.returncode, 0, done.stderr)
        t.wait_until(lambda: server.ask("/status.json", token=good)[0] == 401, 20, "a token that was revoked is none")


@t.test()
def other_names_are_refused():
    with Web("--http-name=gpu.example,other.example") as server:
        port = server.port_of_page
        for host, status in (("localhost", 200), (f"127.0.0.1:{port}", 200), ("[::1]:80", 200), ("gpu.example", 200), ("OTHER.example:1", 200),
                             (socket.gethostname(), 200), ("evil.example", 421), ("gpu.example.evil.example", 421), ("gpu", 421),
                             ("127.0.0.1.evil.example", 421), ("", 400), ("a b", 400), ("[::1", 400), ("a:b", 400), ("a:1234567", 400)):
            t.equal(server.say(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).split()[1:2], [str(status)], f"the answer to {host}")


# ---- what no browser says ----

HEAD = b"Host: localhost\r\n"
MALFORMED = [
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 200),
    (b"HEAD /healthz HTTP/1.0\r\n" + HEAD + b"\r\n", 200),
    (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\n" + HEAD + b"\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X : y\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b" folded\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: a\0b\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: a\rb\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"nothing\r\n\r\n", 400),
    (b"GET  /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"GET /healthz HTTP/1.1 \r\n" + HEAD + b"\r\n", 400),
    (b"GET /healthz\r\n\r\n", 400),
    (b"GET http://localhost/healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"GET /he\xc3\xa4lth HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"\r\nGET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"GET /healthz HTTP/1.1\r\nHost: loc", 400),
    (b"GET /healthz HTTP/2.0\r\n" + HEAD + b"\r\n", 505),
    (b"GET /healthz FTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"G\x7fT /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"DELETE /healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 405),
    (b"OPTIONS /sessions/1/end HTTP/1.1\r\n" + HEAD + b"\r\n", 405),
    (b"GET /nothing HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
    (b"GET /metrics/../healthz HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
    (b"GET /%6detrics HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
    (b"POST /sessions/18446744073709551616/end HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
    (b"POST /sessions/-1/end HTTP/1.1\r\n" + HEAD + b"\r\n", 404),
    (b"GET /history.json?after=x HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"GET /history.json?after=99999999999999999999 HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    (b"POST /sessions/1/end HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\n\r\nhello", 413),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: -1\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", 413),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Expect: 100-continue\r\n\r\n", 417),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Authorization: Basic YTpi\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\n" + HEAD + 2 * b"Authorization: Bearer x\r\n" + b"\r\n", 400),
    (b"GET /" + 600 * b"a" + b" HTTP/1.1\r\n" + HEAD + b"\r\n", 414),
    (b"GET /" + 9000 * b"a", 414),
    (b"GET / HTTP/1.1\r\n" + HEAD + b"X: " + 9000 * b"a" + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HEAD + 70 * b"X: a\r\n" + b"\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + HEAD + b"Authorization: Bearer " + 600 * b"a" + b"\r\n\r\n", 431),
]


@t.test(trees=("plain", "asan"), limit=120)
def malformed_requests_have_their_answers():
    with Web() as server:
        for request, status in MALFORMED:
            t.equal(server.say(request).split()[1:2], [str(status)], f"the answer to {request[:100]!r}")
        fuzz = random.Random(t.commit_seed())
        print(f"seed {t.commit_seed()}")
        for _ in range(400):
            request = bytearray(fuzz.choice(MALFORMED)[0])
            for _ in range(fuzz.randrange(1, 4)):
                request[fuzz.randrange(len(request)):fuzz.randrange(len(request) + 1)] = fuzz.randbytes(fuzz.randrange(4))
                request = request or bytearray(b"\0")
            line = server.say(bytes(request))
            t.check(re.match(r"HTTP/1\.1 \d\d\d [A-Z]|$", line), f"the answer to {bytes(request)!r} is {line!r}")
        t.equal(server.ask("/healthz")[2], "ok\n", "the health")


@t.test(limit=180, trees=("plain", "asan"))
def ten_thousand_requests_leave_nothing_behind():
    if not t.sees_all_processes():
        raise t.Skip("only who sees all processes can look into those of a server")
    with Web() as server:
        t.equal(server.ask("/healthz")[0], 200, "the health")
        page, count = server.process_of_page(), 10000 if t.TREE == "plain" else 1000

        def held():
            files = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (page, server.listener)]
            kib = [int(re.search(r"^VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))
                   for pid in (page, server.listener)]
            return files, kib

        def quiet():
            return len(os.listdir(f"/proc/{page}/task")) == 2
        malformed = [request for request, _ in MALFORMED]
        for i in range(300):
            server.say(b"GET /metrics HTTP/1.1\r\n" + HEAD + b"\r\n")
            server.say(malformed[i % len(malformed)])
        t.wait_until(quiet, 20, "all were answered")
        files, kib = held()
        start = time.monotonic()
        for i in range(count):
            answer = server.say(b"GET /metrics HTTP/1.1\r\n" + HEAD + b"\r\n")
            t.equal(answer, "HTTP/1.1 200 OK", "the answer")
            if i % 50 == 0:
                server.say(malformed[i // 50 % len(malformed)])
        print(f"{count / (time.monotonic() - start):.0f} requests a second")
        t.wait_until(quiet, 20, "all were answered")
        t.wait_until(lambda: held()[0] == files, 20, f"descriptors are as before: {files}")
        grown = [now - before for now, before in zip(held()[1], kib)]
        print(f"memory has grown by {grown} KiB, from {kib}")
        t.check(t.TREE != "plain" or max(grown) < 1024, f"memory has grown by {grown} KiB")


@t.test(limit=120)
def slow_clients_hold_nobody_up():
    with Web() as server, contextlib.ExitStack() as lines:
        for _ in range(32):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port_of_page), 60))
            line.sendall(b"GET /metrics HTTP/1.1\r\n")
            lines.line = line
        for path in ("/healthz", "/metrics"):
            t.equal(server.ask(path)[0], 200, f"{path} at the same address: who asks is not behind who does not")
        t.equal(lines.line.recv(100)[:12], b"HTTP/1.1 408", "the answer to the slow")
        t.equal(server.ask("/healthz")[0], 200, "the health behind them")


@t.test()
def a_server_that_drains_is_well_and_says_so():
    with Web() as server, t.held(server, "poll"):
        server.process.send_signal(signal.SIGUSR1)
        t.wait_until(lambda: server.ask("/healthz")[2] == "draining\n", 20, "the body of its health")
        t.equal(server.ask("/healthz")[0], 200, "its health: its programs go on")


@t.test()
def the_page_has_a_port_of_its_own_and_stays_where_it_is():
    for http, port in (("nowhere.invalid", 9837), ("http://nowhere.invalid", 9837), ("nowhere.invalid:77", 77), ("[2001:db8::1]", 9837)):
        with tempfile.TemporaryDirectory(prefix="tow") as folder:
            said = t.run([t.TOWLINED, "--device=soft", f"--listen=unix://{folder}/s", f"--http={http}"], 60).stderr
        t.check(f"{http.rpartition('/')[2].removesuffix(':77')}:{port}" in said, f"{http}: {said}")
    server = Web()
    config = server.folder / "conf"
    config.write_text("http-name = one\n")
    server.flags.append(f"--config={config}")
    with server:
        config.write_text("http-name = two\n")
        server.process.send_signal(signal.SIGHUP)
        t.wait_until(lambda: "other addresses, http-name, http-dcgm" in server.log(), 20, "the log says that the name stays")
        for name, status in (("one", "200"), ("two", "421")):
            t.equal(server.say(f"GET /healthz HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()).split()[1], status, f"the answer to {name}")


@t.test()
def all_addresses_of_the_loopback_are_one():
    if not t.sees_all_processes():
        raise t.Skip("only who sees all processes can look into those of a server")
    with Web() as server, contextlib.ExitStack() as lines:
        for i in range(64):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port_of_page), 60, source_address=(f"127.0.0.{i + 1}", 0)))
            line.sendall(b"G")
        t.wait_until(lambda: len(os.listdir(f"/proc/{server.process_of_page()}/task")) == 2 + 32, 4, "they have half of all places")


# ---- the process ----

@t.test()
def the_process_has_no_rights():
    if not t.sees_all_processes():
        raise t.Skip("only who sees all processes can look into those of a server")
    with Web() as server:
        t.equal(server.ask("/healthz")[0], 200, "it answers, so it has given up its rights")
        pid = server.process_of_page()
        state = pathlib.Path(f"/proc/{pid}/status").read_text()
        for name, value in (("CapPrm", "0" * 16), ("CapBnd", "0" * 16), ("NoNewPrivs", "1"), ("Seccomp", "2")):
            t.equal(re.search(rf"^{name}:\s+(\w+)", state, re.M).group(1), value, name)
        users = set(re.search(r"^Uid:\s+(.+)", state, re.M).group(1).split())
        t.equal(len(users), 1, f"its users {users}")
        if os.geteuid() == 0:
            others = {re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{other}/status").read_text(), re.M).group(1)
                      for other in (server.process.pid, server.listener)}
            t.check(not users & (others | {"0"}), f"its user {users} is another's: {others}")

        def descriptors():
            kinds = []
            with contextlib.suppress(FileNotFoundError):  # of a connection that has just ended
                kinds = [os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")]
            return sorted(kinds) == sorted(["/dev/null", str(server.log_path), str(server.log_path), "socket", "socket"])
        t.wait_until(descriptors, 10, "two sockets are all that it has, beside the log")


@t.test()
def it_comes_again_and_ends_with_its_server():
    if not t.sees_all_processes():
        raise t.Skip("only who sees all processes can look into those of a server")
    with Web() as server:
        t.equal(server.ask("/healthz")[0], 200, "the health")
        first = server.process_of_page()
        os.kill(first, signal.SIGKILL)

        def answers():
            with contextlib.suppress(OSError, http.client.HTTPException):
                return server.ask("/healthz")[0] == 200
        t.wait_until(lambda: server.process_of_page() not in (None, first) and answers(), 20, "another process answers")
        t.check("the process for HTTP has ended: another is started" in server.log(), server.log())
        last = server.process_of_page()
        os.kill(server.listener, signal.SIGSTOP)
        try:
            t.wait_until(lambda: server.ask("/healthz")[0] == 503, 20, "a listener that stands still is no health")
            t.equal(server.ask("/metrics")[0], 503, "the metrics of one")
        finally:
            os.kill(server.listener, signal.SIGCONT)
        t.wait_until(lambda: server.ask("/healthz")[0] == 200, 20, "its health again")
        server.stop()
        t.wait_until(lambda: t.gone(last), 20, "it ends with its server")


@t.test()
def it_comes_again_where_nothing_else_goes_on():
    if not t.sees_all_processes():
        raise t.Skip("only who sees all processes can look into those of a server")
    with Web("--idle-workers=0") as server:
        server.process.send_signal(signal.SIGHUP)  # the worker of the start goes
        t.wait_until(lambda: metrics(server)["towline_workers"][(("state", "idle"),)] == 0, 20, "no worker is there")
        for _ in range(3):  # within a second of its start it is not started at once
            last = server.process_of_page()
            os.kill(last, signal.SIGKILL)
            t.wait_until(lambda: server.process_of_page() not in (None, last), 20, "another process")


@t.test()
def addresses_that_cannot_be_are_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken, tempfile.TemporaryDirectory() as folder:
        for address, said in ((str(taken.getsockname()[1]), "already listens"), ("nowhere.invalid:1", "nowhere.invalid"), ("x", "host name in tcp://x:"),
                              ("tcp://127.0.0.1", "write PORT or HOST:PORT"), ("tls://127.0.0.1:0", "write PORT or HOST:PORT"),
                              (f"/{folder}/h.sock", "write PORT or HOST:PORT"), (f"unix://{folder}/h.sock", "write PORT or HOST:PORT")):
            done = t.run([t.TOWLINED, "--device=soft", "-l", f"unix://{folder}/s.sock", f"--http={address}"])
            t.check(done.returncode == 1 and said in done.stderr, f"{address}: {done}")
    with Web("--http=http://127.0.0.1:0", "--socket-mode=0600") as server:
        t.equal(server.ask("/healthz")[0], 200, "a whole address")


if __name__ == "__main__":
    t.main()
