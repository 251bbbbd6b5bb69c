/* main.c - finds the sub-command and runs it. */
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "session.h"

static const command *const commands[] = {
    &segment_command, &everything_command, &encode_command, &track_command, &info_command, &convert_command, &align_command, &bench_command,
    &convert_annotations_command,
    &eval_command, &doctor_command, &export_command, &import_command, &train_command, &merge_command,
    &start_command, &scenes_command,
};
#define COMMANDS (sizeof commands / sizeof *commands)

static const char introduction[] =
    "samite - SAM 3 in C: find and outline in pictures what words or example boxes name\n"
    "\n"
    "Usage: samite COMMAND [arguments]\n"
    "\n"
    "Commands:\n";

static const char closing[] =
    "\n"
    "  samite COMMAND --help       options and examples of a command\n"
    "  samite --version            version\n"
    "\n"
    "The model comes from -m or from SAMITE_MODEL: sam3.pt, .safetensors, a Hugging Face folder, or made-up weights\n"
    "for trying things out: formula:tiny, formula:small, formula:full.\n"
    "\n"
    "Examples:\n"
    "  samite segment photo.jpg -m sam3.pt --text dog --text \"red car\" --out results\n"
    "  samite info sam3.pt\n"
    "  samite doctor\n"
    "\n"
    "Exit status: 0 done (finding nothing is no failure), 1 a check failed, 2 usage, 3 input unusable,\n"
    "4 memory or disk, 130 interrupted.\n";

static int print_help(void)
{
    fputs(introduction, stdout);
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  %-19s  %s\n", commands[i]->name, commands[i]->summary);
    fputs(closing, stdout);
    return finish_output(EXIT_OK);
}

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    static const char *const others[] = {"help", "--help", "--version"};
    const char *names[COMMANDS + sizeof others / sizeof *others];
    size_t count = 0;
    for (; count < COMMANDS; count++)
        names[count] = commands[count]->name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        names[count++] = others[i];
    const char *near = closest_word(name, names, count);
    if (near)
        say("unknown command %s; did you mean samite %s?", name, near);
    else if (access(name, F_OK) == 0)
        say("unknown command %s; to look into a picture: samite segment %s --text WORDS", name, name);
    else
        say("unknown command %s; samite --help lists the commands", name);
    return exit_status(SAMITE_USAGE);
}

/* samite help [COMMAND] */
static int help_command(int argc, char **argv)
{
    if (argc == 0)
        return print_help();
    const command *c = find_command(argv[0]);
    if (!c)
        return unknown_command(argv[0]);
    command_help(c);
    return finish_output(EXIT_OK);
}

/* Where the caller closed a standard stream, the next file opened would take its number, and messages would end up in
 * that file: something unusable takes its place. */
static void fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)            /* the lower ones are open, so open() takes this number */
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    catch_interrupts();
    setlocale(LC_CTYPE, "");     /* for widths on the terminal; numbers stay those of the C locale */
    if (argc < 2) {
        say("no command given; samite --help lists them, and: samite segment photo.jpg -m sam3.pt --text dog");
        return exit_status(SAMITE_USAGE);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return print_help();
    if (strcmp(argv[1], "help") == 0)
        return help_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("samite %s\n", SAMITE_VERSION);
        return finish_output(EXIT_OK);
    }
    const command *c = find_command(argv[1]);
    return c ? c->run(argc - 2, argv + 2) : unknown_command(argv[1]);
}
