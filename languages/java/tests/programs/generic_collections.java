// Generics and data structures: a bounded LRU cache, sorted and enum maps, wildcards.
import java.util.Collections;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

public class GenericCollections {
    static class LruCache<K, V> extends LinkedHashMap<K, V> {
        private static final long serialVersionUID = 1L;
        private final int capacity;

        LruCache(int capacity) {
            super(16, 0.75f, true);
            this.capacity = capacity;
        }

        @Override
        protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
            return size() > capacity;
        }
    }

    enum Suit { CLUBS, HEARTS }

    static <T extends Comparable<? super T>> T largest(List<? extends T> items) {
        return Collections.max(items);
    }

    public static void main(String[] args) {
        LruCache<String, Integer> cache = new LruCache<>(3);
        for (String key : "a b c a d".split(" ")) {
            cache.merge(key, 1, Integer::sum);
        }
        System.out.println(cache);

        NavigableMap<Integer, String> grades = new TreeMap<>(Map.of(0, "F", 60, "C", 75, "B", 90, "A"));
        System.out.println(grades.floorEntry(89).getValue() + " " + grades.headMap(75, true) + " " + grades.descendingMap());
        System.out.println(largest(List.of(3, 14, 1)) + " " + largest(List.of("pear", "fig")));
        EnumMap<Suit, Integer> suits = new EnumMap<>(Map.of(Suit.HEARTS, 2, Suit.CLUBS, 1));
        System.out.println(suits);
        try {
            List.of(1).add(2);
        } catch (UnsupportedOperationException e) {
            System.out.println("immutable");
        }
    }
}
