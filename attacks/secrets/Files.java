// tries: reads host files from Java, by name, by walking, and with a shell
// seen-in: general
// walls: mount
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

public class Main {
    public static void main(String[] args) throws Exception {
        Map<String, String> env = System.getenv();
        for (String name : new String[] {env.get("SECRET"), env.get("PRIVATE"), "/proc/self/root" + env.get("SECRET")}) {
            try {
                System.out.println(Files.readString(Path.of(name)));
            } catch (Exception refused) {
            }
        }
        Process shell = new ProcessBuilder("sh", "-c", "cat " + env.get("SECRET") + " 2>&1").redirectErrorStream(true).start();
        System.out.println(new String(shell.getInputStream().readAllBytes()));
        System.out.println("attempted");
    }
}
