//! The doctor's look at a store when a scenario has ended, whatever happened in it.

use std::process::Command;

use serde_json::Value;

/// Fails when the doctor, asked by this command line, finds anything wrong in its store, or anything that was set
/// aside. A store that is not there any more, or was never made, has nothing to look at.
///
/// # Panics
/// With what was found.
#[track_caller]
pub fn assert_healthy(mut doctor: Command) {
    let output = doctor.args(["doctor", "--json"]).output().expect("run the binary");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(5) {
        return;
    }
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    // Servers of tests keep nothing, and a busy machine is slow: that is worth a warning and no failure.
    let items = found["items"].as_array();
    let wrong =
        items.map(|items| items.iter().filter(|item| item["severity"] != "warning").collect::<Vec<_>>());
    assert_eq!(wrong, Some(vec![]), "{}: {stderr}", output.status);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    assert_eq!(stderr, "", "nothing was set aside");
}
