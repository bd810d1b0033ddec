// tries: keeps the compiler busy with a program that includes itself
// seen-in: general
// walls: compiler, limits
// expect: compile_error
#include __FILE__
#include __FILE__
int main(void) { return 0; }
