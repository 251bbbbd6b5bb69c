#!/usr/bin/env python3
"""make_tokens.py - strings that are hard to tokenize, with the ids that the official SAM 3 tokenizer gives them.

    python make_tokens.py --bpe bpe_simple_vocab_16e6.txt.gz --count 2000 --seed 1 > tests/golden/tokens_hard.jsonl

Needs the packages sam3, ftfy and regex. One line a string: {"text": ..., "ids": ..., "cut": ...}; ids end with the end
token, the zeros of the padding are left out. Text that is no UTF-8 is given as {"hex": bytes, ...}.
"""

import argparse
import html.entities
import json
import os
import random
import sys
import unicodedata

from sam3.model.tokenizer_ve import SimpleTokenizer, _clean_lower

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import make_text_tables as tables  # noqa: E402

SENTENCES = [
    "a red car beside the dog's bowl", "Señorita, ¿dónde está el perro?", "Größe der Straße über Öl",
    "l’été à la plage – déjà vu…",
    "naïve façade, œuvre, Œdipe", "Žluťoučký kůň pěl ďábelské ódy", "zażółć gęślą jaźń", "árvíztűrő tükörfúrógép",
    "İstanbul'da ığdır şişe çiçek", "Ąžuolas ėjo į mišką, ūsai", "красный мяч и синяя машина",
    "Їжак під деревом — “дуже” гарний",
    "το κόκκινο αυτοκίνητο ΟΔΟΣ", "כדור אדום", "كرة حمراء كبيرة", "लाल गेंद और कुत्ता", "ลูกบอลสีแดง", "红色的球，和狗",
    "赤いボール、ｶﾀｶﾅ",
    "빨간 공 세 개", "🐶 dog 👩‍👩‍👧 🇫🇷 ❤️", "“quoted” ‘single’ — dash… •bullet", "€5 £3 ¥2 ½ ¼ ²³ ±×÷ µ§¶", "┌─┬┐ │box│ ░▒▓",
    "™®© № ∞ ≈ ≠ ≤≥ √∂∑",
    "\xa0no-break\xa0space\xa0", "à la mode às quele àquela", "Ã Â à  la"]
CORNERS = [
    "Ã©À\n", "Ã©À", "Ã quilo", "Ã quela", "Ã quele", "Ã s ", "Ã  la", "Ã© â\x85 x", "Ã© â\x84 x", "Ã© â\x80 x", "가ᆧ",
    "각ᆧ각", "가ᆧᆨ",
    "&amp&#59;lt;", "&amp&#x3b;lt;", "&#" + "0" * 20 + "8220;", "&#" + "0" * 21 + "8220;", "&#x" + "0" * 19 + "201c;",
    "&#x" + "0" * 20 + "201c;", "&DoubleLongLeftRightArrow;", "&CounterClockwiseContourIntegral;",
    "&CounterClockwiseContourIntegralx",
    "&" + "a" * 40 + ";", "&notit;", "&notin;", "&notinx", "&not", "&no", "a&#11;b", "a&#11b", "a&#12;b", "a&#13;b",
    "a&#14;b", "a&#x1fffe;b", "a&#xfdd0;b",
    "a&#xfdf0;b", "a&#x10ffff;b", "a&#x110000;b", "a&#xd800;b", "a&#0;b", "a&#x7f;b", "a&#x80;b", "a&#x81;b",
    "a&#x9f;b", "a&#x85;b",
    "<&eacute;\n&#x201c;x", "&#x201c;x\n<\n&#x201c;y", "&amp;amp;amp;lt;b", "&amp;lt;&lt;b", "ªΣ", "aªΣ", "ΣΣ", "Σ'Σ",
    "Α'Σ", "ΑΣ'", "ΑΣ-Α", "ΑΣⓐ", "ΑΣⅧ",
    "\x80Ã©", "é\x93x\x94", "漢\x93x\x94", "\x81é漢", "ŒA", "Œ", "Œ ", "Œ-", "Ã ", "xÃ ", " Ã ", "Â© 2020", "x Â© y",
    "\x1a?Ã", "â€œxâ€�", "â€œxâ€?"]
CORNERS += ["ΑΣ&#x%x;Α" % c for c in [*b"'.:-_", 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x201A, 0x2024, 0x2027,
                                      0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A, 0x301, 0x488,
                                      0xAD, 0x2B0, 0xA8, 0x903]]
SEPARATORS = ["", "", " ", " ", "\n", "\r\n", ", ", "<", "\t", "\u2028", ". "]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        known = [c for c in range(0x20, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
        self.known = [chr(c) for c in known]
        self.marks = [chr(c) for c in known if unicodedata.combining(chr(c))]
        self.composed = [chr(c) for c in known if unicodedata.decomposition(chr(c))]
        self.cased = [chr(c) for c in known if chr(c).lower() != chr(c) or chr(c).upper() != chr(c)]
        self.blocks = {}
        for c in known:
            self.blocks.setdefault(c >> 7, []).append(chr(c))
        self.blocks = list(self.blocks.values())
        self.suspects = sorted({chr(c) for p in tables.PAGES for c in tables.page_characters(p) if c > 127})
        self.plain = [chr(c) for c, _ in tables.plain_forms()]
        self.names = sorted(html.entities.html5)
        self.kinds = [f for n, f in sorted(vars(Maker).items()) if n.startswith("make_")]

    def some(self, choices, low=1, high=8):
        return "".join(self.rng.choice(choices) for _ in range(self.rng.randint(low, high)))

    def any_kind(self):
        return self.rng.choice(self.kinds)(self)

    def string(self):
        text = self.rng.choice(SEPARATORS).join(self.any_kind() for _ in range(self.rng.choice((1, 1, 1, 2, 3))))
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")

    def make_sentence(self):
        return self.rng.choice(SENTENCES)

    def make_script(self):
        block = self.rng.choice(self.blocks[:60] if self.rng.random() < 0.5 else self.blocks)
        return " ".join(self.some(block) for _ in range(self.rng.randint(1, 4)))

    def make_anything(self):
        return self.some(self.known, 1, 12)

    def make_reference(self):
        out = []
        for _ in range(self.rng.randint(1, 4)):
            name = self.rng.choice(self.names)
            name = self.rng.choice((name, name, name.rstrip(";"), name.upper(), name.lower(), name[:-2], name + "x",
                                    name * 2))
            out.append(self.rng.choice(("&", "&", "&amp;", "&amp;amp;", "&&", "& ", "&AMP;")) + name)
        return self.rng.choice(("", " ", "a")).join(out)

    def make_number(self):
        n = self.rng.choice((self.rng.randrange(0x180), self.rng.randrange(0x110000),
                             self.rng.randrange(0xD700, 0xE100), 0x10FFFF,
                             0x110000, 0xFDD0, 0xFFFE, 0xFFFD, 10**12, 59, 60, 38, 0x345, 0x1FFFE))
        digits = self.rng.choice(("%d", "x%x", "X%X", "%07d", "x%08x", "%dx", "x%xg", "%d" + "0" * 24)) % n
        return self.rng.choice(("&#", "&amp;#", "&#;&#", "&#x;&#")) + digits + self.rng.choice((";", ";", "", " "))

    def mojibake(self, text, times=1):
        for _ in range(times):
            data, page = text.encode("utf-8", "surrogatepass"), tables.page_characters(self.rng.choice(tables.PAGES))
            text = "".join(chr(page[b]) for b in data)
        return text

    def make_mojibake(self):
        text = self.mojibake(self.rng.choice(SENTENCES), self.rng.choice((1, 1, 1, 2, 3)))
        return text if self.rng.random() < 0.5 else self.cut_out(text)

    def cut_out(self, text):
        start = self.rng.randrange(len(text))
        return text[start:start + self.rng.randint(1, 40)]

    def make_damaged(self):
        text = self.mojibake(self.cut_out(self.rng.choice(SENTENCES[1:])))
        how = self.rng.randrange(5)
        if how == 0:
            return text.replace("\xa0", " ")
        if how == 1:
            return "".join("\ufffd" if ord(c) > 127 and self.rng.random() < 0.2 else c for c in text)
        if how == 2:
            return "".join("?" if ord(c) > 127 and self.rng.random() < 0.2 else c for c in text)
        if how == 3:
            return "".join(self.rng.choice(self.suspects) if self.rng.random() < 0.1 else c for c in text)
        return self.rng.choice(SENTENCES) + text + self.rng.choice(SENTENCES)

    def make_suspects(self):
        return "".join(self.some(self.suspects, 1, 3) + self.some("aZz  .,?!\n09_", 0, 2)
                       for _ in range(self.rng.randint(1, 5)))

    def make_rule(self):
        out = []
        for position in self.rng.choice(tables.RULES + tables.START_RULES):
            near = ["a", " ", "é", "б", "1", "_", "\u2003", "☃", "\n"]
            if isinstance(position, frozenset):
                near = sorted(map(chr, position))
            out.append(self.rng.choice(near if self.rng.random() < 0.9 else self.suspects))
        return self.some("aZ \n", 0, 1) + "".join(out) + self.some("bY \n?", 0, 2)

    def make_bytes(self):
        pieces = [bytes([a, b]) for a in b"\xc2\xc3\xc5\xd0\xd9\xdf" for b in b" ?\x1a\x80\xa0\xbf"]
        pieces += [b"\xc0\x80", b"\xc0", b"\xed\xa0\xbd\xed\xb8\x80", b"\xed\xa0\xbd", b"\xed\xa0\x1a\xed\xb0\x80",
                   b"\xed\x95\x9c"]
        pieces += [b"\xed\xa0?\xed\xb0\x80", b"\xc0\n", b"\xed\xa0\x80\xed\xb0\n", b"\xed\xa0\x80\xed\xb0\x1a"]
        pieces += [b"\xe2\x80\x99", b"\xe2 \x99", b"\xe2\x80 ", b"\xe2?\x99", b"\xe2\x80\x1a", b"\xe2\x1a\x1a",
                   b"\xe2\x85 ", b"\xe1 \x80"]
        pieces += [b"\xf0\x9f\x98\x80", b"\xf0 \x98\x80", b"\xf0\x9f \x80", b"\xf0\x9f\x98 ", b"\xf0\x9f?\x80",
                   b"\xf3\xa0\x81\x9a", b"\xf4\x1a\x80\x80"]
        pieces += [b"\xc3 ", b"\xc3 quele", b"\xc3 s ", b"\xc3  ", b"\x1a", b"a", b" ", b"z"]
        data = b"".join(self.rng.choice(pieces) for _ in range(self.rng.randint(1, 5)))
        page = tables.page_characters(self.rng.choice(tables.PAGES))
        return "".join(chr(page[b]) for b in data) + self.rng.choice(("", "", "\n"))

    def make_controls(self):
        parts = ["\x1b[31m", "\x1b[0;1m", "\x1b[", "\x1b", "\x1b[٣m", "\x1b[1", "\x07", "\x00", "\x0b", "\x0c",
                 "\x1c", "\x7f", "\x85", "\x9b", "\r", "\n", "\r\n", "\u2028", "\u206a", "\ufeff", "\ufff9", "\ufffc",
                 "\u200b", "\u200d", "\xad", "a",
                 "Bc ", "１", "［"]
        return self.some(parts, 2, 10)

    def make_c1(self):
        return self.some([chr(c) for c in range(0x80, 0xA0)] + ["a", " ", "é", "漢"], 2, 8)

    def make_plain_forms(self):
        return self.some(self.plain, 1, 10) + self.some("ab ", 0, 3)

    def make_marks(self):
        return "".join(self.rng.choice(self.composed + ["a", "e", "ñ", "가", "ᄀ", "Å"]) + self.some(self.marks, 0, 5)
                       for _ in range(self.rng.randint(1, 4)))

    def make_hangul(self):
        return self.some([chr(c) for c in range(0x1100, 0x1200)] + ["가", "각", "힣"], 2, 10)

    def make_case(self):
        return self.some(["Σ", "Σ", "σ", "Α", "İ", "I", "ı", "ſ", "ß", "ẞ", "'", ".", "\u0301", "\xad", " ", "ª", "ⓐ",
                         "Ⅷ", "ʰ", "1", "·", "🄰", "ǅ"], 2, 10)

    def make_cased(self):
        return self.some(self.cased, 1, 8)

    def make_endings(self):
        return self.some(["'s", "'S", "'ſ", "'t", "'re", "'VE", "'ll", "'Ll", "'d", "’s", "'", "''", "dog", "I", " ",
                         "!", "9", "\u0345"], 2, 10)

    def make_special(self):
        return self.some(["<start_of_text>", "<END_OF_TEXT>", "<ſtart_of_text>", "<end_of_text", "<start_of_text>",
                         "<", "!", "a", " ",
                          "&lt;end_of_text&gt;", "&lt;start_of_text>"], 1, 4)

    def make_long(self):
        unit = self.rng.choice(("a", "ab", "the", "haha", "xyz", "é", "漢字", "!", "-", "😂", "mo", "1", "abcdefghij",
                                "aaaab", "straß"))
        return unit * self.rng.choice((10, 31, 32, 33, 100, 400))

    def make_noise(self):
        return self.some("abcdefghijklmnopqrstuvwxyz", 20, 300)

    def make_cut(self):
        return "dog " * self.rng.randint(27, 33)

    def make_bad_utf8(self):
        pieces = [b"\xff", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80", b"\xf8\x88", b"a",
                  b" ", "é".encode(), b"\x80", b"\xa0"]
        data = b"".join(self.rng.choice(pieces) for _ in range(self.rng.randint(1, 6)))
        return data.decode("utf-8", "surrogateescape")


def all_assigned(text):
    """What kind newer characters are of depends on the Unicode version of every library involved."""
    return not any(unicodedata.category(c) == "Cn" for c in _clean_lower(text))


def entry(tokenizer, text, context):
    ids = [tokenizer.sot_token_id] + tokenizer.encode(text) + [tokenizer.eot_token_id]
    cut = len(ids) > context
    row = tokenizer([text], context_length=context)[0].tolist()
    assert row[:len(ids)] == ids[:context - cut] + [tokenizer.eot_token_id] * cut
    row = row[:min(len(ids), context)]
    try:
        text.encode("utf-8")
        return {"text": text, "ids": row, "cut": cut}
    except UnicodeEncodeError:
        return {"hex": text.encode("utf-8", "surrogateescape").hex(), "ids": row, "cut": cut}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bpe", required=True)
    ap.add_argument("--count", type=int, default=1000)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--context", type=int, default=32)
    ap.add_argument("--longest", type=int, default=100000, help="leave out strings of more characters")
    a = ap.parse_args()
    tokenizer, maker, seen = SimpleTokenizer(bpe_path=a.bpe), Maker(a.seed), set()
    corners = iter(CORNERS)
    while len(seen) < a.count:
        text = next(corners, None) or maker.string()
        if text in seen or len(text) > a.longest or not all_assigned(text):
            continue
        seen.add(text)
        print(json.dumps(entry(tokenizer, text, a.context), separators=(",", ":")))


if __name__ == "__main__":
    main()
