// Concurrency: thread pools, futures, latches, atomics, synchronized code, concurrent maps.
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;

public class ExecutorPool {
    private static int balance;

    static synchronized void deposit() {
        balance++;
    }

    static int countPrimes(int from, int to) {
        int count = 0;
        for (int n = Math.max(from, 2); n < to; n++) {
            boolean prime = true;
            for (int d = 2; d * d <= n && prime; d++) {
                prime = n % d != 0;
            }
            count += prime ? 1 : 0;
        }
        return count;
    }

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Callable<Integer>> jobs = new ArrayList<>();
        for (int from = 0; from < 10_000; from += 2_500) {
            int start = from;
            jobs.add(() -> countPrimes(start, start + 2_500));
        }
        int primes = 0;
        for (Future<Integer> result : pool.invokeAll(jobs)) {
            primes += result.get();
        }
        System.out.println("primes below 10000: " + primes);

        CountDownLatch done = new CountDownLatch(4);
        LongAdder adder = new LongAdder();
        ConcurrentSkipListMap<String, Integer> words = new ConcurrentSkipListMap<>();
        for (int t = 0; t < 4; t++) {
            pool.execute(() -> {
                for (int i = 0; i < 2_500; i++) {
                    deposit();
                    adder.increment();
                    words.merge(i % 2 == 0 ? "even" : "odd", 1, Integer::sum);
                }
                done.countDown();
            });
        }
        System.out.println("in time: " + done.await(30, TimeUnit.SECONDS));
        System.out.println(balance + " " + adder.sum() + " " + words);

        CompletableFuture<String> chain = CompletableFuture.supplyAsync(() -> 20, pool)
            .thenCombine(CompletableFuture.supplyAsync(() -> 22, pool), Integer::sum)
            .thenApply(n -> "answer " + n);
        System.out.println(chain.get());
        try {
            pool.submit(() -> Integer.parseInt("x")).get();
        } catch (ExecutionException e) {
            System.out.println(e.getCause().getClass().getSimpleName());
        }
        pool.shutdown();
        System.out.println("terminated: " + pool.awaitTermination(5, TimeUnit.SECONDS));
    }
}
