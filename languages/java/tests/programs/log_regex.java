// Text parsing: standard input, regular expressions with named groups, text blocks, formatting.
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

public class LogRegex {
    private static final Pattern LINE = Pattern.compile("""
        (?<host>\\S+) \\[(?<time>[^]]+)] "(?<method>[A-Z]+) (?<path>[^ ?"]+)(?:\\?(?<query>\\S*))? [^"]*" \
        (?<status>\\d{3}) (?<size>\\d+)""");

    public static void main(String[] args) throws IOException {
        Map<String, Integer> bytes = new TreeMap<>();
        Map<Integer, Integer> statuses = new TreeMap<>();
        int bad = 0;
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Matcher matcher = LINE.matcher(line);
                if (!matcher.matches()) {
                    bad++;
                    continue;
                }
                bytes.merge(matcher.group("path"), Integer.parseInt(matcher.group("size")), Integer::sum);
                statuses.merge(Integer.valueOf(matcher.group("status")), 1, Integer::sum);
                if (matcher.group("query") != null) {
                    System.out.println("query " + matcher.group("query") + " from " + matcher.group("host"));
                }
            }
        }
        bytes.forEach((path, size) -> System.out.printf("%-12s|%6d|%n", path, size));
        System.out.println(statuses + ", bad lines: " + bad);

        System.out.println(Pattern.compile("_([a-z])").matcher("snake_case_to_camel").replaceAll(m -> m.group(1).toUpperCase()));
        System.out.println(Arrays.toString("a , b;c ;  d".split("\\s*[,;]\\s*")));
        System.out.println(Pattern.compile("\\b(\\w)\\w*\\1\\b").matcher("level area tests noon").results()
            .map(m -> m.group() + "@" + m.start()).collect(Collectors.joining(" ")));
        System.out.println("2024-02-29".replaceAll("(\\d+)-(\\d+)-(\\d+)", "$3.$2.$1"));
        String page = """
            <ul>
              <li>%s</li>
            </ul>
            """.formatted("item");
        System.out.print(page);
        System.out.println(String.join("+", "x  y".strip().split(" +")) + " " + "-".repeat(5) + " " + "  ".isBlank());
    }
}
