// BigInteger and BigDecimal: factorials, Fibonacci, primality, RSA, exact money, digits of e.
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.stream.LongStream;

public class BigIntegers {
    static BigInteger factorial(int n) {
        return LongStream.rangeClosed(1, n).mapToObj(BigInteger::valueOf).reduce(BigInteger.ONE, BigInteger::multiply);
    }

    static BigInteger fibonacci(int n) {
        BigInteger a = BigInteger.ZERO;
        BigInteger b = BigInteger.ONE;
        for (int i = 0; i < n; i++) {
            BigInteger next = a.add(b);
            a = b;
            b = next;
        }
        return a;
    }

    static int digitSum(BigInteger n) {
        return n.toString().chars().map(Character::getNumericValue).sum();
    }

    static BigDecimal euler(int digits) {
        BigDecimal sum = BigDecimal.ONE;
        BigDecimal term = BigDecimal.ONE;
        for (int n = 1; term.signum() != 0; n++) {
            term = term.divide(BigDecimal.valueOf(n), digits + 5, RoundingMode.DOWN);
            sum = sum.add(term);
        }
        return sum.setScale(digits, RoundingMode.DOWN);
    }

    public static void main(String[] args) {
        System.out.println("digit sum of 100!: " + digitSum(factorial(100)));
        System.out.println("digit sum of 2^1000: " + digitSum(BigInteger.TWO.pow(1000)));
        System.out.println("fib(90): " + fibonacci(90));
        System.out.println("fib(300): " + fibonacci(300));
        for (int exponent : new int[] {61, 67, 127}) {
            BigInteger mersenne = BigInteger.ONE.shiftLeft(exponent).subtract(BigInteger.ONE);
            System.out.println(mersenne + " " + mersenne.isProbablePrime(50));
        }

        BigInteger n = BigInteger.valueOf(3233);
        BigInteger e = BigInteger.valueOf(17);
        BigInteger d = e.modInverse(BigInteger.valueOf(3120));
        BigInteger cipher = BigInteger.valueOf(65).modPow(e, n);
        System.out.println("RSA: " + d + " " + cipher + " " + cipher.modPow(d, n));
        System.out.println("hex: " + new BigInteger("deadbeef", 16) + " " + BigInteger.valueOf(-255).toString(16));

        System.out.println("doubles: " + (0.1 + 0.2) + " " + new BigDecimal("0.1").add(new BigDecimal("0.2")));
        BigDecimal vat = new BigDecimal("19.99").multiply(new BigDecimal("0.175"));
        System.out.println("vat: " + vat + " " + vat.setScale(2, RoundingMode.HALF_EVEN));
        System.out.println("third: " + BigDecimal.ONE.divide(BigDecimal.valueOf(3), MathContext.DECIMAL32));
        System.out.println("sqrt 2: " + BigDecimal.valueOf(2).sqrt(new MathContext(30)));
        System.out.println("e: " + euler(50));
        System.out.println("overflow: " + (Integer.MAX_VALUE + 1) + " " + Math.multiplyHigh(1L << 62, 4));
    }
}
