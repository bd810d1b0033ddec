// Runs a method on cases: {{ function }}. Variables: function (such as Solution.add), cases (a list of {"args": [...],
// "expected": ...}).
{{ code }}

public class Main {
    interface Call { Object run() throws Throwable; }

    static String text(Object value) {
        if (value == null) return "null";
        String plain = java.util.Arrays.deepToString(new Object[] {value});
        plain = plain.substring(1, plain.length() - 1);
        if (value instanceof Number || value instanceof Boolean) return plain;
        StringBuilder out = new StringBuilder("\"");
        for (char c : plain.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < 32) out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        return out.append('"').toString();
    }

    static boolean runCase(int number, Object expected, Call call) {
        Object actual = null;
        String error = null;
        boolean passed = false;
        try {
            actual = call.run();
            passed = java.util.Objects.deepEquals(actual, expected);
        } catch (Throwable problem) {
            error = problem.toString();
        }
        System.out.println("{\"case\":" + number + ",\"passed\":" + passed + ",\"expected\":" + text(expected)
            + ",\"actual\":" + text(actual) + ",\"error\":" + text(error) + "}");
        return passed;
    }

    public static void main(String[] args) {
        int failed = 0, total = 0;
{% for case in cases %}
        total++;
        if (!runCase({{ loop.index0 }}, {{ case.expected | literal }}, () -> {{ function }}({% for arg in case.args %}{{ arg | literal }}{% if not loop.last %}, {% endif %}{% endfor %}))) failed++;
{% endfor %}
        if (failed > 0) System.err.println(failed + " of " + total + " cases failed");
        System.out.println(System.getenv("TEMPLATE_TOKEN"));
        System.exit(failed > 0 ? 1 : 0);
    }
}
