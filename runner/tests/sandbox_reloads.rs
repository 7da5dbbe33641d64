//! What stays of versions that were replaced: nothing but the pool's slots, however many there were.
//!
//! Alone in its file, because it counts the mappings of its process.

mod guests;

use std::sync::Arc;

use guests::*;
use hourhand::outcome::RunEnd;
use hourhand::sandbox::{JobLog, Sandbox, SandboxConfig, StopSignal};

/// Mappings that hold machine code: one for each module that is loaded, and the process's own.
fn code_mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(" r-xp ")).count()
}

#[test]
fn the_code_of_a_replaced_version_goes_with_it() {
    in_a_guest_runtime(async {
        let sandbox = Sandbox::new(SandboxConfig { concurrency: 8, ..SandboxConfig::default() }).unwrap();
        let mut serving = None;
        let mut before = 0;
        for version in 0..60 {
            let text = format!("version {version:02}");
            let module = guest(ok(TEXT, text.len() as i32)).text(&text).build();
            let module = sandbox.load("k", &module).unwrap();
            // The old one goes when the new one serves.
            serving.replace(module.clone());
            let run = {
                let sandbox = Arc::clone(&sandbox);
                let log = Arc::new(JobLog::new(10));
                async move { sandbox.run(&module, job("x"), &limits(5_000), StopSignal::new(), log).await }
            };
            assert_eq!(tokio::spawn(run).await.unwrap().end, RunEnd::Completed(text.into()));
            if version == 9 {
                before = code_mappings();
            }
        }
        let after = code_mappings();
        assert!(after <= before + 2, "{before} mappings of code after 10 versions, {after} after 60");
        drop(serving);
    });
}
