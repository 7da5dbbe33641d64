//! `grow`: takes `{"mib": n}` of memory and writes to all of it.

use hourhand_sdk::prelude::*;

const MIB: usize = 1 << 20;
const PAGE: usize = 4 << 10;

#[derive(Deserialize)]
struct Grow {
    mib: usize,
}

#[derive(Serialize)]
struct Grown {
    mib: usize,
}

#[handler]
fn grow(grow: Grow) -> Grown {
    // Piece by piece, so that 4096 MiB meet the limit and not the size of a pointer.
    let pieces: Vec<Vec<u8>> = (0..grow.mib).map(|_| piece()).collect();
    Grown { mib: pieces.iter().map(Vec::len).sum::<usize>() / MIB }
}

fn piece() -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(bytes)
}
