# SPDX-License-Identifier: Apache-2.0
"""What a session's record keeps of each function that travels (api/README.md, What the record keeps)."""

from dataclasses import dataclass, field

import cgen
from emit import Code
from table import RECORD_WORDS, TableError

# Objects that no parameter names.
NOBODY = ("context", "session")

# What an address or a number stands for, where its type does not say it.
KINDS = ("memory", "reservation", "mapping", "allocation", "share", "mirror", "texture", "surface")

BY_TYPE = {
    "CUdeviceptr": "memory",
    "CUmemGenericAllocationHandle": "allocation",
    "CUtexObject": "texture",
    "CUsurfObject": "surface",
}

# Why a session that has called a function stays where it is.
STAYS = {
    "capture": "it has captured work of a stream into a graph",
    "multicast": "it uses multicast objects",
    "shared": "it shares GPU memory or events with other programs",
    "sparse": "it maps memory into sparse arrays",
}


@dataclass
class Kept:
    """makes, ends, keeps, last, finds, stays, asks or runs; of `part` makes, with a whole."""

    what: str
    param: object = None  # the parameter that names the object; None: nobody's, or by `object`
    object: str = ""  # context or session
    kind: str = ""  # of KINDS; "": a handle
    whole: object = None  # of a part: the parameter that names what it is a part of
    keys: list = field(default_factory=list)  # of `last`: the parameters in which calls must agree
    reason: str = ""  # of `stays`


def _wrong(f, message):
    raise TableError(f"{f.where}: {f.name}: {message}")


def _param(f, word, name):
    found = next((p for p in f.params if p.name == name), None)
    if found is None:
        _wrong(f, f"{word}({name}): it has no such parameter")
    return found


def _kind(model, f, word, param, said):
    klass = model.klass(param.base)
    if klass in ("handle", "device"):
        if said:
            _wrong(f, f"{word}({param.name}, {said}): a {param.base} is of one kind")
        return ""
    kind = said or BY_TYPE.get(param.base, "")
    if kind not in KINDS:
        _wrong(f, f"{word}({param.name}): say of which kind it is: {', '.join(KINDS)}")
    return kind


def _marked(f, word):
    return next((p for p in f.params if word in p.words), None)


def _answers_handle(model, f):
    return any(p.words & {"out", "inout"} and model.klass(p.base) == "handle" for p in f.params)


def _words(f):
    """[(word, its arguments)] of the function, `new` and `drop` of its parameters among them."""
    said = [(word, f.calls[word].replace(",", " ").split()) for word in RECORD_WORDS if word in f.calls]
    said += [(word, []) for word in RECORD_WORDS if word in f.flags]
    for mark, word in (("new", "makes"), ("drop", "ends")):
        if (p := _marked(f, mark)) and not any(w == "part" for w, _ in said):
            said.append((word, [p.name]))
    return said


def _made(model, f):
    """What a function makes that says `part`: its `new` handle, or the first that it answers."""
    made = _marked(f, "new") or next((p for p in f.params if "out" in p.words), None)
    if made is None:
        _wrong(f, "part: it answers nothing")
    return made


def of(model, f):
    """None for a function that does not travel."""
    said = _words(f)
    if f.stub or f.local:
        if said:
            _wrong(f, f"it does not travel, and the record keeps nothing of it: take '{said[0][0]}' away")
        return None
    if not said:
        _wrong(f, "say what the record keeps of it (api/README.md, What the record keeps)")
    if len(said) > 1:
        _wrong(f, f"it says '{said[0][0]}' and '{said[1][0]}': one of them")
    word, args = said[0]
    if word in ("asks", "runs", "keeps", "last", "ends") and _answers_handle(model, f):
        _wrong(f, f"'{word}', and it answers a handle: say finds(OBJECT), or makes it")
    if word in ("asks", "runs"):
        return Kept(word)
    if not args:
        _wrong(f, f"'{word}' says nothing more")
    if word == "stays":
        if args[0] not in STAYS:
            _wrong(f, f"stays({args[0]}): the reasons stand in tools/apigen/record.py")
        return Kept(word, reason=args[0])
    if word == "finds" and not _answers_handle(model, f):
        _wrong(f, "'finds', and it answers no handle")
    if word == "last":
        keys = [_param(f, word, name) for name in args[1:]]
        args = args[:1]
    kept = Kept("makes" if word == "part" else word, keys=keys if word == "last" else [])
    if args[0] in NOBODY and word in ("keeps", "last", "finds"):
        kept.object = args[0]
        return kept
    param = _param(f, word, args[0])
    if word == "part":
        kept.param, kept.whole = _made(model, f), param
        return kept
    kept.param, kept.kind = param, _kind(model, f, word, param, "".join(args[1:]))
    return kept


def check(model):
    for f in model.functions:
        of(model, f)


# ---- where the server finds it in a command ----

def _body_place(model, f, param):
    """(byte, size) of a parameter in a command whose encoding is generated."""
    p = cgen.plan(model, f)
    at = 0
    for fields, size in ((p.send8, 8), (p.send4, 4)):
        for s in fields:
            if s.param is param:
                return at, size
            at += size
    at = (at + 4 * bool(p.present) + 7) // 8 * 8
    first = p.send_var[0] if p.send_var else None
    if first is None or first.param is not param or first.klass != "record" or param in p.present:
        _wrong(f, f"{param.name} has no fixed place in the command: the record cannot go by it")
    return at, f"sizeof({param.base})"


def _reply_place(model, f, param):
    words = [s.param for s in cgen.plan(model, f).reply8]
    if param not in words:
        _wrong(f, f"{param.name} has no fixed place in the reply: the record cannot go by it")
    return words.index(param)


def _place(model, f, kept, param):
    """C of where the object's name is. By hand it comes first, or is the first handle of its kind."""
    if kept.object:
        return "TOW_RECORD_" + kept.object.upper(), "0"
    by_hand, handle = "by-hand" in f.flags, model.klass(param.base) == "handle"
    answered = "out" in param.words and "new" not in param.words
    if by_hand and kept.what in ("keeps", "last", "finds") or by_hand and param is kept.whole:
        if not handle:
            _wrong(f, f"by hand: {param.name} is no handle, and the record does not find it")
        return "TOW_RECORD_SEARCH", model.handle_kind(param.base)
    if by_hand:
        return ("TOW_RECORD_REPLY" if answered and not handle else "TOW_RECORD_BODY"), "0"
    if answered:
        return "TOW_RECORD_REPLY", str(_reply_place(model, f, param))
    return "TOW_RECORD_BODY", str(_body_place(model, f, param)[0] // 8)


def _keys(model, f, kept):
    keys = []
    for p in kept.keys:
        if "by-hand" not in f.flags:
            keys.append("{%s, %s}" % _body_place(model, f, p))
        elif model.klass(p.base) == "handle":
            keys.append(f"{{{model.handle_kind(p.base)}, 0}}")
        else:
            _wrong(f, f"by hand: the key {p.name} is no handle, and the record does not find it")
    return keys


def _rule(model, f, kept, keys):
    """A row; what `last` goes by is added to the list of keys."""
    if kept.what == "stays":
        return f"{{TOW_RECORD_STAYS, .reason = TOW_STAYS_{kept.reason.upper()}}}"
    source, at = _place(model, f, kept, kept.whole or kept.param)
    what = "PART" if kept.whole is not None else kept.what.upper()
    row = [f"TOW_RECORD_{what}", source, at]
    if kept.kind or kept.keys:
        row += [str(len(keys) if kept.keys else 0), str(len(kept.keys))]
        keys += [(key, f.name) for key in _keys(model, f, kept)]
    if kept.kind:
        row.append(f"TOW_NAME_{kept.kind.upper()}")
    return "{" + ", ".join(row) + "}"


def header():
    w = Code("What the record's rules are made of.")
    with w.guard("RECORD_RULES"):
        w()
        with w.block("enum tows_name_kind {", "};"):
            w("TOW_NAME_HANDLE,")
            for kind in KINDS:
                w(f"TOW_NAME_{kind.upper()},")
            w("TOW_NAME_KINDS,")
        w()
        w.comment("Why a session stays where it is: tows_record_reasons has the sentences.")
        with w.block("enum tows_stays {", "};"):
            w("TOW_STAYS_NOT,")
            for reason in STAYS:
                w(f"TOW_STAYS_{reason.upper()},")
            w("TOW_STAYS_LIMIT,")
        w()
        w("extern const char *const tows_record_reasons[TOW_STAYS_LIMIT];")
    return w.text()


def source(model):
    w = Code("What a session's record keeps of each function, for the server.")
    w.include("server/remake/rules.h")
    w.include("gen/cuda_types.h", *(f"gen/{family.name}.h" for family in model.families))
    w()
    with w.block("const char *const tows_record_reasons[TOW_STAYS_LIMIT] = {", "};"):
        for reason, text in STAYS.items():
            w(f'[TOW_STAYS_{reason.upper()}] = "{text}",')
    keys = []
    w()
    with w.block("const struct tows_record_rule tows_record_rules[TOW_FN_LIMIT] = {", "};"):
        for f in model.functions:
            kept = of(model, f)
            if kept is not None and kept.what not in ("asks", "runs"):
                w(f"[TOW_FN_{f.name}] = {_rule(model, f, kept, keys)},")
    w()
    with w.block("const struct tows_record_key tows_record_keys[] = {", "};"):
        w.rows((f"{key},", name) for key, name in keys)
    return w.text()
