"""Text as trace files hold it: strings as they stand between quotes, and the JSON around events.

Shared by the workers and by what reads their frames; standard library only.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from typing import Any

Buffer = bytes | memoryview

ESCAPED, DAMAGED = 1, 2  # flags of the scanner's strings
# What shows nothing, or moves a terminal, is replaced; a tab is a space.
_CONTROL = dict.fromkeys(range(32), "�") | {0x09: " "}
_OTHER_LAYOUT = re.compile(rb"[,:][^ ]| {2}|[\[{] ")
_AFTER_EVENTS = re.compile(rb'\]\s*(?:,\s*"|\}\s*$)')
_FORBIDDEN = re.compile(rb"[^\t\r\n\x20-\xff]")
_LONGEST_LOOK = 1 << 16
_MOST_PARSED = 64 << 20  # bytes: members behind the events may hold thousands of brackets
_SALVAGED = ("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "host_name")


def decoded(starts: Buffer, text: Buffer, flags: Buffer) -> list[str]:
    """The strings ``text[starts[k]:starts[k + 1]]`` of a pool, unescaped and repaired."""
    return [string(raw, kind) for raw, kind in zip(pieces(starts, text), bytes(flags), strict=True)]


def pieces(starts: Buffer, text: Buffer) -> list[bytes]:
    """The raw strings of a pool."""
    places = memoryview(starts).cast("B").cast("q")
    data = bytes(text)
    base = places[0] if len(places) else 0
    return [data[begin - base : end - base] for begin, end in itertools.pairwise(places)]


def json_text(raw: bytes) -> str:
    """JSON as it stands in a file, in the one layout that Kineto writes, and made valid where its
    bytes are no text."""
    found = raw.decode("utf-8", "replace")
    if not found.isprintable() or _OTHER_LAYOUT.search(raw):
        try:
            return json.dumps(json.loads(found, strict=False), ensure_ascii=False)
        except (ValueError, RecursionError):
            return found.translate(_CONTROL)
    return found


def string(raw: bytes, flags: int) -> str:
    """A string as it stands between its quotes."""
    if not flags:
        return raw.decode()
    text = raw.decode("utf-8", "replace")
    if flags & ESCAPED:
        try:
            text = json.loads(f'"{text}"', strict=False)
        except ValueError:
            text = text.replace("\\", "\ufffd")
        # Half a surrogate pair is no character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.translate(_CONTROL)


def members(prefix: bytes, tail: bytes) -> dict[str, Any] | None:
    """What stands around the events: ``prefix`` up to their opening bracket, ``tail`` behind the
    closing one. None where it is no JSON."""
    text = (prefix.removeprefix(codecs.BOM_UTF8) + b"]" + tail).decode("utf-8", "replace")
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {key: value for key, value in found.items() if key != "traceEvents"}


def forbidden(part: bytes) -> list[int]:
    """Where the first byte stands that JSON forbids, if there is one."""
    found = [match.start() for match in (_FORBIDDEN.search(part),) if match]
    try:
        part.decode()
    except UnicodeDecodeError as error:
        found.append(error.start)
    return sorted(found)[:1]


def fault(data: bytes) -> str:
    """What is wrong with text that is not JSON: ``cut`` lacks its end, ``more`` follows the value,
    or it is ``bad``."""
    text = data.decode("utf-8", "replace")
    try:
        json.JSONDecoder(strict=False).raw_decode(text)
    except json.JSONDecodeError as error:
        at_end = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        return "cut" if at_end else "bad"
    except (ValueError, RecursionError):
        return "bad"
    return "more"


def is_event(data: bytes, at: int) -> bool:
    """Whether the object that begins there says what kind of event it is, whole or not: a header
    holds lists of objects too."""
    part = data[at : at + _LONGEST_LOOK]
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(part.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return b'"ph"' in part.partition(b"}")[0]
    return isinstance(found, dict) and "ph" in found


def first_members(data: bytes) -> dict[str, Any] | None:
    """The members of the object that a text begins with, but its events, whatever follows it. None
    where it begins with none."""
    text = data.decode("utf-8", "replace")
    try:
        found, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {key: value for key, value in found.items() if key != "traceEvents"}


def behind(data: bytes) -> dict[str, Any]:
    """The members behind the events, out of text that ends with them and begins anywhere: from the
    first bracket that all of the rest can follow. What an event holds is none of them."""
    found: dict[str, Any] = {}
    at, budget = len(data), _MOST_PARSED
    while budget > 0 and (at := data.rfind(b"]", 0, at)) >= 0:
        if _AFTER_EVENTS.match(data, at):
            found = members(b'{"traceEvents":[', data[at + 1 :]) or found
            budget -= len(data) - at
    return found


def salvaged(data: bytes) -> dict[str, Any]:
    """The members that matter most, out of text that is damaged or begins anywhere."""
    text = data.decode("utf-8", "replace")
    found = {}
    for key in _SALVAGED:
        for match in re.finditer(rf'"{key}"\s*:\s*', text):
            try:
                value, end = json.JSONDecoder(strict=False).raw_decode(text, match.end())
            except (ValueError, RecursionError):
                continue
            # The number that a file ends with may lack its last digits.
            if end < len(text) or isinstance(value, str | list | dict):
                found[key] = value
    return found
