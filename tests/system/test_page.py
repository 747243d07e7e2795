#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The live page of `towlined --http` in a headless Chromium: programs that come and go, a lost server, many sessions, hostile names.

`test_page.py pictures FOLDER` writes the pictures of the docs.
"""

import contextlib
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
from browser import Browser  # noqa: E402
from web import Web, holding  # noqa: E402

t.same_for_all_users()

MIB = 1 << 20

PAGE = t.ROOT / "src" / "server" / "web" / "page"
HOSTILE = "</td><script>window.broken=1</script><img src=x onerror=window.broken=1>\"'`${window.broken=1}\u202e\u0000"
SESSIONS = "document.querySelectorAll('#rows tr').length"


def clean(browser):
    t.equal(browser.complaints, [], "what the browser complains of")


def log_in(browser, token):
    browser.ask("document.getElementById('token').focus()")
    browser.type(token)
    browser.press("Enter", 13, "\r")


@t.test(limit=180, uses="chromium")
def programs_come_and_go():
    with Web("--soft-devices=2", "--require-token", "--http-admins=chief") as server, Browser() as browser, contextlib.ExitStack() as programs:
        ann, chief = server.token("ann"), server.token("chief")
        browser.open(f"http://127.0.0.1:{server.port_of_page}/")
        browser.wait("document.querySelectorAll('.gpu').length === 2", "two GPUs")
        browser.wait("document.querySelectorAll('#charts .chart').length === 5", "five charts")
        t.check("0 of at most 256" in browser.text("#sessions-title"), browser.text("#sessions-title"))
        programs.enter_context(holding(server.address(), mode="launch"))
        of_ann = programs.enter_context(holding(server.address("tcp"), ann))
        browser.wait("document.getElementById('count').innerText.startsWith('2 ')", "both are counted")
        t.equal(browser.ask(SESSIONS), 0, "sessions that somebody without a token sees")
        t.check("2 sessions of users who are not shown" in browser.text("#none"), browser.text("#none"))
        t.check("hold" not in browser.text("body"), "the program's name")
        used = [sum(s["used"][gpu] for s in server.status()["sessions"]) for gpu in range(2)]
        t.equal(browser.ask("[...document.querySelectorAll('.gpu')].map(e => Number(e.dataset.used))"), used, "what is used, as the status has it")
        t.check(used[0] >= 256 * MIB, used)
        log_in(browser, ann)
        browser.wait(f"{SESSIONS} === 1", "ann's own session")
        t.equal(browser.text("#you"), "You are ann (token).", "who it is")
        browser.ask("document.getElementById('logout').click()")
        browser.wait(f"{SESSIONS} === 0", "nobody is logged in")
        log_in(browser, chief)
        browser.wait(f"{SESSIONS} === 2", "all sessions")
        state = {s["id"]: s for s in server.status()["sessions"]}
        shown = browser.ask("[...document.querySelectorAll('#rows tr')].map(r => [...r.cells].slice(0, 7).map(c => c.innerText))")
        wanted = sorted([str(s["id"]), s["client"], str(s["client_pid"]), s["tenant"], s["peer"], str(s["gpu"]),
                         f"{s['memory'] // MIB} MiB" if s["memory"] else "0 B"]
                        for s in state.values())
        t.equal(sorted(shown), wanted, "the table, as the status has it")
        browser.wait("[...document.querySelectorAll('#rows tr')].some(r => r.lastChild.previousSibling.innerText === 'running')", "one that runs")
        browser.wait("Number(document.getElementById('chart-calls').dataset.points) >= 2", "points of the charts")
        t.check("at most" in browser.ask("document.querySelector('#chart-calls svg').getAttribute('aria-label')"), "the chart's words")
        t.equal(browser.text("#chart-busy p"), "This server does not know how busy its GPUs are.", "the software GPU's use")
        # By the keyboard alone: to the button, which asks; no is no, yes is yes.
        session = next(number for number, s in state.items() if s["tenant"] == "ann (token)")
        focus = f"document.querySelector('tr[data-session=\"{session}\"] td:last-child button').focus()"
        browser.ask(focus)
        browser.press("Enter", 13, "\r")
        t.equal(browser.texts(f'tr[data-session="{session}"] td:last-child button'), ["End it", "No"], "the question")
        browser.press("Escape", 27)
        t.equal(browser.texts(f'tr[data-session="{session}"] td:last-child button'), ["End"], "no question any more")
        t.check(browser.ask("document.activeElement.innerText") == "End", "the focus stays")
        t.equal(len(server.status()["sessions"]), 2, "sessions")
        browser.press("Enter", 13, "\r")
        browser.press("Enter", 13, "\r")
        browser.wait(f"{SESSIONS} === 1", "the session has gone")
        t.check(session not in [s["id"] for s in server.status()["sessions"]], "the session is there")
        t.check(f"Session {session} ends." in browser.text("#said"), browser.text("#said"))
        t.equal(of_ann.poll(), None, "the program's own end")
        programs.close()
        browser.wait(f"{SESSIONS} === 0 && document.getElementById('none').innerText.startsWith('You have no')", "all have gone")
        clean(browser)


@t.test(limit=180, uses="chromium")
def a_server_that_is_lost_comes_again():
    with Web() as server, Browser() as browser:
        browser.open(f"http://localhost:{server.port_of_page}/")
        browser.wait("document.querySelectorAll('.gpu').length === 1 && document.getElementById('lost').hidden", "the page")
        os.kill(server.listener, signal.SIGSTOP)
        try:
            browser.wait("!document.getElementById('lost').hidden", "the page says that nobody answers")
            t.check("has not answered since" in browser.text("#lost") and "older" in browser.text("#lost"), browser.text("#lost"))
            t.check(browser.ask("document.querySelectorAll('.gpu').length") == 1, "what was known is still shown")
        finally:
            os.kill(server.listener, signal.SIGCONT)
        browser.wait("document.getElementById('lost').hidden", "the server again")
        server.stop()
        browser.wait("document.getElementById('lost').innerText.startsWith('There is no answer')", "it has gone for good")


@t.test(limit=120, uses="chromium")
def a_wrong_token_is_said():
    with Web() as server, Browser() as browser:
        browser.open(f"http://localhost:{server.port_of_page}/")
        browser.wait("document.querySelectorAll('.gpu').length === 1", "the page")
        log_in(browser, "towl-0")
        browser.wait("document.getElementById('said').innerText.includes('towlined token create')", "what is wrong")
        t.equal(browser.ask("token"), "", "the token that the page keeps")
        t.equal(browser.ask("localStorage.length + sessionStorage.length + document.cookie.length"), 0, "what the browser keeps")


# ---- pages of a server that is none ----

def faked_session(number, **more):
    return {"id": number, "client": f"train-{number}.py", "client_pid": 20000 + number, "peer": f"10.0.{number % 7}.{number}",
            "tenant": f"user{number % 9} (token)", "gpu": number % 8, "memory": (number % 40 + 1) * 256 * MIB, "calls": 1000 * number,
            "bytes_in": number << 20, "bytes_out": number << 18, "age_s": 30.0 * number, **more}


def faked_report(sessions):
    devices = [{"index": i, "name": "NVIDIA H200", "uuid": f"GPU-{i}", "memory": 141 << 30} for i in range(8)]
    gauges = [{"uuid": f"GPU-{i}", "util_gpu": 12 * i, "memory_used": i << 33, "temperature": 40 + i, "power": 90000 * (i + 1)} for i in range(8)]
    return {"version": "0", "uptime_s": 12345.6, "you": "chief (token)", "backend": "cuda", "description": "8 of NVIDIA H200", "failure": "",
            "devices": devices, "gauges": {"running": True, "devices": gauges}, "workers": {"starting": 1, "idle": 1, "busy": len(sessions)},
            "waiting": 3, "max_sessions": 256, "sessions": sessions}


class Faked:
    """Serves the page's files, and reports that a test writes."""

    def __init__(self, report):
        self.report = report
        self.history = {"every_s": 5, "at_s": [], "sessions": [], "waiting": [], "calls_per_s": [], "in_per_s": [], "out_per_s": [], "gpus": []}

    def __enter__(self):
        faked = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.split("?")[0].strip("/") or "index.html"
                made = {"status.json": lambda: faked.report, "history.json": lambda: faked.history}.get(name)
                data = json.dumps(made()).encode() if made else (PAGE / name).read_bytes()
                kind = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}.get(pathlib.Path(name).suffix,
                                                                                                                    "application/json")
                self.send_response(200)
                self.send_header("Content-Type", kind + "; charset=utf-8")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        return self

    def __exit__(self, *_):
        self.server.shutdown()


@t.test(limit=120, uses="chromium")
def two_hundred_sessions_are_sorted_and_filtered():
    with Faked(faked_report([faked_session(number) for number in range(1, 201)])) as faked, Browser() as browser:
        browser.open(faked.address)
        browser.wait(f"{SESSIONS} === 200", "all of them")
        ids = "[...document.querySelectorAll('#rows tr')].map(r => Number(r.dataset.session))"
        t.equal(browser.ask(ids), list(range(1, 201)), "by number at first")
        click = "document.querySelector('th[data-column=\"{}\"] button').click()"
        browser.ask(click.format("memory"))
        t.equal(browser.ask(ids), sorted(range(1, 201), key=lambda n: (-(n % 40), n)), "by memory, most first")
        t.equal(browser.ask("document.querySelector('th[data-column=memory]').getAttribute('aria-sort')"), "descending", "what is said of it")
        browser.ask(click.format("memory"))
        t.equal(browser.ask(ids), sorted(range(1, 201), key=lambda n: (n % 40, n)), "by memory, least first")
        browser.ask("document.getElementById('filter').focus()")
        browser.type("USER3 ")
        t.equal(sorted(browser.ask(ids)), [n for n in range(1, 201) if n % 9 == 3], "whose name has that")
        t.check("3 programs wait" in browser.text("#waiting"), browser.text("#waiting"))
        t.equal([line.split(",")[1].strip() for line in browser.texts(".gpu p")], [f"{12 * i} % busy" for i in range(8)], "how busy they are")
        faked.report = faked_report([faked_session(number) for number in range(3, 60)])
        browser.wait(f"{ids}.every(n => n < 60)", "those that have ended go")
        # On a phone nothing is wider than it.
        browser.resize(360, 740, phone=True)
        browser.wait("innerWidth === 360 && document.documentElement.scrollWidth <= 360", "nothing is wider than a phone")
        t.equal(browser.ask("getComputedStyle(document.querySelector('#rows td'), '::before').content"), '"Session"', "names beside values")
        colours = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
        light = browser.ask(colours)
        browser.dark()
        t.check(browser.ask(colours) != light, "dark is another colour")
        clean(browser)


@t.test(limit=120, uses="chromium")
def a_session_that_waits_says_so():
    sessions = [faked_session(1, state="running"), faked_session(2, state="detached", detached_s=12.4),
                faked_session(3, state="suspended", suspended_s=300.0), faked_session(4, state="resuming", suspended_s="long")]
    with Faked(dict(faked_report(sessions), states={"detached": 1, "suspended": 2})) as faked, Browser() as browser:
        browser.open(faked.address)
        browser.wait(f"{SESSIONS} === 4", "all of them")
        last = "[...document.querySelectorAll('#rows tr')].map(r => r.lastChild.previousSibling.innerText)"
        t.equal(browser.ask(last), ["idle", "detached for 12 s", "suspended for 5 min", "resuming"], "their states")
        t.equal(browser.text("#count"), "4 of at most 256, 1 detached, 2 suspended", "how many")
        browser.ask("document.getElementById('filter').focus()")
        browser.type("suspended")
        browser.wait(f"{SESSIONS} === 1", "the one that is")
        faked.report = faked_report([faked_session(2, calls=9000)])
        browser.wait("document.getElementById('count').innerText === '1 of at most 256'", "an older server's report")
        clean(browser)


@t.test(limit=120, uses="chromium")
def a_hostile_name_stays_text():
    session = faked_session(1, client=HOSTILE, tenant=HOSTILE, peer=HOSTILE)
    report = dict(faked_report([session]), you=HOSTILE, description=HOSTILE, failure=HOSTILE)
    report["devices"][0]["name"] = HOSTILE
    odd = faked_session(2, client=None, memory="much", used=[None], gpu="x", age_s=1e308, calls=-5)
    with Faked(report) as faked, Browser() as browser:
        browser.open(faked.address)
        browser.wait(f"{SESSIONS} === 1", "the session")
        t.equal(browser.ask("document.querySelector('#rows td:nth-child(2)').textContent"), HOSTILE, "the program's name")
        t.check(HOSTILE in browser.ask("document.querySelector('.gpu h3').textContent"), "the GPU's name")
        faked.report = dict(report, sessions=[session, odd], others={"sessions": 1, "used": "no"}, workers=None)
        browser.wait(f"{SESSIONS} === 2", "one whose numbers are none")
        t.equal(browser.ask("window.broken"), None, "what a name has done")
        t.equal(browser.ask("document.querySelectorAll('main script, main img, main td *:not(button)').length"), 0, "elements of a name's making")
        faked.report = {"sessions": 7, "devices": {}}
        browser.wait(f"{SESSIONS} === 0", "a report that is none")
        clean(browser)
    words = (PAGE / "page.js").read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        t.check(word not in words, f"{word} in page.js")


@t.test()
def the_page_needs_nothing_from_outside():
    with Web() as server:
        for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css"), ("/icon.svg", "image/svg+xml")):
            status, fields, body = server.ask(path)
            t.equal((status, fields["Content-Type"].split(";")[0]), (200, kind), path)
            t.equal(body, (PAGE / (path.strip("/") or "index.html")).read_text(), f"{path} is the tree's")
            policy = fields["Content-Security-Policy"]
            t.check(policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';") and "unsafe" not in policy, policy)
            t.check("http" not in body.replace("http://www.w3.org/2000/svg", ""), f"an address in {path}")
        t.equal(server.ask("/", "HEAD")[2], "", "the body of an answer to HEAD")
        t.equal(server.ask("/", "POST")[0], 405, "a POST")


def pictures(folder):
    """Six programs on the software GPU, light and dark, and a phone."""
    folder.mkdir(exist_ok=True)
    with Web("--soft-devices=2", "--http-admins=chief", "--require-token") as server, contextlib.ExitStack() as programs, Browser(1240, 1010) as browser:
        browser.open(f"http://localhost:{server.port_of_page}/")
        people = [server.token(name) for name in ("ann", "bob")]
        for nth in range(6):
            programs.enter_context(holding(server.address("tcp"), people[nth % 2], mode="launch" if nth % 3 else "leave"))
            time.sleep(8)
        log_in(browser, server.token("chief"))
        browser.wait(f"{SESSIONS} === 6", "all of them")
        time.sleep(6)
        browser.ask("document.activeElement.blur(); scrollTo(0, 0)")
        browser.picture(folder / "page.png")
        browser.dark()
        browser.resize(390, 844, phone=True)
        browser.ask("scrollTo(0, 0)")
        browser.picture(folder / "page-phone.png")


if __name__ == "__main__":
    if sys.argv[1:2] == ["pictures"]:
        pictures(pathlib.Path(sys.argv[2]))
    else:
        t.main()
