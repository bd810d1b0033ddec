// Operator overloading: an arbitrary-precision unsigned integer with addition and multiplication.
use std::fmt;
use std::ops::{AddAssign, MulAssign};

const BASE: u64 = 1_000_000_000;

/// Limbs of nine decimal digits, least significant first, without leading zeros.
struct BigUint(Vec<u64>);

impl AddAssign<&BigUint> for BigUint {
    fn add_assign(&mut self, other: &BigUint) {
        let longest = self.0.len().max(other.0.len());
        self.0.resize(longest + 1, 0);
        let mut carry = 0;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let sum = *limb + other.0.get(i).unwrap_or(&0) + carry;
            *limb = sum % BASE;
            carry = sum / BASE;
        }
        self.0.truncate(longest + usize::from(self.0[longest] > 0));
    }
}

impl MulAssign<u32> for BigUint {
    fn mul_assign(&mut self, factor: u32) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = *limb * u64::from(factor) + carry;
            *limb = product % BASE;
            carry = product / BASE;
        }
        while carry > 0 {
            self.0.push(carry % BASE);
            carry /= BASE;
        }
    }
}

impl fmt::Display for BigUint {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Some((first, rest)) = self.0.split_last() else {
            return write!(f, "0");
        };
        write!(f, "{first}")?;
        rest.iter().rev().try_for_each(|limb| write!(f, "{limb:09}"))
    }
}

fn product(factors: impl Iterator<Item = u32>) -> BigUint {
    factors.fold(BigUint(vec![1]), |mut all, factor| {
        all *= factor;
        all
    })
}

fn fibonacci(n: usize) -> BigUint {
    let (mut a, mut b) = (BigUint(vec![]), BigUint(vec![1]));
    for _ in 0..n {
        a += &b;
        std::mem::swap(&mut a, &mut b);
    }
    a
}

fn digit_sum(n: &BigUint) -> u32 {
    n.to_string().chars().filter_map(|c| c.to_digit(10)).sum()
}

fn main() {
    println!("25! = {}", product(1..=25));
    println!("digit sum of 100!: {}", digit_sum(&product(1..=100)));
    println!("digit sum of 2^1000: {}", digit_sum(&product(std::iter::repeat_n(2, 1000))));
    println!("fib(90) = {}, fib(300) = {}", fibonacci(90), fibonacci(300));
    println!("{} {}", fibonacci(0), product([3, 5, 17, 257, 641, 65_537, 6_700_417].into_iter()));
}
