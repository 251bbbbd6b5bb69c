#!/usr/bin/env python3
"""library.py - the libraries as other programs get them: what they export, C++, a program in C, install.

Usage: library.py BUILD SOURCE CC [CXX] [sanitize]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = SOURCE = CC = CXX = None
SANITIZE = False

PROGRAM = r"""
#include <samite.h>
#include <stdio.h>
int main(void)
{
    samite_error e;
    samite_model *m = NULL;
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_prompt p = SAMITE_PROMPT_INIT;
    (void)p;
    if (samite_model_open(&m, "formula:tiny", &o, &e)) {
        puts(e.text);
        return 1;
    }
    samite_model_free(m);
    return samite_model_open(&m, "no-such-file.pt", &o, &e) == SAMITE_INPUT ? 0 : 2;
}
"""


def read(path):
    with open(path) as f:
        return f.read()


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def output(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more).stdout.decode()


class Library(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="samite-library-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def declared(self):
        header = read(os.path.join(SOURCE, "include", "samite.h"))
        return set(re.findall(r"^SAMITE_API[^;(]*?(samite_\w+)\(", header, re.M))

    def test_shared_exports_the_header_and_nothing_else(self):
        names = output("nm", "-D", "--defined-only", os.path.join(BUILD, "libsamite.so")).splitlines()
        exported = {line.split()[-1].split("@")[0] for line in names}
        exported = {n for n in exported if not re.match(r"(__|_init$|_fini$|_edata$|_end$)", n)}
        self.assertEqual(exported, self.declared())

    def test_archive_defines_the_header_and_nothing_else(self):
        names = output("nm", "-g", "--defined-only", os.path.join(BUILD, "libsamite.a")).splitlines()
        defined = {line.split()[-1] for line in names if len(line.split()) == 3}
        defined = {n for n in defined if not n.startswith("__")}      # what sanitizers add
        self.assertEqual(defined, self.declared())

    def test_header_in_cxx(self):
        if not CXX:
            self.skipTest("no C++ compiler")
        source = os.path.join(self.folder, "a.cpp")
        write(source, '#include <samite.h>\n#include <samite.h>\n'
                                'samite_options o = SAMITE_OPTIONS_INIT; samite_prompt p = SAMITE_PROMPT_INIT;\n'
                                'samite_page g = SAMITE_PAGE_INIT;\n'
                                'samite_overlay_options v = SAMITE_OVERLAY_OPTIONS_INIT;\n'
                                'int main() { return samite_model_open(0, 0, &o, 0); }\n')
        output(CXX, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
               "-I" + os.path.join(SOURCE, "include"), source)

    def test_header_alone_in_c(self):
        source = os.path.join(self.folder, "a.c")
        write(source, "#include <samite.h>\nint main(void) { return SAMITE_OK; }\n")
        output(CC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
               "-I" + os.path.join(SOURCE, "include"), source)

    def test_install_and_pkg_config(self):
        if SANITIZE:
            self.skipTest("a plain program cannot link sanitized libraries")
        prefix = os.path.join(self.folder, "usr")
        output("cmake", "--install", BUILD, "--prefix", prefix)
        pc = [d for d, _, names in os.walk(prefix) if "samite.pc" in names][0]
        source, program = os.path.join(self.folder, "a.c"), os.path.join(self.folder, "a")
        write(source, PROGRAM)
        text = read(os.path.join(pc, "samite.pc"))
        moved = re.sub(r"^prefix=.*", "prefix=" + prefix, text, flags=re.M)
        write(os.path.join(pc, "samite.pc"), moved)
        env = dict(os.environ, PKG_CONFIG_PATH=pc)
        lib = os.path.dirname(pc)
        shared = output("pkg-config", "--cflags", "--libs", "samite", env=env).split()
        output(CC, "-std=c99", source, "-o", program, *shared, "-Wl,-rpath," + lib)
        output(program, cwd=self.folder)
        static = output("pkg-config", "--cflags", "--libs", "--static", "samite", env=env).split()
        static = [os.path.join(lib, "libsamite.a") if f == "-lsamite" else f for f in static]
        output(CC, "-std=c99", source, "-o", program, *static)
        output(program, cwd=self.folder)
        self.assertRegex(output(os.path.join(prefix, "bin", "samite"), "--version"), r"^samite ")


if __name__ == "__main__":
    arguments, sys.argv = sys.argv[1:], sys.argv[:1]
    BUILD, SOURCE, CC = arguments[:3]
    CXX = arguments[3] if len(arguments) > 3 else None
    SANITIZE = "sanitize" in arguments[4:]
    unittest.main(verbosity=1)
