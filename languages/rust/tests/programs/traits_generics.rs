// Traits and generics: trait objects, associated types, const generics, iterators, closures.
use std::collections::HashMap;
use std::ops::Mul;

trait Shape {
    fn area(&self) -> f64;
    fn name(&self) -> String {
        "shape".to_string()
    }
}

struct Circle(f64);
struct Rect(f64, f64);

impl Shape for Circle {
    fn area(&self) -> f64 {
        std::f64::consts::PI * self.0 * self.0
    }
    fn name(&self) -> String {
        "circle".into()
    }
}

impl Shape for Rect {
    fn area(&self) -> f64 {
        self.0 * self.1
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Matrix<const R: usize, const C: usize>([[i64; C]; R]);

impl<const R: usize, const K: usize, const C: usize> Mul<Matrix<K, C>> for Matrix<R, K> {
    type Output = Matrix<R, C>;

    fn mul(self, other: Matrix<K, C>) -> Matrix<R, C> {
        Matrix(std::array::from_fn(|r| std::array::from_fn(|c| (0..K).map(|k| self.0[r][k] * other.0[k][c]).sum())))
    }
}

struct Collatz(u64);

impl Iterator for Collatz {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let now = self.0;
        self.0 = match now {
            0 | 1 => 0,
            n if n % 2 == 0 => n / 2,
            n => 3 * n + 1,
        };
        (now != 0).then_some(now)
    }
}

fn memoize<A: Copy + Eq + std::hash::Hash, R: Clone>(f: impl Fn(A) -> R) -> impl FnMut(A) -> R {
    let mut cache = HashMap::new();
    move |argument| cache.entry(argument).or_insert_with(|| f(argument)).clone()
}

fn compose<A, B, C>(f: impl Fn(A) -> B, g: impl Fn(B) -> C) -> impl Fn(A) -> C {
    move |x| g(f(x))
}

fn main() {
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Circle(2.0)), Box::new(Rect(3.0, 4.0))];
    for shape in &shapes {
        println!("{} {:.4}", shape.name(), shape.area());
    }
    println!("{:?}", Matrix([[1, 2, 3], [4, 5, 6]]) * Matrix([[7], [8], [9]]));
    println!("{:?}", Collatz(6).collect::<Vec<_>>());
    let mut length = memoize(|n| Collatz(n).count());
    let longest = (1..10_000).max_by_key(|&n| length(n));
    println!("longest below 10000: {longest:?}, {} terms", length(6171));
    println!("{}", compose(|x: i32| x + 1, |x| format!("<{}>", x * 2))(20));
}
