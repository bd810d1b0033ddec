// Records and streams: grouping, partitioning, flat maps, statistics, custom collectors.
import java.util.Comparator;
import java.util.DoubleSummaryStatistics;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

public class StreamRecords {
    record Item(String sku, int quantity, double price) {
        Item {
            if (quantity <= 0) {
                throw new IllegalArgumentException("quantity of " + sku);
            }
        }

        double total() {
            return quantity * price;
        }
    }

    record Order(int id, String customer, List<Item> items) {
        double total() {
            return items.stream().mapToDouble(Item::total).sum();
        }
    }

    public static void main(String[] args) {
        List<Order> orders = List.of(
            new Order(1, "Ada", List.of(new Item("pen", 3, 1.25), new Item("ink", 1, 7.5))),
            new Order(2, "Bob", List.of(new Item("disk", 2, 50))),
            new Order(3, "Ada", List.of(new Item("paper", 10, 0.5), new Item("pen", 1, 1.25))));

        Map<String, Double> spent = orders.stream()
            .collect(Collectors.groupingBy(Order::customer, TreeMap::new, Collectors.summingDouble(Order::total)));
        System.out.println(spent);

        Map<String, Integer> units = orders.stream()
            .flatMap(order -> order.items().stream())
            .collect(Collectors.toMap(Item::sku, Item::quantity, Integer::sum, TreeMap::new));
        System.out.println(units);

        Map<Boolean, List<Integer>> large = orders.stream()
            .collect(Collectors.partitioningBy(o -> o.total() > 10, Collectors.mapping(Order::id, Collectors.toList())));
        System.out.println(large);

        DoubleSummaryStatistics stats = orders.stream().mapToDouble(Order::total).summaryStatistics();
        System.out.printf("%d %.2f %.2f %.2f%n", stats.getCount(), stats.getMin(), stats.getMax(), stats.getAverage());

        orders.stream().max(Comparator.comparing(Order::total)).ifPresent(System.out::println);
        System.out.println(orders.get(0).items().get(1).equals(new Item("ink", 1, 7.5)));

        System.out.println(Stream.iterate(new long[] {0, 1}, p -> new long[] {p[1], p[0] + p[1]})
            .skip(90).findFirst().map(p -> p[0]).orElseThrow());
        System.out.println(IntStream.rangeClosed(1, 15)
            .mapToObj(n -> n % 15 == 0 ? "FizzBuzz" : n % 5 == 0 ? "Buzz" : n % 3 == 0 ? "Fizz" : "" + n)
            .collect(Collectors.joining(" ")));
        System.out.println(IntStream.range(2, 10_000).parallel()
            .filter(n -> IntStream.rangeClosed(2, (int) Math.sqrt(n)).noneMatch(d -> n % d == 0)).count());
        try {
            new Item("nothing", 0, 1);
        } catch (IllegalArgumentException e) {
            System.out.println(e.getMessage());
        }
    }
}
