// A functional interface with default and static methods, lambdas, closures, method references.
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;

@FunctionalInterface
interface Stage<A, B> {
    B apply(A input);

    default <C> Stage<A, C> then(Stage<? super B, ? extends C> next) {
        return input -> next.apply(apply(input));
    }

    static <T> Stage<T, T> repeat(int times, UnaryOperator<T> operator) {
        return input -> {
            T value = input;
            for (int i = 0; i < times; i++) {
                value = operator.apply(value);
            }
            return value;
        };
    }
}

public class LambdaPipeline {
    private static int calls;

    static <A, B> Function<A, B> memoize(Function<A, B> function) {
        Map<A, B> cache = new HashMap<>();
        return argument -> cache.computeIfAbsent(argument, function);
    }

    static Supplier<Integer> counter(int start, int step) {
        int[] next = {start - step};
        return () -> next[0] += step;
    }

    static <T> List<T> filter(List<T> items, Predicate<? super T> predicate) {
        List<T> kept = new ArrayList<>(items);
        kept.removeIf(predicate.negate());
        return kept;
    }

    public static void main(String[] args) {
        Stage<String, Integer> length = String::length;
        Stage<String, String> stars = length.then(n -> n * 2).then("*"::repeat);
        System.out.println(stars.apply("abc"));
        System.out.println(Stage.<Integer>repeat(10, n -> n * 2).apply(1));
        System.out.println(Stage.<String>repeat(2, s -> s + s).then(String::toUpperCase).apply("ab"));

        Function<Integer, Integer> slowSquare = memoize(n -> {
            calls++;
            return n * n;
        });
        int total = 0;
        for (int i = 0; i < 10; i++) {
            total += slowSquare.apply(i % 3);
        }
        System.out.println(total + " in " + calls + " calls");

        Supplier<Integer> odd = counter(1, 2);
        Supplier<Integer> tens = counter(10, 10);
        System.out.println(odd.get() + " " + odd.get() + " " + tens.get() + " " + odd.get());

        Predicate<String> isShort = s -> s.length() < 4;
        Predicate<String> hasO = s -> s.contains("o");
        System.out.println(filter(List.of("fox", "dog", "hen", "goat"), isShort.and(hasO)));
        Function<Integer, Function<Integer, Integer>> add = a -> b -> a + b;
        BiFunction<Integer, Integer, Integer> power = (b, e) -> (int) Math.pow(b, e);
        System.out.println(add.apply(3).apply(4) + " " + power.andThen(n -> n - 1).apply(2, 8));
    }
}
