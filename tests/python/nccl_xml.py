"""Reads a topology by the rules of NCCL's own reader (src/graph/xml.cc, 2.28), which is no XML parser: attributes
follow one space, values and names have a limit, entities stay as they are, and elements at unknown places are left out.
"""

from dataclasses import dataclass, field

_LONGEST, _MOST_ATTRIBUTES, _MOST_PARTS = 255, 16, 128
_SPACE, _ENDS = " \n\r", " >/\n\r"
# The elements that NCCL takes within each element.
_WITHIN = {
    "": ("system",), "system": ("cpu",), "cpu": ("pci", "nic"), "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "c2c"), "nic": ("net",),
}  # fmt: skip


class Refused(Exception):
    """NCCL ends with an internal error."""


@dataclass
class Element:
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    parts: list["Element"] = field(default_factory=list)
    ends: str = ""  # "close": a closing tag, "single": without parts


class _Text:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def next(self) -> str:
        if self._at == len(self._text):
            raise Refused("Unexpected EOF")
        self._at += 1
        return self._text[self._at - 1]

    def skip_space(self) -> bool:
        """Whether anything follows."""
        while self._at < len(self._text) and self._text[self._at] in _SPACE:
            self._at += 1
        return self._at < len(self._text)

    def skip_comment(self) -> None:
        end = self._text.find("-->", self._at)
        if end < 0:
            raise Refused("unterminated comment")
        self._at = end + 3

    def token(self) -> tuple[str, str | None, str]:
        """A name, its value if it has one, and the character behind."""
        name = ""
        while (one := self.next()) not in _ENDS:
            if one == "=":
                return name, *self._value()
            name += one
            if len(name) >= _LONGEST:
                raise Refused(f"name {name} too long")
        return name, None, one

    def _value(self) -> tuple[str, str]:
        quote, value = self.next(), ""
        if quote not in "\"'":
            raise Refused("Expected (double) quote.")
        while (one := self.next()) != quote:
            value += one
            if len(value) >= _LONGEST:
                raise Refused(f"value {value} too long")
        return value, self.next()


def _element(text: _Text) -> Element | None:
    if not text.skip_space():
        return None
    if (one := text.next()) != "<":
        raise Refused(f"expecting '<', got '{one}'")
    name, value, behind = text.token()
    if value is not None:
        raise Refused(f"Unexpected value with name {name}")
    if name.startswith("!--"):
        text.skip_comment()
        return _element(text)
    if not name and behind == "/":
        name, _, behind = text.token()
        found = Element(name, ends="close")
    else:
        found = Element(name)
        while behind == " ":
            key, value, behind = text.token()
            if len(found.attributes) == _MOST_ATTRIBUTES:
                raise Refused(f"attributes of {name} are ignored")
            found.attributes[key] = value or ""
        if behind == "/":
            found.ends = "single"
            behind = text.token()[2]
    if behind != ">":
        raise Refused(f"expected >, got '{behind}'")
    return found


def _load(text: _Text, head: Element, *, known: bool) -> None:
    while True:
        found = _element(text)
        if found is None:
            if head.name:
                raise Refused(f"unterminated {head.name}")
            return
        if head.name and found.ends == "close":
            if found.name != head.name:
                raise Refused(f"XML Mismatch : {head.name} / {found.name}")
            return
        taken = known and found.name in _WITHIN.get(head.name, ())
        if taken:
            head.parts.append(found)
            if len(head.parts) > _MOST_PARTS:
                raise Refused(f"limited to {_MOST_PARTS} subnodes")
        if found.ends != "single":
            _load(text, found, known=taken)


def read(text: str) -> Element:
    """Returns the element `system` with all elements that NCCL takes. Raises Refused with its words."""
    top = Element("")
    _load(_Text(text), top, known=True)
    if not top.parts or top.parts[0].attributes.get("version") != "1":
        raise Refused("XML Topology has wrong version")
    return top.parts[0]
