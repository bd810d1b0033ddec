// Files: writing and reading text in a temporary directory, binary records, walking, channels.
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Comparator;
import java.util.IntSummaryStatistics;
import java.util.List;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

public class FileReport {
    private static final List<String> LINES =
        List.of("# city;celsius", "Oslo;-3", "Cairo;31", "Lima;19", "Oslo;5", "Cairo;27", "", "Lima;20");

    static void delete(Path path) {
        try {
            Files.delete(path);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void main(String[] args) throws IOException {
        Path folder = Files.createTempDirectory("report");
        Path text = folder.resolve("cities.txt");
        Files.write(text, LINES);
        Files.writeString(text, "Oslo;1\n", StandardOpenOption.APPEND);
        System.out.println("size: " + Files.size(text));

        TreeMap<String, IntSummaryStatistics> cities;
        try (Stream<String> lines = Files.lines(text)) {
            cities = lines.filter(line -> !line.isBlank() && !line.startsWith("#"))
                .map(line -> line.split(";"))
                .collect(Collectors.groupingBy(f -> f[0], TreeMap::new, Collectors.summarizingInt(f -> Integer.parseInt(f[1]))));
        }
        cities.forEach((city, s) -> System.out.printf("%-6s%3d%4d%4d%7.2f%n", city, s.getCount(), s.getMin(), s.getMax(), s.getAverage()));

        Path binary = Files.createDirectories(folder.resolve("a").resolve("b")).resolve("cities.bin");
        try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(binary))) {
            for (String city : cities.keySet()) {
                out.writeUTF(city);
                out.writeInt(cities.get(city).getMax());
            }
        }
        try (DataInputStream in = new DataInputStream(Files.newInputStream(binary))) {
            System.out.println(in.readUTF() + " " + in.readInt() + ", left: " + in.available());
        }
        try (FileChannel channel = FileChannel.open(binary)) {
            ByteBuffer length = ByteBuffer.allocate(2);
            channel.read(length, 11);
            System.out.println("second name length: " + length.flip().getShort());
        }

        try (Stream<Path> all = Files.walk(folder)) {
            all.sorted(Comparator.reverseOrder()).peek(p -> System.out.println("delete '" + folder.relativize(p) + "'"))
                .forEach(FileReport::delete);
        }
        try {
            Files.readString(text);
        } catch (NoSuchFileException e) {
            System.out.println("gone");
        }
    }
}
