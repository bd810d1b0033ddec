// Compiles a Java program and finds out which class to start.
//
//     Compiler compile OUT PACKAGES ENTRY …    compiles with further options, says on standard error what javac says
//     Compiler train   OUT PACKAGES            only warms up
//     Compiler zygote  OUT PACKAGES LIBRARY    warms up and becomes a zygote, whose children compile
//
// A child is forked into a cell where it waits for the command of one compile stage, whose last argument is ENTRY.

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

final class Compiler {
    /** A type that is declared at the top level: its modifiers with its annotations, and its name. */
    private static final Pattern DECLARATION = Pattern.compile(
            "((?:(?:public|final|abstract|sealed|non-sealed|strictfp)\\s+|@[\\p{javaJavaIdentifierPart}.]+\\s*(?:\\(\\)\\s*)?)*)"
                    + "(?<![\\p{javaJavaIdentifierPart}.])(?:class|enum|record|@?interface)\\s+"
                    + "(\\p{javaJavaIdentifierStart}\\p{javaJavaIdentifierPart}*)");
    private static final Pattern PUBLIC = Pattern.compile("(?<!@)\\bpublic\\s");

    private final Path root;
    private final Path out;
    private final Path packages;
    private final List<String> options = new ArrayList<>();
    private final StringBuilder messages = new StringBuilder();

    private Compiler(Path root, Path out, Path packages) {
        this.root = root;
        this.out = out;
        this.packages = packages;
    }

    public static void main(String[] args) throws Exception {
        Path out = Path.of(args[1]);
        Path packages = Path.of(args[2]);
        Compiler compiler = new Compiler(Path.of(""), out, packages);
        switch (args[0]) {
            case "compile":
                compiler.options.addAll(List.of(args).subList(4, args.length));
                compiler.finish(args[3]);
                break;
            case "zygote":
                warmUp(packages, 16);
                System.load(args[3]);
                System.gc();
                int park = serve();
                // What follows happens in children only.
                compiler.finish(lastArgument(await(park)));
                break;
            default:
                warmUp(packages, 6);
        }
    }

    /** Makes this process a zygote. In a child, returns the descriptor at which it waits. */
    private static native int serve();

    /** Waits for the command of a child, enters its working directory, and returns the command. */
    private static native ByteBuffer await(int park);

    /** The last argument in a command: parts that end with a NUL, of which the second is the number of arguments. */
    private static String lastArgument(ByteBuffer command) {
        byte[] bytes = new byte[command.remaining()];
        command.get(bytes);
        String[] parts = new String(bytes, StandardCharsets.UTF_8).split("\0", -1);
        return parts[1 + Integer.parseInt(parts[1])];
    }

    /** Compiles, says what javac says, and ends. */
    private void finish(String entry) throws IOException {
        int code = run(entry);
        new FileOutputStream(FileDescriptor.err).write(messages.toString().getBytes(StandardCharsets.UTF_8));
        // Not waiting for threads of annotation processors, as javac does not.
        Runtime.getRuntime().halt(code);
    }

    /** Compiles the program that begins in a file. Returns the exit code. */
    private int run(String entry) {
        try {
            return compile(entry);
        } catch (IOException error) {
            messages.append("error: ").append(error).append('\n');
            return 1;
        }
    }

    private int compile(String entry) throws IOException {
        String file = ownName(entry);
        List<String> args = new ArrayList<>(List.of("-encoding", "UTF-8", "-Xlint:-options,-path", "-d", out.toString()));
        args.addAll(List.of("-cp", classPath(), "-sourcepath", parent(file) + ":" + root.resolve("src/main/java")));
        // Programs start faster if putting strings together does not need code that is made while they run.
        args.add("-XDstringConcat=inline");
        args.addAll(options);
        args.addAll(sources());
        int code = javac(args);
        // Messages name the file as its author did.
        if (!file.equals(entry)) {
            String renamed = Pattern.compile("^" + Pattern.quote(file + ":"), Pattern.MULTILINE)
                    .matcher(messages).replaceAll(Matcher.quoteReplacement(entry + ":"));
            messages.replace(0, messages.length(), renamed);
        }
        if (code != 0) {
            return 1;
        }
        Path resources = root.resolve("src/main/resources");
        if (Files.isDirectory(resources)) {
            copy(resources);
        }
        String main = mainClass(file);
        if (main == null) {
            messages.append("error: no class in ").append(entry)
                    .append(" has a method 'public static void main(String[] args)'\n");
            return 1;
        }
        Files.writeString(out.resolve("arguments"), main + "\n");
        return 0;
    }

    /** A public class must be in a file of its name; people who paste one file do not care. */
    private String ownName(String entry) throws IOException {
        Path path = root.resolve(entry);
        Matcher declared = DECLARATION.matcher(topLevel(source(path)));
        do {
            if (!declared.find()) {
                return entry;
            }
        } while (!PUBLIC.matcher(declared.group(1)).find());
        String name = declared.group(2) + ".java";
        Path own = path.resolveSibling(name);
        if (path.getFileName().toString().equals(name) || Files.exists(own)) {
            return entry;
        }
        Files.move(path, own);
        String dir = entry.contains("/") ? entry.substring(0, entry.lastIndexOf('/') + 1) : "";
        return dir + name;
    }

    /** All source files but those of tests. */
    private List<String> sources() throws IOException {
        List<String> found = new ArrayList<>();
        Path start = root.toString().isEmpty() ? Path.of(".") : root;
        Files.walkFileTree(start, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) {
                String path = file.toString();
                if (path.endsWith(".java") && !path.contains("/src/test/")) {
                    String plain = path.startsWith("./") ? path.substring(2) : path;
                    // The compiler would take some names for options, or for lists of options.
                    found.add(plain.startsWith("-") || plain.startsWith("@") ? "./" + plain : plain);
                }
                return FileVisitResult.CONTINUE;
            }
        });
        found.sort(null);
        return found;
    }

    /** The class to start: the first one in the file that has a main method. */
    private String mainClass(String file) throws IOException {
        Path path = root.resolve(file);
        List<String> candidates = new ArrayList<>();
        candidates.add(path.getFileName().toString().replaceFirst("\\.java$", ""));
        Matcher declared = DECLARATION.matcher(topLevel(source(path)));
        while (declared.find()) {
            candidates.add(declared.group(2));
        }
        List<Path> classes = new ArrayList<>();
        Files.walkFileTree(out, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path found, BasicFileAttributes attributes) {
                if (found.toString().endsWith(".class")) {
                    classes.add(found);
                }
                return FileVisitResult.CONTINUE;
            }
        });
        classes.sort(null);
        for (String candidate : candidates) {
            for (Path compiled : classes) {
                if (compiled.getFileName().toString().equals(candidate + ".class")) {
                    String content = text(compiled);
                    if (content.contains("([Ljava/lang/String;)V") && content.contains("main")) {
                        String name = out.relativize(compiled).toString();
                        return name.substring(0, name.length() - ".class".length()).replace('/', '.');
                    }
                    break;
                }
            }
        }
        return null;
    }

    private void copy(Path from) throws IOException {
        Files.walkFileTree(from, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult preVisitDirectory(Path dir, BasicFileAttributes attributes) throws IOException {
                Files.createDirectories(out.resolve(from.relativize(dir)));
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Path target = out.resolve(from.relativize(file));
                Files.copy(file, target, java.nio.file.StandardCopyOption.REPLACE_EXISTING);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    private int javac(List<String> args) {
        StringWriter said = new StringWriter();
        PrintWriter writer = new PrintWriter(said, true);
        int code = com.sun.tools.javac.Main.compile(args.toArray(new String[0]), writer);
        writer.flush();
        messages.append(said.getBuffer());
        return code;
    }

    /** Every archive of the packages, which javac's launcher would find, but the compiler does not. */
    private String classPath() throws IOException {
        List<String> found = new ArrayList<>();
        if (Files.isDirectory(packages)) {
            try (DirectoryStream<Path> archives = Files.newDirectoryStream(packages, "*.{jar,JAR}")) {
                archives.forEach(archive -> found.add(archive.toString()));
            }
        }
        found.sort(null);
        // Not nothing, which would be the working directory.
        return found.isEmpty() ? packages.toString() : String.join(":", found);
    }

    private String parent(String file) {
        Path parent = root.resolve(file).getParent();
        return parent == null ? "." : parent.toString();
    }

    /** The text of a source file. */
    private static String source(Path path) throws IOException {
        return new String(Files.readAllBytes(path), StandardCharsets.UTF_8);
    }

    /** What a source file says at its top level: without comments, literals, and what is between braces or parentheses. */
    private static String topLevel(String source) {
        StringBuilder top = new StringBuilder();
        int depth = 0;
        for (int at = 0; at < source.length(); at++) {
            char next = source.charAt(at);
            int end = -1;
            if (source.startsWith("//", at)) {
                end = source.indexOf('\n', at);
            } else if (source.startsWith("/*", at)) {
                end = source.indexOf("*/", at + 2) + 1;
                end = end == 0 ? source.length() : end;
            } else if (source.startsWith("\"\"\"", at)) {
                end = literal(source, at + 3, "\"\"\"");
            } else if (next == '"' || next == '\'') {
                end = literal(source, at + 1, String.valueOf(next));
            } else if (next == '}' || next == ')') {
                depth = Math.max(0, depth - 1);
            }
            boolean skipped = end != -1 || source.startsWith("//", at);
            if (depth == 0) {
                top.append(skipped ? ' ' : next);
            }
            if (skipped) {
                at = end == -1 ? source.length() : end;
            } else if (next == '{' || next == '(') {
                depth++;
            }
        }
        return top.toString();
    }

    /** Where a literal ends that goes on at an index. */
    private static int literal(String source, int at, String delimiter) {
        while (at < source.length() && !source.startsWith(delimiter, at)) {
            at += source.charAt(at) == '\\' ? 2 : 1;
        }
        return at + delimiter.length() - 1;
    }

    /** A file's content, a character for each byte. */
    private static String text(Path path) throws IOException {
        return Files.readString(path, StandardCharsets.ISO_8859_1);
    }

    // What follows makes the compiler fast: everything that programs commonly use is compiled a few times.

    private static void warmUp(Path packages, int rounds) throws IOException {
        // Not a temporary directory with a random name, for which a descriptor would stay open.
        Path scratch = Files.createDirectory(Path.of("/tmp/warm-up"));
        for (int round = 0; round < rounds; round++) {
            for (int sample = 0; sample < SAMPLES.length; sample++) {
                Path root = Files.createDirectory(scratch.resolve(round + "-" + sample));
                Path out = Files.createDirectory(root.resolve("out"));
                Files.writeString(root.resolve("Main.java"), SAMPLES[sample]);
                new Compiler(root, out, packages).run("Main.java");
            }
        }
        delete(scratch);
    }

    private static void delete(Path dir) throws IOException {
        Files.walkFileTree(dir, new SimpleFileVisitor<>() {
            @Override
            public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
                Files.delete(file);
                return FileVisitResult.CONTINUE;
            }

            @Override
            public FileVisitResult postVisitDirectory(Path directory, IOException error) throws IOException {
                Files.delete(directory);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    private static final String[] SAMPLES = {
        """
        public class Hello {
            public static void main(String[] args) {
                int sum = 0;
                for (int i = 0; i < 10; i++) {
                    sum += i;
                }
                System.out.println("Hello, " + sum);
            }
        }
        """,
        """
        import java.io.*;
        import java.util.*;
        import java.util.function.*;
        import java.util.stream.*;

        public class Main {
            interface Shape { double area(); }
            record Circle(double radius) implements Shape {
                public double area() { return Math.PI * radius * radius; }
            }
            enum Color { RED, GREEN; Color next() { return values()[(ordinal() + 1) % values().length]; } }
            static class Node<T extends Comparable<T>> {
                final T value; Node<T> left, right;
                Node(T value) { this.value = value; }
                void insert(T other) {
                    if (other.compareTo(value) < 0) {
                        if (left == null) left = new Node<>(other); else left.insert(other);
                    } else if (right == null) right = new Node<>(other); else right.insert(other);
                }
            }
            private static final Map<Integer, Long> MEMO = new HashMap<>();
            static long fibonacci(int n) {
                return n < 2 ? n : MEMO.computeIfAbsent(n, k -> fibonacci(k - 1) + fibonacci(k - 2));
            }
            public static void main(String... args) throws Exception {
                BufferedReader reader = new BufferedReader(new InputStreamReader(System.in));
                String line;
                List<String> words = new ArrayList<>();
                while ((line = reader.readLine()) != null && !line.isEmpty()) {
                    words.addAll(Arrays.asList(line.trim().split(" +")));
                }
                Map<String, Integer> counts = new TreeMap<>(Comparator.reverseOrder());
                for (String word : words) counts.merge(word, 1, Integer::sum);
                List<Integer> squares = IntStream.range(0, 10).map(i -> i * i).boxed().collect(Collectors.toList());
                int[][] grid = new int[3][4];
                for (int[] row : grid) Arrays.fill(row, 7);
                StringBuilder text = new StringBuilder();
                for (Map.Entry<String, Integer> entry : counts.entrySet()) {
                    text.append(entry.getKey()).append('=').append(entry.getValue()).append(' ');
                }
                Function<Integer, Integer> twice = x -> x * 2;
                Optional<Integer> first = squares.stream().filter(x -> x % 3 == 1).map(twice).findFirst();
                try (Scanner scanner = new Scanner("1 2")) {
                    long total = scanner.nextInt() + scanner.nextLong();
                    System.out.printf("%d %s %.2f%n", total, first.orElse(0), new Circle(2).area());
                } catch (IllegalStateException | NoSuchElementException error) {
                    throw new RuntimeException("bad " + error.getMessage(), error);
                } finally {
                    System.out.println(text + " " + squares + " " + Color.RED.next() + " " + fibonacci(20));
                }
                switch (args.length) { case 0: break; default: System.exit(args.length > 1 ? 2 : 1); }
                String kind = switch (Color.RED) { case RED -> "red"; case GREEN -> "green"; };
                Thread thread = new Thread(() -> { synchronized (MEMO) { MEMO.clear(); } });
                thread.start(); thread.join();
                Object value = kind;
                if (value instanceof String s && s.length() > 2) System.out.println(s.substring(1).toUpperCase());
            }
        }
        """,
        """
        public class Main {
            public static void main(String[] args) {
                int x = "text";
                System.out.println(y)
            }
        }
        """,
    };
}
