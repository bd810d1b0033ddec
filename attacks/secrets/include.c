// tries: has the compiler quote a file of the host's
// seen-in: general
// walls: mount
// compiler: yes
// expect: compile_error
#include "@SECRET@"
int main(void) { return 0; }
