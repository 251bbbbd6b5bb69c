#!/usr/bin/env python3
"""make_text_tables.py - writes the tables behind src/model/text_repair*.c and html_entities.c into the build tree.

    make_text_tables.py mojibake FILE.h    code pages, and what gives away text read in the wrong one
    make_text_tables.py plain FILE.h       characters with a plain form
    make_text_tables.py entities FILE.h    HTML character references

FILE.h holds only data; the types stand in the C file that includes it.

Needs only the standard library: code pages come from `codecs`, plain forms from `unicodedata`, references from
`html`. What makes text look like mojibake is written down here, as sets of characters and rules over them.
"""

import html
import html.entities
import sys
import unicodedata

# Single-byte encodings in the order in which a repair tries them. "Sloppy" ones give every byte a meaning: bytes
# without a character stand for the control of the same number, and 0x1A stands for U+FFFD, a character lost before.
PAGES = ["latin-1", "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "iso8859-2", "mac-roman", "cp437"]
SLOPPY = {"cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257"}
LATIN_LIKE = PAGES[:7]          # pages whose characters give away single UTF-8 sequences
LOST, SUBSTITUTE = 0xFFFD, 0x1A


def page_characters(page):
    """The 256 code points of a code page."""
    out = []
    for byte in range(256):
        text = bytes([byte]).decode(page, "replace")
        out.append(byte if text == chr(LOST) else ord(text))
    if page in SLOPPY:
        out[SUBSTITUTE] = LOST
    return out


# ---- what looks like mojibake --------------------------------------------------------------------------------------

def chars(spec):
    """Code points of a string in which `x-y` is a range."""
    out, i = set(), 0
    while i < len(spec):
        if i + 2 < len(spec) and spec[i + 1] == "-":
            out.update(range(ord(spec[i]), ord(spec[i + 2]) + 1))
            i += 3
        else:
            out.add(ord(spec[i]))
            i += 1
    return frozenset(out)


class Everything:
    """A set of code points given by a test, for sets that reach beyond the characters of the tables."""

    def __init__(self, test):
        self.test = test

    def __contains__(self, code):
        return self.test(chr(code))


WORD = Everything(lambda c: c.isalnum() or c == "_")
SPACE = Everything(str.isspace)
NOT_LATIN = Everything(lambda c: not (c.isascii() and c.isalpha()))
NOT_NEWLINE = Everything(lambda c: c != "\n")

COMMON = chars("\xa0\xad·´–—―…’")                    # at home in good text too
CONTROL = chars("\x80-\x9f")                         # C1 controls: no use outside mojibake
BAD = chars("¦¤¨¬¯¸ƒˆˇ˘˛˜†‡‰⌐◊\ufffdªº")            # hardly ever meant
LAW = chars("¶§")
MONEY = chars("¢£¥₧€")
OPENING = chars("¡«¿©΄΅‘‚“„•‹\uf8ff")
CLOSING = chars("®»˝”›™")
NUMERIC = chars("²³¹±¼½¾×µ÷⁄∂∆∏∑√∞∩∫≈≠≡≤≥№")
FACES = chars("Ò-ÖÙ-Üò-öø-üŐŌŪŲ°")                   # letters that also draw faces
UPPER = chars("À-ÑØÜÝĂĀĄĆČĎĐĘĚĒĖĞĢİĪĶĹĽŁĻŃŇŅŒŘŚŞŠŢŤŮŰŸŹŻŽҐ")
LOWER = chars("ßà-ñăąāćčďđęěēėğģįīķĺľłļœŕśşšťüźżžґﬁﬂ")
UPPER_WORDS = chars("ÞΑ-ΩΆΈΉΊΌΎΏΪΫЁ-Я")              # capitals that end words of their own scripts
LOWER_WORDS = chars("α-ωάέήίΰа-џ")
BOX = chars("│┌┐┘├┤┬┼═-╬▀▄█▌▐░▒▓")
LATIN_SMALL, LATIN_LARGE = chars("a-z"), chars("A-Z")
LATIN = LATIN_SMALL | LATIN_LARGE
ACCENTED = LOWER | UPPER
MARKS = BOX | OPENING | CLOSING | MONEY | NUMERIC | LAW
ARABIC_SECOND = COMMON | MONEY | BAD | NUMERIC | OPENING | chars("ŸŠ®°µ»")
CYRILLIC_LEAD, GREEK_LEAD = chars("ВГРС"), chars("ΒΓΞΟ")
LEAD_SECOND = CONTROL | BAD | OPENING | CLOSING | MONEY | chars("°")
BLANK = chars(" ")

# A text is bad when any of these sequences of sets matches somewhere in it.
RULES = [
    [CONTROL],
    [BAD | ACCENTED | MARKS, BAD],
    [BAD, ACCENTED | MARKS],
    [LATIN, LOWER_WORDS | UPPER_WORDS, BAD],
    [LOWER | LOWER_WORDS | BOX | CLOSING | MONEY | NUMERIC, UPPER],
    [BOX | CLOSING | MONEY | NUMERIC, LOWER],
    [LOWER | BOX | CLOSING, MONEY],
    [SPACE, UPPER, MONEY],
    [UPPER | BOX, NUMERIC | LAW],
    [ACCENTED | BOX | MONEY | CLOSING, OPENING, NUMERIC],
    [ACCENTED | MONEY | NUMERIC | BOX | LAW, CLOSING, OPENING],
    [MONEY | NUMERIC | BOX, OPENING],
    [LATIN_SMALL, UPPER, OPENING | MONEY],
    [BOX, FACES | CLOSING],
    [ACCENTED | MONEY | NUMERIC | OPENING | CLOSING | LAW, BOX],
    [ACCENTED, OPENING | CLOSING, WORD],
    [chars("Œœ"), NOT_LATIN],
    [UPPER, chars("°")],
    # Windows-1252 readings of two-byte sequences
    [chars("ÂÃÎÐ"), OPENING | CLOSING | chars("€œŠš¢£Ÿž\xa0\xad®©°·»–—´")],
    [chars("×"), chars("²³")],
    [chars("ØÙ"), ARABIC_SECOND, chars("ØÙ"), ARABIC_SECOND],
    [chars("à"), chars("²µ¹¼½¾")],
    [chars("Ã"), chars("\xa0¡")],
    [LATIN_SMALL, chars("ÃÂ"), BLANK],
    [LATIN_SMALL, SPACE, chars("ÃÂ"), BLANK],
    [LATIN_SMALL | chars(".,?!") | CLOSING, chars("Â"), BLANK | OPENING | CLOSING],
    # Mac Roman
    [chars("√"), chars("±∂†≠®™´≤≥¥µø")],
    [chars("≈"), chars("°¢")],
    [chars("‚"), chars("Ä"), chars("ìîïòôúùû†°¢π")],
    [chars("‚"), chars("âó"), chars("àä°ê")],
    # Windows-1251, -1253, -1257
    [chars("в"), chars("Ђ")],
    [CYRILLIC_LEAD, LEAD_SECOND | chars("µ"), CYRILLIC_LEAD],
    [chars("Г"), chars("ў"), chars("В"), chars("Ђ"), chars("В"), NOT_NEWLINE, LATIN | BLANK],
    [chars("β"), chars("€"), chars("™\xa0Ά\xad®°")],
    [GREEK_LEAD, LEAD_SECOND, GREEK_LEAD],
    [chars("ā"), chars("€")],
]
START_RULES = [[chars("ÃÂ"), BLANK]]                  # only at the very start of the text

# Continuation bytes that also stand for themselves beside mojibake: blanks, dashes, quotation marks.
SELF_STANDING = chars(" –—―‘’‚“”„•…")
CLUES = ("LEAD2", "LEAD3", "LEAD4", "TAIL", "STRICT_TAIL")


def clue_sets():
    """Characters by the byte of a UTF-8 sequence that they are in some Latin-like page."""
    def read_as(numbers):
        return {page_characters(page)[b] for page in LATIN_LIKE for b in numbers} - {LOST}
    tail = read_as(range(0x80, 0xC0)) | {0x20}
    return [read_as(range(0xC2, 0xE0)), read_as(range(0xE0, 0xF0)), read_as((0xF0, 0xF3)), tail, tail - SELF_STANDING]


# ---- characters with a plain form ----------------------------------------------------------------------------------

LIGATURES = {"Ĳ": "IJ", "ĳ": "ij", "ŉ": "ʼn", "Ǳ": "DZ", "ǲ": "Dz", "ǳ": "dz", "Ǆ": "DŽ", "ǅ": "Dž", "ǆ": "dž",
             "Ǉ": "LJ", "ǈ": "Lj", "ǉ": "lj", "Ǌ": "NJ", "ǋ": "Nj", "ǌ": "nj", "ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl",
             "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "ſt", "ﬆ": "st"}
SINGLE_QUOTES, DOUBLE_QUOTES, LINE_ENDS = chars("ʼ‘-‛"), chars("“-‟"), chars("\u2028\u2029")


def plain_form(code):
    """A character after C1 repair, ligatures, width, quotes and line ends, in this order."""
    text = chr(code)
    if 0x80 <= code < 0xA0:
        text = chr(page_characters("cp1252")[code])
    text = "".join(LIGATURES.get(c, c) for c in text)
    text = "".join(unicodedata.normalize("NFKC", c) if 0xFF01 <= ord(c) < 0xFFF0 else " " if c == "\u3000" else c
                   for c in text)
    swap = {**{c: "'" for c in SINGLE_QUOTES}, **{c: '"' for c in DOUBLE_QUOTES}, **{c: "\n" for c in LINE_ENDS}}
    return text.translate(swap)


def plain_forms():
    for code in list(range(0x80, 0x3001)) + list(range(0xF000, 0x10000)):
        form = plain_form(code)
        if form != chr(code):
            assert 1 <= len(form) <= 3
            yield code, [ord(c) for c in form] + [0] * (3 - len(form))


# ---- output --------------------------------------------------------------------------------------------------------

def write_mojibake(f):
    """Characters fall into classes that no rule tells apart; a rule position is a set of classes."""
    sets = []
    for position in (p for rule in RULES + START_RULES for p in rule):
        if position not in sets:
            sets.append(position)
    pages = [page_characters(page) for page in PAGES]
    clues = clue_sets()
    known = {c for page in pages for c in page} | set().union(*(s for s in sets if isinstance(s, frozenset)))
    others = [0x4E00, 0x2003, 0x2603]                  # a letter, a space and a symbol that no rule names
    classes, members = [], {}
    for code in others + sorted(known):
        signature = tuple(code in s for s in sets)
        if signature not in classes:
            classes.append(signature)
        members[code] = classes.index(signature)
    assert [members[c] for c in others] == [0, 1, 2] and len(classes) <= 128 and len(RULES + START_RULES) <= 64
    assert set(range(256)) <= known and max(known) < 0x10000

    f.write("static const uint64_t rule_sets[][2] = {\n")
    for i in range(len(sets)):
        mask = sum(1 << k for k, signature in enumerate(classes) if signature[i])
        f.write("    {0x%xu, 0x%xu},\n" % (mask & (1 << 64) - 1, mask >> 64))
    f.write("};\nstatic const rule rules[] = {\n")
    for at_start, rule in [("false", r) for r in RULES] + [("true", r) for r in START_RULES]:
        f.write("    {%s, %d, {%s}},\n" % (at_start, len(rule), ", ".join(str(sets.index(p)) for p in rule)))
    f.write("};\nstatic const uint64_t rules_from[] = {\n")
    for signature in classes:
        starts = [signature[sets.index(rule[0])] for rule in RULES + START_RULES]
        f.write("    0x%xu,\n" % sum(1 << i for i, start in enumerate(starts) if start))
    f.write("};\nstatic const suspect suspects[] = {\n")
    for code in sorted(known):
        where = sum(1 << i for i, page in enumerate(pages) if code in page)
        clue = " | ".join(name for name, s in zip(CLUES, clues) if code in s) or "0"
        byte = [page.index(code) if code in page else 0 for page in pages]
        f.write("    {%d, %d, %s, %d, {%s}},\n" % (code, where, clue, members[code], ", ".join(map(str, byte))))
    f.write("};\n")


def write_plain(f):
    f.write("static const plain plain_forms[] = {\n")
    for code, form in plain_forms():
        f.write("    {%d, {%s}},\n" % (code, ", ".join(map(str, form))))
    f.write("};\n")


CLOSED, OPEN, SHOUTED = 1, 2, 4         # `&name;`, `&name`, `&NAME;` for a name in small letters


def write_entities(f):
    """Names without `&` and `;`, sorted; `kinds` tells in which spellings a name counts."""
    rows = {}
    for name, value in html.entities.html5.items():
        bare = name.rstrip(";")
        kinds = rows.get(bare, (0, value))[0] | (CLOSED if name.endswith(";") else OPEN)
        assert rows.get(bare, (0, value))[1] == value
        rows[bare] = kinds, value
    for name, value in html.entities.html5.items():
        shout = "&" + name.upper()
        if name.endswith(";") and name == name.lower() and html.unescape(shout) == shout:
            rows[name.upper().rstrip(";")] = SHOUTED, value.upper()
    names, offsets = b"", {}
    for name in sorted(rows):
        offsets[name] = len(names)
        names += name.encode("ascii")
    assert len(names) < 65536 and all(len(v) <= 3 for _, v in rows.values())
    f.write("static const char entity_names[] =\n")
    for i in range(0, len(names), 96):
        f.write('    "%s"\n' % names[i:i + 96].decode("ascii"))
    f.write("    ;\nstatic const entity entities[] = {\n")
    for name in sorted(rows):
        kinds, value = rows[name]
        f.write("    {%d, %d, %d, {%s}},\n" % (offsets[name], len(name), kinds, ", ".join(str(ord(c)) for c in value)))
    f.write("};\n")


WRITERS = {"mojibake": write_mojibake, "plain": write_plain, "entities": write_entities}

if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in WRITERS:
        sys.exit(__doc__)
    with open(sys.argv[2], "w", encoding="ascii") as out:
        out.write("/* Written by tools/make_text_tables.py. */\n")
        WRITERS[sys.argv[1]](out)
