// The programs here can crash a host, so they run only in an emulated machine that is discarded afterwards. Including
// this file ends a program anywhere else, before its main function: QEMU's emulator identifies itself in CPUID, which
// no setting or file of another machine imitates by accident, and the root that tests/vm builds contains a marker file
// too.
#include <cpuid.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void only_in_a_disposable_machine(void) {
    unsigned highest, name[3], features, ignored;
    __cpuid(1, ignored, ignored, features, ignored);
    __cpuid(0x40000000, highest, name[0], name[1], name[2]);
    int emulated = features >> 31 && memcmp(name, "TCGTCGTCGTCG", sizeof name) == 0;
    if (emulated && access("/usr/lib/vm/disposable", F_OK) == 0) return;
    static const char refusal[] = "this program only runs in the emulated machine of tests/vm\n";
    if (write(2, refusal, sizeof refusal - 1)) {}
    _exit(126);
}
