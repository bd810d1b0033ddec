// Concurrency: scoped threads, mpsc channels, Arc with Mutex and RwLock, atomics, a barrier.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex, RwLock};
use std::thread;

fn is_prime(n: u32) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

fn count_primes(limit: u32, workers: u32) -> usize {
    let total = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..workers {
            let total = &total;
            scope.spawn(move || {
                let count = (worker..limit).step_by(workers as usize).filter(|&n| is_prime(n)).count();
                total.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    total.into_inner()
}

fn letter_counts(words: &'static [&'static str]) -> BTreeMap<char, usize> {
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let handles: Vec<_> = words
        .iter()
        .map(|word| {
            let counts = Arc::clone(&counts);
            thread::spawn(move || {
                for letter in word.chars() {
                    *counts.lock().unwrap().entry(letter).or_insert(0) += 1;
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
    Arc::try_unwrap(counts).unwrap().into_inner().unwrap()
}

fn main() {
    println!("primes below 10000: {}", count_primes(10_000, 4));

    let (sender, receiver) = mpsc::channel();
    for id in 1..=3u64 {
        let sender = sender.clone();
        thread::spawn(move || (1..=100).for_each(|n| sender.send(id * n).unwrap()));
    }
    drop(sender);
    let (messages, sum) = receiver.iter().fold((0, 0), |(m, s), n| (m + 1, s + n));
    println!("messages: {messages}, sum: {sum}");

    println!("letters: {:?}", letter_counts(&["mississippi", "missouri"]));

    let shared = Arc::new(RwLock::new(vec![0; 4]));
    let barrier = Arc::new(Barrier::new(4));
    let leaders: Vec<bool> = (0..4)
        .map(|i| {
            let (shared, barrier) = (Arc::clone(&shared), Arc::clone(&barrier));
            thread::spawn(move || {
                shared.write().unwrap()[i] = i * i;
                let leader = barrier.wait().is_leader();
                assert_eq!(shared.read().unwrap().iter().sum::<usize>(), 14);
                leader
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|handle| handle.join().unwrap())
        .collect();
    println!("leaders: {}", leaders.iter().filter(|&&l| l).count());
    let sum = thread::spawn(move || shared.read().unwrap().iter().sum::<usize>());
    println!("sum of squares: {}", sum.join().unwrap());
}
