// tries: makes the assembler embed a host file in the program
// seen-in: general
// walls: mount
// compiler: yes
// expect: compile_error
#include <stdio.h>
__asm__(".data\nstolen: .incbin \"@SECRET@\"\n.byte 0\n.text\n");
extern const char stolen[];
int main(void) { puts(stolen); }
