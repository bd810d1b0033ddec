// tries: sleeps for ever, and ignores requests to end
// seen-in: general
// walls: limits
// limits: wall_time=1500ms memory=512m
// expect: timeout
// alone: yes
public class Main {
    public static void main(String[] args) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(1000);
                } catch (InterruptedException ignored) {
                }
            }
        }));
        Thread.sleep(60_000);
    }
}
