//! How long the machine gave this process no turn: on a busy one, that is part of every lateness, and nobody's fault here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use hourhand::clock::monotonic;

const NAP: Duration = Duration::from_millis(20);
/// What a nap may take longer without being counted.
const USUAL: Duration = Duration::from_millis(30);

/// Counts from when it was made.
pub struct Stalls {
    lost_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Stalls {
    pub fn start() -> Self {
        let (lost_us, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, ended) = (lost_us.clone(), over.clone());
        std::thread::spawn(move || {
            while !ended.load(SeqCst) {
                let before = monotonic();
                std::thread::sleep(NAP);
                let lost = before.elapsed().saturating_sub(NAP + USUAL);
                counter.fetch_add(lost.as_micros() as u64, SeqCst);
            }
        });
        Self { lost_us, over }
    }

    /// All of it so far.
    pub fn ms(&self) -> u64 {
        self.lost_us.load(SeqCst) / 1_000
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}
