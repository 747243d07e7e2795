#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table against the toolkit: exported symbols, versions; and the generator against its own rules.

Usage: test_table.py ROOT [CUDA-FOLDER]. Without a toolkit the comparisons with it are skipped; the others always run.
"""

import ast
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
CUDA = Path(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
sys.path.insert(0, str(ROOT / "tools" / "apigen"))

import apigen  # noqa: E402
import cgen  # noqa: E402
import client  # noqa: E402
import record  # noqa: E402
import signature  # noqa: E402
import status  # noqa: E402
import table  # noqa: E402

MODEL = cgen.Model(table.read_families(ROOT / "api"), table.read_types(ROOT / "api"))


class Toolkit(unittest.TestCase):
    def setUp(self):
        if CUDA is None:
            self.skipTest("no CUDA toolkit here")

    def test_every_exported_symbol_is_in_the_table_and_no_other(self):
        stub = CUDA / "lib64" / "stubs" / "libcuda.so"
        if not stub.exists():
            self.skipTest(f"no {stub}")
        out = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, check=True).stdout
        theirs = {line.split()[-1] for line in out.splitlines()}
        ours = set(re.findall(r"^    (cu\w+);$", client.export_map(MODEL), re.M))
        self.assertEqual(theirs - ours, set())
        self.assertEqual(ours - theirs, set())

    def test_versions_are_those_of_the_typedefs(self):
        versions = defaultdict(set)
        for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h"):
            text = (CUDA / "include" / name).read_text()
            for base, version, suffix in re.findall(r"\bPFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)", text):
                versions[base, suffix].add(int(version))
        ours = defaultdict(set)
        for f in MODEL.functions:
            ours[client.base_name(f.name), ""].add(f.since)
            if f.variant:
                ours[client.base_name(f.name), f.variant].add(int(f.calls[f.variant]))
        for key, known in ours.items():
            self.assertEqual(known, versions[key], key)


class Rules(unittest.TestCase):
    def test_numbers_are_unique_and_in_their_range(self):
        numbers = [f.number for f in MODEL.functions]
        self.assertEqual(len(numbers), len(set(numbers)))

    def test_every_function_has_a_reason_or_a_body(self):
        for f in MODEL.functions:
            if f.stub:
                self.assertIn(f.reason, status.REASONS, f.name)

    def test_status_page_is_current(self):
        page = ROOT / "docs" / "api-status.md"
        self.assertEqual(page.read_text(), status.page(MODEL), "run: make api-status")

    def _read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "x.api").write_text(text)
            return table.read_families(folder)

    def test_a_line_is_read_as_written(self):
        family = self._read("family x 10;\n## Says hello.\nfn 11 cuHello(out opt int *a, in count(n) const CUstream *b, size_t n)\n"
                            "    async ptsz(7000) since(12030);\n")[0]
        f = family.functions[0]
        self.assertEqual((f.name, f.number, f.doc, f.since, f.variant), ("cuHello", 11, "Says hello.", 12030, "ptsz"))
        self.assertEqual([p.words for p in f.params], [{"out", "opt"}, {"in"}, set()])
        self.assertEqual(f.params[1].count, "n")
        self.assertEqual(f.where, "api/x.api:3")

    def test_mistakes_are_named_with_their_line(self):
        for text, message in (
            ("family x 10;\nfn 11 cuA(int a) sinse(1);\n", "api/x.api:2: cuA: unknown word 'sinse(1)'"),
            ("family x 10;\nfn 11 cuA(int a);\n", "does not say since"),
            ("family x 10;\nfn 11 cuA(int a) since(1);\nfn 11 cuB(int a) since(1);\n", "11 is already at api/x.api:2"),
            ("family x 10;\nfn 11 cuA(CUstream s) captured since(1);\n", "must be async and name a stream"),
            ("family x 10;\nfn 11 cuA(int a) async captured since(1);\n", "must be async and name a stream"),
            ("family x 10;\nfn eleven cuA(int a) since(1);\n", "a function reads"),
        ):
            with self.assertRaises(table.TableError) as caught:
                self._read(text)
            self.assertIn(message, str(caught.exception))

    def test_words_that_spare_code_by_hand(self):
        family = self._read("family x 10;\nfn 11 cuA(CUstream s, reach CUdeviceptr p) async captured before(tow_hook, s) since(1);\n"
                            "fn 12 cuB(CUstream s, CUdeviceptr p) same(cuA) since(1);\n"
                            "fn 13 cuC(drop CUevent e) before(tow_end, e) since(1);\n")[0]
        model = cgen.Model([family], MODEL.types)
        import server
        ours, theirs = client.source(model, family), server.source(model, family)
        self.assertIn("return towc_cuA(s, p);", ours)
        self.assertLess(ours.index("towc_mirror_reach_work(p)"), ours.index("return towc_send_cuA(s, p)"))
        self.assertIn("TOW_CALL_CONTEXT | towc_capture_flag(s));", ours)
        self.assertLess(theirs.index("tow_hook(call->session, s);"), theirs.index("tow_drive(call->driver, cuA)("))
        self.assertNotIn("cuB", theirs)
        # Once the hook has seen that nobody uses it, nobody may find it again.
        self.assertLess(theirs.index("tows_serve_claim(call, TOW_H_EVENT, e_id)"), theirs.index("tow_end(call->session, e);"))
        self.assertLess(theirs.index("tow_end(call->session, e);"), theirs.index("tow_drive(call->driver, cuC)("))

    def _hash(self, line, types=MODEL.types):
        family = self._read(f"family x 10;\n{line}\n")[0]
        return signature.hash_of(cgen.Model([family], types), family.functions[0])

    def test_a_hash_names_what_travels_and_nothing_else(self):
        line = "fn 11 cuA(CUstream s, size_t n, in count(n) const int *a, out unsigned int *r) since(1);"
        known = self._hash(line)
        self.assertNotEqual(known, 0)
        for same in (
            "## Says more.\n" + line,
            line.replace("since(1)", "since(12030) ptsz(7000)"),
            line.replace("size_t n", "size_t many").replace("count(n)", "count(many)"),
            line.replace("unsigned int *r", "CUresult *r"),
            line.replace(" since", " async quick blocks noctx client-by-hand server-by-hand before(tow_x, s) since"),
            line.replace("size_t n", "reach CUdeviceptr n"),
        ):
            self.assertEqual(self._hash(same), known, same)
        others = [
            line.replace("fn 11", "fn 12"),
            line.replace("cuA", "cuB"),
            line.replace("CUstream s", "CUevent s"),
            line.replace("CUstream s", "drop CUstream s"),
            line.replace("size_t n", "int n"),
            line.replace("count(n)", "count(n + 1)"),
            line.replace("const int *a", "const size_t *a"),
            line.replace("out unsigned int *r", "inout unsigned int *r"),
            line.replace("out unsigned int *r", "out opt unsigned int *r"),
            line.replace("out unsigned int *r", "out CUuuid *r"),
            line.replace(" since", " syncs since"),
            line.replace(" since", " wire(2) since"),
            line.replace(" since", " by-hand since"),
            line.replace(" since", " by-hand wire(2) since"),
        ]
        hashes = [self._hash(other) for other in others]
        self.assertEqual(len({known, *hashes}), len(others) + 1)
        for none in ("local", "pending", "unsupported(texref)", "same(cuX)"):
            self.assertEqual(self._hash(line.replace(" since", f" {none} since")), 0)

    def test_a_hash_covers_the_layout_of_records(self):
        def types(body, inner="int id;"):
            with tempfile.TemporaryDirectory() as folder:
                text = f"handle 7 CUthing CUthing_st;\nstruct In_st {{\n    {inner}\n}};\ntypedef struct In_st In;\n"
                (Path(folder) / "types.api").write_text(f"{text}struct Out_st {{\n    {body}\n}};\ntypedef struct Out_st Out;\n")
                (Path(folder) / "enums.api").write_text("")
                (Path(folder) / "constants.api").write_text("const COUNT 3\n")
                return table.read_types(folder)
        line = "fn 11 cuA(in const Out *o) since(1);"
        known = self._hash(line, types("In a[COUNT]; CUthing h;"))
        self.assertEqual(self._hash(line, types("In a[3];  /* more */ CUthing h;")), known)
        for body, inner in (("In a[4]; CUthing h;", "int id;"), ("In a[COUNT]; CUthing h;", "long long id;"), ("CUthing h; In a[COUNT];", "int id;")):
            self.assertNotEqual(self._hash(line, types(body, inner)), known)

    def test_what_goes_keeps_its_number(self):
        family = self._read("family x 10;\ngone 11 cuA;\nfn 12 cuB(int a) since(1);\n")[0]
        self.assertEqual([f.name for f in family.functions], ["cuB"])
        for line in ("fn 11 cuC(int a) since(1);", "fn 12 cuA(int a) since(1);"):
            with self.assertRaises(table.TableError) as caught:
                self._read(f"family x 10;\ngone 11 cuA;\n{line}\n")
            self.assertIn("is already at api/x.api:2", str(caught.exception))

    def _kept(self, line):
        family = self._read(f"family x 10;\n{line}\n")[0]
        return record.of(cgen.Model([family], MODEL.types), family.functions[0])

    def test_what_the_record_keeps_is_read_as_written(self):
        kept = self._kept("fn 11 cuA(new CUstream *s, unsigned int flags) since(1);")
        self.assertEqual((kept.what, kept.param.name, kept.kind), ("makes", "s", ""))
        kept = self._kept("fn 11 cuA(drop CUstream s) async since(1);")
        self.assertEqual((kept.what, kept.param.name), ("ends", "s"))
        kept = self._kept("fn 11 cuA(out CUdeviceptr *p, size_t n) makes(p) since(1);")
        self.assertEqual((kept.what, kept.param.name, kept.kind), ("makes", "p", "memory"))
        kept = self._kept("fn 11 cuA(CUdeviceptr p, size_t n) ends(p, mapping) since(1);")
        self.assertEqual((kept.what, kept.kind), ("ends", "mapping"))
        kept = self._kept("fn 11 cuA(new CUgraphNode *n, CUgraph g) part(g) since(1);")
        self.assertEqual((kept.what, kept.param.name, kept.whole.name), ("makes", "n", "g"))
        kept = self._kept("fn 11 cuA(CUlimit limit, size_t value) last(context, limit) since(1);")
        self.assertEqual((kept.what, kept.object, [k.name for k in kept.keys]), ("last", "context", ["limit"]))
        kept = self._kept("fn 11 cuA(out CUdeviceptr *p) stays(shared) since(1);")
        self.assertEqual((kept.what, kept.reason), ("stays", "shared"))
        self.assertIsNone(self._kept("fn 11 cuA(int a) local since(1);"))

    def test_a_function_that_travels_says_what_the_record_keeps(self):
        for line, message in (
            ("fn 11 cuA(int a) since(1);", "api/x.api:2: cuA: say what the record keeps of it"),
            ("fn 11 cuA(int a) asks runs since(1);", "it says 'asks' and 'runs': one of them"),
            ("fn 11 cuA(new CUstream *s) asks since(1);", "it says 'asks' and 'makes'"),
            ("fn 11 cuA(int a) asks local since(1);", "it does not travel, and the record keeps nothing of it: take 'asks' away"),
            ("fn 11 cuA(int a) keeps(b) since(1);", "keeps(b): it has no such parameter"),
            ("fn 11 cuA(int a) last(context, b) since(1);", "last(b): it has no such parameter"),
            ("fn 11 cuA(int a) keeps(a) since(1);", "say of which kind it is: memory, reservation"),
            ("fn 11 cuA(CUdeviceptr p) ends(p, house) since(1);", "say of which kind it is"),
            ("fn 11 cuA(CUstream s) keeps(s, memory) since(1);", "a CUstream is of one kind"),
            ("fn 11 cuA(out CUgraph *g, CUstream s) asks since(1);", "'asks', and it answers a handle: say finds(OBJECT)"),
            ("fn 11 cuA(out int *n, CUstream s) finds(s) since(1);", "'finds', and it answers no handle"),
            ("fn 11 cuA(CUstream s) stays(tired) since(1);", "stays(tired): the reasons stand in"),
            ("fn 11 cuA(CUstream s) keeps() since(1);", "'keeps' says nothing more"),
            ("fn 11 cuA(CUgraph g) part(g) since(1);", "part: it answers nothing"),
        ):
            with self.assertRaises(table.TableError) as caught:
                self._kept(line)
            self.assertIn(message, str(caught.exception), line)

    def test_names_agree_with_what_the_record_keeps(self):
        """A function that is called Get and is kept, or Set and is not, was given the wrong word, or stands here."""
        ask = r"(Get(?!Managed$)|Query$|Is[A-Z]|Enumerate|Occupancy|DebugDotPrint|Synchronize$|ElapsedTime)"
        change = r"(Set(?!Params.*Get)[A-Z]|CopyAttributes|AddDependencies|RemoveDependencies|Enable|Disable)"
        others = {"cuMemHostGetDevicePointer_v2": "makes",  # the server's part: memory of the program becomes reachable
                  "cuStreamGetCaptureInfo_v3": "stays", "cuIpcGetEventHandle": "stays", "cuIpcGetMemHandle": "stays"}
        for f in MODEL.functions:
            kept = record.of(MODEL, f)
            if kept is None:
                continue
            if f.name in others:
                self.assertEqual(kept.what, others[f.name], f.name)
            elif re.search(ask, f.name):
                self.assertIn(kept.what, ("asks", "finds"), f.name)
            elif re.search(change, f.name):
                self.assertIn(kept.what, ("keeps", "last"), f.name)
            elif re.search(r"(Create|Alloc|Load|Reserve|Retain|Instantiate)", f.name) and "Multicast" not in f.name:
                self.assertEqual(kept.what, "makes", f.name)
            elif re.search(r"(Destroy|Free|Unload|Unmap|Release|Unregister)", f.name) and not re.search(r"AddMemFree", f.name):
                self.assertEqual(kept.what, "ends", f.name)

    def test_what_is_made_can_end(self):
        """Each kind of object has a function that ends it, or is a part of another."""
        made, ended = set(), set()
        for f in MODEL.functions:
            kept = record.of(MODEL, f)
            if kept is not None and kept.what in ("makes", "ends"):
                kind = kept.kind or kept.param.base
                (made if kept.what == "makes" and kept.whole is None else ended).add(kind)
        # The primary context ends by its device; of a descriptor CUDA knows no end.
        self.assertEqual(made - ended, {"CUdevResourceDesc"})

    def test_generating_twice_gives_the_same(self):
        self.assertEqual(apigen.outputs(MODEL), apigen.outputs(MODEL))

    def test_generated_code_is_formatted(self):
        """By the house's rules, without clang-format at the build; where there is one it has nothing to change."""
        files = {name: text for name, text in apigen.outputs(MODEL).items() if name.endswith((".c", ".h"))}
        wide = [f"{name}: {line}" for name, text in files.items() for line in text.split("\n") if len(line) > 100]
        self.assertEqual(wide, [])
        clang_format = shutil.which("clang-format-14")
        if clang_format is None:
            self.skipTest("no clang-format-14 here")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text)
            subprocess.run([sys.executable, ROOT / "tools" / "nvmlgen.py", "--list", ROOT / "src" / "nvml" / "functions.list",
                            "--out", folder], check=True)
            style = (ROOT / ".clang-format").read_text()
            (Path(folder) / ".clang-format").write_text(style)
            names = ["nvml_api.h", "nvml_refused.c", *sorted(files)]
            done = subprocess.run([clang_format, "--dry-run", "--Werror", *names], cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr[:4000])

    def test_programs_get_the_api_and_nothing_of_ours(self):
        with tempfile.TemporaryDirectory() as folder:
            apigen.write(Path(folder), apigen.outputs(MODEL))
            subprocess.run([sys.executable, ROOT / "tools" / "cuda_header.py", Path(folder) / "cuda_abi.h",
                            Path(folder) / "cuda.h"], check=True)
            text = (Path(folder) / "cuda.h").read_text()
        self.assertNotIn("TOW_FN_", text)
        self.assertNotIn('#include "', text)
        for f in MODEL.functions:
            self.assertEqual(len(re.findall(rf"^CUresult CUDAAPI\s+{f.name}\(", text, re.M)), 1, f.name)

    def test_generated_functions_say_what_they_are(self):
        for name, text in apigen.outputs(MODEL).items():
            if name.endswith("_client.c") or name.endswith("_server.c") or name.endswith("_driver.c"):
                for found in re.finditer(r"(?m)^(.*)\n((?:TOW_PUBLIC|CUresult|static|void)\b[^\n;={]*\()", text):
                    self.assertRegex(found[1], r"\*/$|^(static void|CUresult|TOW_PUBLIC CUresult CUDAAPI)$", f"{name}: {found[2]}")

    def test_the_generator_is_readable(self):
        for path in sorted((ROOT / "tools" / "apigen").glob("*.py")):
            text = path.read_text()
            wide = [line for line in text.splitlines() if len(line) >= 110]
            self.assertEqual(wide, [], path.name)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    self.assertLess(node.end_lineno - node.lineno + 1, 60, f"{path.name}: {node.name}")

    def test_golden_marshalling(self):
        family = self._read(
            "family x 10;\nfn 11 cuGolden(new CUstream *s, in count(n) opt const CUevent *e, size_t n, CUdevice d, cstr const char *name,\n"
            "    out int *r, out opt CUuuid *u) since(1000);\n")[0]
        model = cgen.Model([family], MODEL.types)
        golden = Path(__file__).with_name("golden")
        import server
        for name, text in (("client.c", client.source(model, family)), ("server.c", server.source(model, family))):
            path = golden / name
            if "--bless" in sys.argv:
                golden.mkdir(exist_ok=True)
                path.write_text(text)
            self.assertEqual(path.read_text(), text, f"{path} differs; if that is meant: test_table.py ROOT CUDA --bless")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
