// tries: exits successfully before anything was checked
// seen-in: SandboxFusion
// walls: template
// template: yes
// expect: runtime_error
#include <unistd.h>
int f(int x) { _exit(0); }
