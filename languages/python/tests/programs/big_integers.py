# Big integers: factorials, Fibonacci, Miller-Rabin, modular inverses, digits of pi.
import math


def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def is_probable_prime(n, bases=(2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)):
    if n < 2 or any(n % p == 0 for p in bases):
        return n in bases
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in bases:
        x = pow(base, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(s - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def pi_digits(count):
    """Machin: pi = 16 atan(1/5) - 4 atan(1/239), in integer arithmetic."""
    unity = 10 ** (count + 10)

    def arctan_inverse(x):
        total = term = unity // x
        n, sign = 3, -1
        while term:
            term //= x * x
            total += sign * (term // n)
            n, sign = n + 2, -sign
        return total

    return str((16 * arctan_inverse(5) - 4 * arctan_inverse(239)) // 10**10)


def digit_sum(n):
    return sum(map(int, str(n)))


print("digit sum of 100!:", digit_sum(math.factorial(100)))
print("digit sum of 2**1000:", digit_sum(2**1000))
print("fib(90):", fibonacci(90))
print("fib(300):", fibonacci(300))
print("2**127 - 1:", 2**127 - 1, is_probable_prime(2**127 - 1))
print("2**67 - 1 prime:", is_probable_prime(2**67 - 1), "=", 193707721 * 761838257287 == 2**67 - 1)
print("3**-1 mod 2**61 - 1:", pow(3, -1, 2**61 - 1))
print("isqrt(2 * 10**40):", math.isqrt(2 * 10**40))
print("pi:", pi_digits(50))
