// A calculator compiled to bytecode and run on a stack machine: recursive descent, function pointers.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum opcode { PUSH, ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATE, HALT };

struct instruction { enum opcode op; double operand; };

static struct instruction code[64];
static int length;
static const char *at, *problem;

static void emit(enum opcode op, double operand) { code[length++] = (struct instruction){op, operand}; }

static int accept(char c) {
    while (isspace((unsigned char)*at)) at++;
    return *at == c ? (at++, 1) : 0;
}

static void sum(void);

static void factor(void) {
    if (accept('-')) {
        factor();
        emit(NEGATE, 0);
    } else if (accept('(')) {
        sum();
        if (!accept(')')) problem = "missing )";
    } else {
        char *end;
        double number = strtod(at, &end);
        if (end == at) problem = "number expected";
        at = end;
        emit(PUSH, number);
    }
}

static void binary(void (*operand)(void), const char *symbols, enum opcode first, enum opcode second) {
    operand();
    for (int which; !problem && (which = accept(symbols[0]) ? 1 : accept(symbols[1]) ? 2 : 0);) {
        operand();
        emit(which == 1 ? first : second, 0);
    }
}

static void product(void) { binary(factor, "*/", MULTIPLY, DIVIDE); }
static void sum(void) { binary(product, "+-", ADD, SUBTRACT); }

static double run(void) {
    double stack[32], *top = stack;
    for (struct instruction *i = code; i->op != HALT; i++) {
        switch (i->op) {
        case PUSH: *top++ = i->operand; break;
        case NEGATE: top[-1] = -top[-1]; break;
        case ADD: top--; top[-1] += *top; break;
        case SUBTRACT: top--; top[-1] -= *top; break;
        case MULTIPLY: top--; top[-1] *= *top; break;
        default: top--; top[-1] /= *top;
        }
    }
    return *stack;
}

int main(void) {
    const char *const sources[] = {"1 + 2 * 3", "-(4 - 10) / 4", "10 - 4 - 3", "2 * (3", "1 / 0", "7 +"};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        at = sources[i];
        length = 0;
        problem = NULL;
        sum();
        emit(HALT, 0);
        if (problem) printf("%s: %s\n", sources[i], problem);
        else printf("%s = %g (%d instructions)\n", sources[i], run(), length);
    }
    return 0;
}
