// tries: makes the compiler quote a host file
// seen-in: general
// walls: mount
// compiler: yes
// expect: compile_error
#include "@SECRET@"
int main(void) { return 0; }
