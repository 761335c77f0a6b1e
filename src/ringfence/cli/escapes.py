"""What a command writes, made harmless for the terminal of the person who runs it.

A terminal acts on more than text: it sets its title and the clipboard, answers questions into its own input, moves over lines that
others wrote. Of that a command gets what it needs. While its own terminal is in line mode, as for a compiler or a test run,
it may colour, and move within its line. Once it has taken its terminal over, as editors and shells do, it may move anywhere.
Strings to the terminal itself (title, clipboard, device control) never pass. What does not pass is dropped. The forms are
those of ECMA-48.
"""

from __future__ import annotations

MOST_HELD = 64
"""Bytes of one control sequence that is longer than any real one: it is dropped."""
TEXT_CONTROLS = b"\a\b\t\n\r"
WITHIN_A_LINE = b"mKGCDPX@`a"
"""Final bytes of CSI: colours, erase in line, move and edit within it."""
ALTERNATE = (b"47", b"1047", b"1049")
"""Private modes that show the other screen, where a full-screen program draws (xterm's control sequences, DECSET)."""
SHOWN_AT_START = (b"7", b"25")
MOVES = (b"7", b"8", b"D", b"E", b"H", b"M")
STRINGS = b"]PX^_"
"""After ESC: OSC, DCS, SOS, PM, APC, each up to ST or BEL."""


class Filter:
    """One stream of output. feed() keeps a sequence that is not whole yet for the next call."""

    def __init__(self) -> None:
        self._held = b""
        self._in_string = False
        self._changed: dict[bytes, bool] = {}  # private modes that are not as they were

    def feed(self, data: bytes, *, line_mode: bool) -> bytes:
        """What may pass of data. line_mode: the command has not taken its terminal over."""
        data, self._held = self._held + data, b""
        passed = bytearray()
        at = 0
        while at < len(data):
            if self._in_string:
                at = self._skip_string(data, at)
                continue
            end = self._escape(data, at, passed, line_mode) if data[at] == 0x1B else _text_end(data, at)
            if end < 0 or (end == at and _is_cut(data, at)):
                self._held = data[at:]
                break
            if data[at] != 0x1B:
                passed += data[at:end]
            at = max(end, at + 1)  # a byte that is neither text nor the start of a sequence is dropped
        return bytes(passed)

    def _skip_string(self, data: bytes, at: int) -> int:
        while at < len(data):
            if data[at] in b"\a\x18\x1a":
                self._in_string = False
                return at + 1
            if data[at] == 0x1B:
                if at + 1 == len(data):
                    self._held = data[at:]
                    return len(data)
                self._in_string = False
                return at + 2 if data[at + 1] == 0x5C else at
            at += 1
        return at

    def _escape(self, data: bytes, at: int, passed: bytearray, line_mode: bool) -> int:
        """Where the sequence that begins at `at` ends; -1 where it is not whole."""
        if at + 1 == len(data):
            return -1
        kind = data[at + 1]
        if kind == 0x5B:
            return self._control(data, at, passed, line_mode)
        if kind in STRINGS:
            self._in_string = True
            return at + 2
        end = at + 1
        while end < len(data) and 0x20 <= data[end] < 0x30:
            end += 1
        if end == len(data):
            return -1 if end - at < MOST_HELD else end
        whole = data[at : end + 1]
        harmless = whole[1:2] in (b"(", b")") or whole[1:] in (b"=", b">")  # character sets, the keypad
        if harmless or (not line_mode and whole[1:] in MOVES):
            passed += whole
        return end + 1

    def _control(self, data: bytes, at: int, passed: bytearray, line_mode: bool) -> int:
        end = at + 2
        while end < len(data) and 0x20 <= data[end] < 0x40:
            end += 1
        if end == len(data):
            return -1 if end - at < MOST_HELD else end
        final, whole = data[end : end + 1], data[at : end + 1]
        if not 0x40 <= data[end] < 0x7F or len(whole) > MOST_HELD:
            return end if data[end] == 0x1B else end + 1  # broken off by another control
        parameters = whole[2:-1]
        if parameters[:1] == b"?" and final in b"hl":
            self._note_modes(parameters[1:], final == b"h")
            passed += whole
        elif parameters[:1] in (b"?", b">", b"<", b"="):
            if not line_mode and final in b"cnumsK" + b"J":  # questions and keyboard modes of programs that took the terminal
                passed += whole
        elif final in WITHIN_A_LINE or (
            final not in b"tiy" and (not line_mode or self.alternate)
        ):  # windows, printers, sums of what is shown
            passed += whole
        return end + 1

    @property
    def alternate(self) -> bool:
        """Whether the other screen is shown."""
        return any(self._changed.get(mode) for mode in ALTERNATE)

    def _note_modes(self, parameters: bytes, on: bool) -> None:
        for mode in parameters.split(b";"):
            if on == (mode in SHOWN_AT_START):
                self._changed.pop(mode, None)
            elif len(self._changed) < MOST_HELD:
                self._changed[mode] = on

    def aside(self) -> tuple[bytes, bytes]:
        """What sets a terminal back for a while, and what then makes it again as the command has it. Nothing is forgotten."""
        back, again = (
            b"".join(b"\x1b[?%b%b" % (mode, b"h" if on == wanted else b"l") for mode, on in self._changed.items())
            for wanted in (False, True)
        )
        return back + b"\x1b[0m", again

    def restore(self) -> bytes:
        """What sets a terminal back that the command left changed: its screen, its cursor, its mouse, its colours."""
        back = b"".join(b"\x1b[?%b%b" % (mode, b"l" if on else b"h") for mode, on in self._changed.items())
        self._changed.clear()
        return back + b"\x1b[0m"


def _text_end(data: bytes, at: int) -> int:
    """Where the text that begins at `at` ends: printable bytes and whole UTF-8 characters, nothing that a terminal obeys."""
    while at < len(data):
        byte = data[at]
        if 0x20 <= byte < 0x7F or byte in TEXT_CONTROLS:
            at += 1
            continue
        size = _size(byte)
        rest = data[at + 1 : at + size]
        # U+0080 to U+009F are controls as well: the bytes C2 80 to C2 9F.
        if not size or len(rest) < size - 1 or not all(0x80 <= each < 0xC0 for each in rest) or (byte == 0xC2 and rest[0] < 0xA0):
            return at
        at += size
    return at


def _size(lead: int) -> int:
    """Bytes of the UTF-8 character that begins with lead; 0 where none does (RFC 3629)."""
    return 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0


def _is_cut(data: bytes, at: int) -> bool:
    """Whether the character at `at` may be whole with the next bytes."""
    rest = data[at + 1 :]
    return len(rest) < _size(data[at]) - 1 and all(0x80 <= each < 0xC0 for each in rest)
