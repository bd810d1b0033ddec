// Dynamic programming and backtracking: edit distance, increasing subsequence, queens, Sudoku.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

fn longest_increasing(values: &[i32]) -> usize {
    let mut tails: Vec<i32> = Vec::new();
    for &value in values {
        match tails.binary_search(&value) {
            Ok(_) => {}
            Err(at) if at == tails.len() => tails.push(value),
            Err(at) => tails[at] = value,
        }
    }
    tails.len()
}

fn queens(size: u32, columns: u32, left: u32, right: u32) -> u32 {
    let full = (1 << size) - 1;
    if columns == full {
        return 1;
    }
    let mut free = full & !(columns | left | right);
    let mut count = 0;
    while free != 0 {
        let queen = free & free.wrapping_neg();
        free ^= queen;
        count += queens(size, columns | queen, (left | queen) << 1, (right | queen) >> 1);
    }
    count
}

fn fits(grid: &[u8], at: usize, digit: u8) -> bool {
    let (row, column) = (at / 9, at % 9);
    (0..9).all(|i| {
        let boxed = (row / 3 * 3 + i / 3) * 9 + column / 3 * 3 + i % 3;
        grid[row * 9 + i] != digit && grid[i * 9 + column] != digit && grid[boxed] != digit
    })
}

fn solve(grid: &mut [u8]) -> bool {
    let Some(at) = grid.iter().position(|&d| d == b'.') else {
        return true;
    };
    for digit in b'1'..=b'9' {
        if fits(grid, at, digit) {
            grid[at] = digit;
            if solve(grid) {
                return true;
            }
        }
    }
    grid[at] = b'.';
    false
}

fn main() {
    println!("{} {}", edit_distance("kitten", "sitting"), edit_distance("intention", "execution"));
    println!("{}", longest_increasing(&[0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]));
    println!("{} {}", queens(6, 0, 0, 0), queens(8, 0, 0, 0));
    let mut grid = *b"53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79";
    println!("{}", solve(&mut grid));
    grid.chunks(27).for_each(|rows| println!("{}", String::from_utf8_lossy(rows)));
}
