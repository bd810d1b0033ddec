// Hashing from scratch: SHA-256, CRC-32, FNV-1a, checked against known vectors.
fn primes() -> impl Iterator<Item = u32> {
    (2..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
}

/// The first 32 bits of the fraction of the square or cube root of a small prime.
fn root_bits(prime: u32, power: u32) -> u32 {
    // Integer root of prime * 2^(32 * power), whose low 32 bits are the fraction.
    let target = u128::from(prime) << (32 * power);
    let mut root = 0u128;
    for bit in (0..40).rev() {
        let trial = root | 1 << bit;
        if trial.pow(power) <= target {
            root = trial;
        }
    }
    root as u32
}

fn sha256(message: &[u8]) -> String {
    let k: Vec<u32> = primes().take(64).map(|p| root_bits(p, 3)).collect();
    let mut state: Vec<u32> = primes().take(8).map(|p| root_bits(p, 2)).collect();
    let mut data = message.to_vec();
    data.push(0x80);
    data.resize(data.len().next_multiple_of(64), 0);
    if data.len() - message.len() < 9 {
        data.resize(data.len() + 64, 0);
    }
    let at = data.len() - 8;
    data[at..].copy_from_slice(&(8 * message.len() as u64).to_be_bytes());

    for block in data.chunks_exact(64) {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let mut w: Vec<u32> = block.chunks_exact(4).map(word).collect();
        for i in 16..64 {
            let (a, b) = (w[i - 15], w[i - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w.push(w[i - 16].wrapping_add(s0).wrapping_add(w[i - 7]).wrapping_add(s1));
        }
        let mut v: [u32; 8] = state[..].try_into().unwrap();
        for i in 0..64 {
            let [a, b, c, d, e, f, g, h] = v;
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & f) ^ (!e & g);
            let t1 = [s1, choice, k[i], w[i]].into_iter().fold(h, u32::wrapping_add);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            v = [t1.wrapping_add(t2), a, b, c, d.wrapping_add(t1), e, f, g];
        }
        state.iter_mut().zip(v).for_each(|(s, x)| *s = s.wrapping_add(x));
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg()))
    })
}

fn fnv1a(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn main() {
    println!("sha256 {}", sha256(b""));
    println!("sha256 {}", sha256(b"abc"));
    println!("sha256 {}", sha256("a".repeat(1000).as_bytes()));
    println!("crc32  {:08x}", crc32(b"123456789"));
    println!("fnv1a  {:016x}", fnv1a(b"foobar"));
}
