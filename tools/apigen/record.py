# SPDX-License-Identifier: Apache-2.0
"""What a session's record keeps of each function that travels (api/README.md, What the record keeps)."""

from dataclasses import dataclass, field

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
