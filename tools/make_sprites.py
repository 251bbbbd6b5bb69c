#!/usr/bin/env python3
"""Cuts named pictures out of Noto Color Emoji: a safetensors file of u8 [height, width, 4] tensors, from which
`samite train` and `samite scenes` compose scenes.

Usage: make_sprites.py OUT.safetensors [FONT.ttf]

Tensors are called NAME/I; of names with three glyphs or more, every third one is called held/NAME/I and is kept from
training. Needs the Debian packages fonts-noto-color-emoji and python3-pil.
"""
import json
import struct
import sys

from PIL import Image, ImageDraw, ImageFont

FONT = "/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
SIDE = 96           # of the longer side of a sprite

GLYPHS = {
    "dog": "🐕🐶🐩", "cat": "🐈🐱😺", "horse": "🐎🐴", "cow": "🐄🐮🐃", "pig": "🐖🐷", "sheep": "🐑🐏", "chicken": "🐔🐓",
    "duck": "🦆", "penguin": "🐧", "owl": "🦉", "frog": "🐸", "turtle": "🐢", "fish": "🐟🐠🐡", "shark": "🦈",
    "whale": "🐳🐋", "octopus": "🐙", "crab": "🦀", "snail": "🐌", "butterfly": "🦋", "bee": "🐝", "spider": "🕷",
    "elephant": "🐘", "lion": "🦁", "tiger": "🐅🐯", "bear": "🐻", "panda": "🐼", "rabbit": "🐇🐰", "mouse": "🐁🐭🐀",
    "monkey": "🐒🐵", "apple": "🍎🍏", "banana": "🍌", "lemon": "🍋", "strawberry": "🍓", "grapes": "🍇",
    "watermelon": "🍉", "cherry": "🍒", "pear": "🍐", "pineapple": "🍍", "carrot": "🥕", "tomato": "🍅", "bread": "🍞",
    "cheese": "🧀", "pizza": "🍕", "hamburger": "🍔", "cake": "🍰🎂", "ice cream": "🍦🍨🍧", "cup": "☕🍵",
    "car": "🚗🚙🚕", "bus": "🚌🚎🚍", "truck": "🚚🚛", "train": "🚂🚆", "airplane": "🛩✈", "boat": "⛵🚤",
    "bicycle": "🚲", "rocket": "🚀", "helicopter": "🚁", "house": "🏠🏡", "tree": "🌳🌲🌴", "flower": "🌻🌷🌹🌸🌼🌺",
    "cactus": "🌵", "mushroom": "🍄", "sun": "🌞☀", "moon": "🌙🌛", "cloud": "☁", "umbrella": "☂🌂☔", "book": "📕📗📘📙",
    "clock": "⏰🕐", "key": "🔑🗝", "guitar": "🎸", "ball": "⚽🏀🎾🏐", "hat": "🎩👒🧢", "shoe": "👟👞🥾", "shirt": "👕",
    "phone": "📱☎", "camera": "📷📸", "chair": "🪑", "scissors": "✂", "hammer": "🔨",
}


def cut(font, glyph):
    """The glyph in its bounding box, longer side SIDE; None where the font has none."""
    picture = Image.new("RGBA", (160, 160))
    ImageDraw.Draw(picture).text((8, 8), glyph, font=font, embedded_color=True)
    box = picture.getbbox()
    if box is None or box[2] - box[0] < 30:
        return None
    picture = picture.crop(box)
    scale = SIDE / max(picture.size)
    size = [max(8, round(side * scale)) for side in picture.size]
    return picture.convert("RGBa").resize(size, Image.LANCZOS).convert("RGBA")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    font = ImageFont.truetype(sys.argv[2] if len(sys.argv) == 3 else FONT, 109)
    header, data = {}, b""
    for name, glyphs in GLYPHS.items():
        for i, glyph in enumerate(glyphs):
            picture = cut(font, glyph)
            if picture is None:
                print(f"make_sprites: the font has no {glyph} ({name})", file=sys.stderr)
                continue
            held = i % 3 == 2
            pixels = picture.tobytes()
            header[f"held/{name}/{i}" if held else f"{name}/{i}"] = {
                "dtype": "U8", "shape": [picture.size[1], picture.size[0], 4],
                "data_offsets": [len(data), len(data) + len(pixels)]}
            data += pixels
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(sys.argv[1], "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)
    print(f"{sys.argv[1]}: {len(header)} sprites of {len(GLYPHS)} names")


if __name__ == "__main__":
    main()
