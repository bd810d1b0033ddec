// POSIX threads: workers with results, a bounded queue with condition variables, atomics.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WORKERS = 4, SLOTS = 8, ITEMS = 1000 };

static atomic_long hits;

struct range { int from, to, primes; };

static void *count_primes(void *argument) {
    struct range *r = argument;
    for (int n = r->from; n < r->to; n++) {
        int d = 2;
        while (d * d <= n && n % d) d++;
        r->primes += n > 1 && d * d > n;
        atomic_fetch_add(&hits, 1);
    }
    return r;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t not_full, not_empty;
    int items[SLOTS], head, count;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .not_full = PTHREAD_COND_INITIALIZER, .not_empty = PTHREAD_COND_INITIALIZER};

static void put(int item) {
    pthread_mutex_lock(&queue.lock);
    while (queue.count == SLOTS) pthread_cond_wait(&queue.not_full, &queue.lock);
    queue.items[(queue.head + queue.count++) % SLOTS] = item;
    pthread_cond_signal(&queue.not_empty);
    pthread_mutex_unlock(&queue.lock);
}

static int take(void) {
    pthread_mutex_lock(&queue.lock);
    while (queue.count == 0) pthread_cond_wait(&queue.not_empty, &queue.lock);
    int item = queue.items[queue.head];
    queue.head = (queue.head + 1) % SLOTS;
    queue.count--;
    pthread_cond_signal(&queue.not_full);
    pthread_mutex_unlock(&queue.lock);
    return item;
}

static void *consume(void *sum) {
    for (int item; (item = take()) >= 0;) *(long *)sum += item;
    return NULL;
}

int main(void) {
    pthread_t threads[WORKERS];
    struct range ranges[WORKERS];
    int primes = 0;
    for (int i = 0; i < WORKERS; i++) {
        ranges[i] = (struct range){2500 * i, 2500 * (i + 1), 0};
        if (pthread_create(&threads[i], NULL, count_primes, &ranges[i])) abort();
    }
    for (int i = 0; i < WORKERS; i++) {
        void *done;
        pthread_join(threads[i], &done);
        primes += ((struct range *)done)->primes;
    }
    printf("primes below 10000: %d\nhits: %ld\n", primes, atomic_load(&hits));

    long sums[WORKERS] = {0}, total = 0;
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, consume, &sums[i])) abort();
    for (int item = 1; item <= ITEMS; item++) put(item);
    for (int i = 0; i < WORKERS; i++) put(-1);
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        total += sums[i];
    }
    printf("consumed: %ld\n", total);
    return 0;
}
