//! The same code natively, for `make bench-native`: the median time of each picture, in milliseconds.

use std::time::Instant;

const ROUNDS: usize = 15;

fn main() {
    for path in std::env::args().skip(1) {
        let picture = std::fs::read(&path).expect("a picture");
        let mut ms: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(thumbnail::scaled(&picture).expect("it scales"));
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        ms.sort_by(f64::total_cmp);
        println!("{path} {:.2}", ms[ROUNDS / 2]);
    }
}
